"""What an interpreter imports and has installed: `python -I probe.py <question.json> <answer.json>`.

It runs in the stack's interpreter, which may be any Python from 3.10 on: the standard library only. It reports, it does
not judge. A module may print what it likes: the answer is a file.
"""

import importlib
import importlib.metadata as metadata
import json
import os
import platform
import sys
import traceback
from pathlib import Path
from typing import Any

LAST_LINES = 4


def main() -> None:
    """Answer one question: the modules that are to be imported."""
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # What is installed is read before anything is imported.
    installed = [described(one) for one in metadata.distributions() if one.metadata["Name"]]
    owners = metadata.packages_distributions() if asked["modules"] else {}
    answer = {
        "python_version": platform.python_version(),
        "prefix": sys.prefix,
        "distributions": installed,
        "modules": {name: imported(name, list(owners.get(name.partition(".")[0], []))) for name in asked["modules"]},
    }
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # what a module does at exit is no part of the answer


def described(one: metadata.Distribution) -> dict[str, Any]:
    """Name, version and folder of a distribution."""
    folder = getattr(one, "_path", None)
    return {"name": one.metadata["Name"], "version": one.version, "info": str(folder) if folder else ""}


def imported(name: str, owners: list[str]) -> dict[str, Any]:
    """Where a module came from, or why it could not be imported."""
    found: dict[str, Any] = {"file": None, "version": None, "owners": owners, "error": None}
    try:
        module = importlib.import_module(name)
    except (Exception, SystemExit):  # reported, not handled: whoever asked judges it
        found["error"] = traceback.format_exc().strip().splitlines()[-LAST_LINES:]
        return found
    version = getattr(module, "__version__", None)
    found["version"] = version if isinstance(version, str) else metadata.version(owners[0]) if owners else None
    found["file"] = getattr(module, "__file__", None)
    found["standard"] = name.partition(".")[0] in sys.stdlib_module_names
    return found


if __name__ == "__main__":
    main()
