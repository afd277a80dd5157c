"""uv, called so that all it says is in one log, that offline reaches it, and that no setting of the caller bends it.

uv itself inherits the caller's environment (indexes, certificates, proxies). The build of a source inherits almost
nothing of it: a compiler flag or a build switch of some shell would be in the wheel and in no record.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kassay import host
from kassay.errors import SourceError

BENDING = ("UV_OVERRIDE", "UV_CONSTRAINT", "UV_EXCLUDE", "UV_BUILD_CONSTRAINT", "UV_TARGET", "UV_SYSTEM_PYTHON")
# What a build inherits: where things are and how the network is reached. Switches come from the stack file.
PASSED = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("CUDA_HOME", "CUDA_PATH", "CCACHE_DIR", "SCCACHE_DIR", "UV_CACHE_DIR", "UV_NO_CACHE", "UV_OFFLINE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
PERIOD_S = 0.5
SHOWN_LINES = 12
SHOWN_CHARACTERS = 80
TAIL_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Making:
    """How a stack is made, whatever it is made from."""

    log: Path  # all that uv, the build backends and the compilers say
    offline: bool
    jobs: int  # compilers side by side
    tell: Callable[[str], None]  # hears what is being done, again and again


def call(making: Making, what: str, words: list[str], environment: dict[str, str]) -> None:
    """Run uv to its end, its words going to the log as they come. Raises SourceError with the last of them."""
    network = ["--offline"] if making.offline else []
    argv = [program(), *words, *network, "--color", "never"]
    with making.log.open("ab") as stream:
        stream.write(f"$ uv {shlex.join(argv[1:])}\n".encode())
        stream.flush()
        begun = stream.tell()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment
        )
    try:
        follow(process, making, what)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0:
        said = making.log.read_bytes()[begun:].decode(errors="replace").strip().splitlines()[-SHOWN_LINES:]
        raise SourceError(
            f"{what}: `uv {words[0]}` ended with {process.returncode}:", *said, hint=f"the whole log is {making.log}"
        )


def follow(process: subprocess.Popen[bytes], making: Making, what: str) -> None:
    """Wait for a process and tell the log's last line meanwhile."""
    making.tell(what)
    while True:
        try:
            process.wait(PERIOD_S)
            return
        except subprocess.TimeoutExpired:
            making.tell(f"{what}: {last_line(making.log)}")


def last_line(log: Path) -> str:
    """The newest line of a log, shortened."""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = stream.read().decode(errors="replace").split("\n")
    return next((line.strip()[:SHOWN_CHARACTERS] for line in reversed(lines) if line.strip()), "")


def program() -> str:
    """The uv on PATH, else the one beside our own interpreter. Raises SourceError if there is none."""
    beside = Path(sys.executable).parent / "uv"
    found = shutil.which("uv") or (str(beside) if beside.is_file() else None)
    if found is None:
        raise SourceError("`uv` is neither on PATH nor in the framework's environment", hint="pip install uv")
    return found


def own_environment(no_downloads: bool = True) -> dict[str, str]:
    """What uv runs in when it resolves and installs; unless told otherwise it downloads no Python."""
    dropped = {*host.REDIRECTS, *BENDING}
    kept = {name: text for name, text in os.environ.items() if name not in dropped and not name.startswith("PYTHON")}
    kept.setdefault("UV_FIND_LINKS", kept.get("PIP_FIND_LINKS", ""))
    return {**kept, "UV_PYTHON_DOWNLOADS": "never" if no_downloads else "automatic"}


def build_environment(python: Path, jobs: int, variables: dict[str, str]) -> dict[str, str]:
    """What a source is built in: the environment's own tools first, then the host's, and the stack file's variables."""
    return {
        **{name: os.environ[name] for name in PASSED if name in os.environ},
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(python.parent.parent),
        "PYTHONNOUSERSITE": "1",
        "PYTHONHASHSEED": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "UV_PYTHON_DOWNLOADS": "never",
        "MAX_JOBS": str(jobs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        **variables,
    }
