"""Where everything lies: the one module that knows the layout of the tree and of a results folder.

<root>/Kconfig defconfigs/ workflows/ stages/ data/ build/stacks/ .config
<results>/<run_id>/plan.json manifest.json events.jsonl stages/<stage>/request.json … outcome.json receipt.json
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CONFIG = ROOT / ".config"
KCONFIG = ROOT / "Kconfig"
DEFCONFIGS = ROOT / "defconfigs"
FRAGMENTS = DEFCONFIGS / "fragments"
WORKFLOWS = ROOT / "workflows"
STAGES = ROOT / "stages"
BUILD = ROOT / "build"

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


def results_dir(configured: str) -> Path:
    """The results folder of a configured value; a relative one lies in the project root."""
    return (ROOT / configured).resolve()


def stage_dir(run_dir: Path, stage: str) -> Path:
    """The directory of one stage of a run."""
    return run_dir / "stages" / stage


def shown(path: Path) -> str:
    """`path` relative to the working folder where that is shorter, for messages."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
