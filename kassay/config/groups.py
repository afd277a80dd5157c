"""The Hydra groups of a workflow: folders beside its workflow.yaml, and those of workflows/common that it names.

A folder beside workflow.yaml is a group of that workflow alone. A group that `defaults` of workflow.yaml names, and
that has no such folder, is looked for in workflows/common of the same tree, then of ours: what several workflows share
stands there once. Which file of a group is taken says the Kconfig symbol of its name, wherever the folder lies.
"""

from pathlib import Path
from typing import Any

import yaml

from kassay import paths
from kassay.config.locate import WORKFLOW_FILE

COMMON = "common"


def common(workflow_dir: Path) -> list[Path]:
    """The folders in which shared groups lie, the nearest first."""
    found = [workflow_dir.parent / COMMON, paths.ROOT / paths.WORKFLOWS / COMMON]
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def folders(workflow_dir: Path) -> dict[str, Path]:
    """Group -> its folder, by name."""
    own = {path.name: path for path in workflow_dir.iterdir() if path.is_dir()}
    for name in named(workflow_dir / WORKFLOW_FILE):
        shared = [place / name for place in common(workflow_dir) if (place / name).is_dir()]
        if name not in own and shared:
            own[name] = shared[0]
    return dict(sorted(own.items()))


def named(file: Path) -> list[str]:
    """The groups that `defaults` of a workflow names; none of a file that cannot be read, which Hydra will tell."""
    try:
        body: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return []
    entries = body.get("defaults") if isinstance(body, dict) else None
    given = entries if isinstance(entries, list) else []
    return [str(name) for entry in given if isinstance(entry, dict) for name in entry]


def search_path(workflow_dir: Path) -> list[str]:
    """Hydra's override by which it finds shared groups; none where there are none."""
    escaped = (str(place).replace("\\", "\\\\").replace("'", "\\'") for place in common(workflow_dir))
    found = ",".join(f"'file://{place}'" for place in escaped)
    return [f"hydra.searchpath=[{found}]"] if found else []
