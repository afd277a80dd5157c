"""What the driver starts: it makes the mirror's environment if there is none, then becomes the mirror's program.

`python launch.py <request file>`, in the framework's environment. The program inherits nothing of the caller's
environment but what is named here: tokens meant for others do not reach a service's client.
"""

import os
import sys
from pathlib import Path

from kassay.engine import environment_of
from kassay.errors import SourceError
from kassay.mirror import cursor, request
from kassay.mirror.request import EXIT_TOLD, PINS, Request, append_health
from kassay.source import environment

# What a mirror that is online cannot do without, and what else is its service's own; neither reaches the other mirror.
NEEDED = {"wandb": ("WANDB_API_KEY",), "trackio": ("TRACKIO_SERVER_URL", "TRACKIO_WRITE_TOKEN")}
OWN = {"wandb": ("WANDB_BASE_URL",), "trackio": ()}
# What a client needs to reach its service; none of it is passed on without the network.
NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
ALWAYS = ("TMPDIR", "LANG", "TZ")


def main() -> None:
    """Make or find the environment and become the program; what is lacking is recorded."""
    path = Path(sys.argv[1])
    asked = request.load(path)
    if asked.online and (lacking := [name for name in NEEDED[asked.mirror] if not os.environ.get(name)]):
        which = f"{asked.mirror.upper()}_MODE=online"
        leave_absent(asked, f"unmet: no {' and no '.join(lacking)} in the environment, which {which} needs")
    pins = PINS[asked.mirror]
    stacks = Path(asked.stacks)
    try:
        stacks.mkdir(parents=True, exist_ok=True)
        stack, _ = environment.made(pins, stacks, stacks / f"{asked.mirror}.log", asked.offline)
    except (SourceError, OSError) as error:
        # uv's own words may hold an index's address; they stay outside the run.
        wanted = ", ".join(f"`{pin}`" for pin in pins["requirements"])
        said = f"build/{request.FOLDER}/{asked.mirror}.log"
        leave_absent(asked, f"unmet: no environment with {wanted} ({type(error).__name__}); uv's words are in {said}")
    python = Path(stack["python"])
    program = Path(__file__).with_name("program.py")
    # -P: the program's folder is no place to import from, its modules have everyday names.
    os.execve(python, [str(python), "-P", str(program), str(path)], environment_for(asked, python))


def leave_absent(asked: Request, reason: str) -> None:
    """Record what the host lacks, and end."""
    append_health(asked, "absent", cursor.load(asked).events, reason)
    raise SystemExit(EXIT_TOLD)


def environment_for(asked: Request, python: Path) -> dict[str, str]:
    """The program's whole environment: its home, caches and settings lie in the run directory."""
    scratch = asked.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    online = (*NETWORK, *NEEDED[asked.mirror], *OWN[asked.mirror])
    passed = (*ALWAYS, *(online if asked.online else ()))
    return {
        **{name: os.environ[name] for name in passed if name in os.environ},
        **environment_of(python),
        "HOME": str(scratch),  # no ~/.netrc, no ~/.config: a key comes through the environment or not at all
        "WANDB_DIR": str(asked.folder / "making"),
        "WANDB_CONFIG_DIR": str(scratch),
        "WANDB_CACHE_DIR": str(scratch),
        "WANDB_DATA_DIR": str(scratch),
        "WANDB_ERROR_REPORTING": "false",
        "TRACKIO_DIR": str(asked.folder / "trackio"),
        "HF_HUB_OFFLINE": "1",
    }


if __name__ == "__main__":
    main()
