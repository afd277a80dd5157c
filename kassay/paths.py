"""Where everything lies: the one module that knows the layout of the trees and of a results folder.

<root>/Kconfig defconfigs/ workflows/ stages/ data/ build/stacks/ .config
<tree of KASSAY_PATH>/defconfigs/ workflows/ stages/
<results>/<run_id>/plan.json manifest.json events.jsonl stages/<stage>/request.json … outcome.json receipt.json

A name means one thing: a workflow, profile, fragment, stage program or `tree:` path that two trees hold is an error.
"""

import functools
import os
from pathlib import Path

from kassay.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent

KCONFIG = "Kconfig"
DEFCONFIGS = "defconfigs"
FRAGMENTS = "defconfigs/fragments"
WORKFLOWS = "workflows"
STAGES = "stages"
OUTSIDE = "KASSAY_PATH"  # folders with `:` between them, as in PATH
PARTS = (WORKFLOWS, STAGES, DEFCONFIGS)  # what a tree of KASSAY_PATH may hold
UNSAFE = set("$\"'\\*?[]\n")  # they mean something in a Kconfig `source` line

# Files of a stage directory.
REQUEST = "request.json"
RECORDS = "records.jsonl"
OUTCOME = "outcome.json"
RECEIPT = "receipt.json"
PROGRESS = "progress.json"
STDOUT = "stdout.log"
STDERR = "stderr.log"

# Files of a run directory.
PLAN = "plan.json"
MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
LOCK = ".lock"
OWNER = ".lock.owner"  # who has the run
BOOK = ".book.json"  # what was verified; a cache
PROTOCOL = "protocol.json"  # of which protocol the run is, and what was frozen then; beside .config what is frozen
KEPT = "kept.json"  # stale results that were kept on demand, and in what they are stale
FROZEN = "frozen.json"  # refs of this run that a remote may move, and the commits that they stay at

# Files and folders of a stack, build/stacks/<key>.
ATTESTED = "attested.json"  # written last
JIT = "jit"  # what tools compile while they run


def config() -> Path:
    """The one `.config` of the project."""
    return ROOT / ".config"


def protocol() -> Path:
    """The frozen protocols of the project, to be kept with its files."""
    return ROOT / PROTOCOL


def build() -> Path:
    """Where environments and mirrors are made; all of it can be made again."""
    return ROOT / "build"


def plans() -> Path:
    """Where composed plans are kept; a cache."""
    return build() / "plans"


def digests() -> Path:
    """Where digests of files are remembered; a cache."""
    return build() / "digests.json"


def trees() -> list[Path]:
    """Our own tree, then those of KASSAY_PATH. Raises ConfigError for an entry that is none."""
    return list(_trees(ROOT, os.environ.get(OUTSIDE, "")))


@functools.lru_cache(maxsize=8)
def _trees(root: Path, outside: str) -> tuple[Path, ...]:
    found = [root]
    errors = []
    for entry in filter(None, outside.split(os.pathsep)):
        path = Path(entry).resolve()
        if bad := sorted(UNSAFE & set(str(path))):
            errors.append(f"{OUTSIDE}: `{entry}` holds {bad[0]!r}, which a Kconfig file cannot name")
        elif not any((path / part).is_dir() for part in PARTS):
            errors.append(f"{OUTSIDE}: `{entry}` holds none of {', '.join(PARTS)}")
        elif path not in found:
            found.append(path)
    if errors:
        raise ConfigError(*errors, hint=f"{OUTSIDE}=<folder>[:<folder>…] make …")
    return tuple(found)


def places(relative: str) -> list[Path]:
    """Every tree's file or folder of that path; a relative one that leaves its tree is none, an absolute one itself."""
    return [Path(path) for path in _places(relative)]


def are(relative: str) -> int:
    """How many trees hold that relative path."""
    return len(_places(relative))


def _places(relative: str) -> list[str]:
    roots = [str(tree) for tree in trees()]
    found = [(root, os.path.normpath(os.path.join(root, relative))) for root in roots]
    inside = [path for root, path in found if f"{path}/".startswith(f"{root}/")]
    if not inside and os.path.isabs(relative):
        inside = [os.path.normpath(relative)]  # of no tree: a user's own folder, such as a checkpoint
    return [path for path in inside if os.path.exists(path)]


def place(relative: str) -> Path:
    """The one file or folder of that relative path in any tree. Raises ConfigError if there is none, or more."""
    found = places(relative)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"`{relative}` does not exist{'' if os.path.isabs(relative) else ' in the project'}")
    raise ConfigError(f"`{relative}` is in two trees: {', '.join(shown(path) for path in found)}")


def program(name: str) -> Path:
    """The file of a stage program."""
    return place(f"{STAGES}/{name}.py")


def entries(folder: str, pattern: str = "[!.]*") -> list[Path]:
    """Files and folders of that folder in all trees, by name."""
    found = [path for tree in trees() for path in (tree / folder).glob(pattern)]
    return sorted(found, key=lambda path: path.name)


def results_dir(configured: str) -> Path:
    """The results folder of a configured value; a relative one lies in the project root."""
    return (ROOT / configured).resolve()


@functools.lru_cache(maxsize=4096)
def stage_dir(run_dir: Path, stage: str) -> Path:
    """The directory of one stage of a run."""
    return run_dir / f"stages/{stage}"


def shown(path: Path) -> str:
    """`path` relative to the working folder where that is shorter, for messages."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
