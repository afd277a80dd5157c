"""A run of a tiny project whose driver is another process, as from another shell."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Project

HERE = Path(__file__).resolve().parent.parent
DRIVER = """
import json, sys
from pathlib import Path
from kassay import lock, paths
paths.ROOT = Path(sys.argv[1])
from kassay.progress import shown_on_stderr
from tests.conftest import Project
project = Project.__new__(Project); project.root = paths.ROOT; project.results = paths.ROOT / "results"
run = project.open(json.loads(sys.argv[2]))
with lock.owned(run.directory, run.engine.token, sorted(run.states) if run.setup.only else []) as before:
    watcher = shown_on_stderr(run.directory)
    try:
        code = run.go(watcher, before)
    except KeyboardInterrupt:
        code = 130
    finally:
        watcher.close()
print("rich" if "rich" in sys.modules else "plain")
sys.exit(code)
"""
COUNT = """
    total = stage.params["total"]
    for done in range(1, total + 1):
        stage.progress(done, total, "items")
        print("out", done, flush=True)
        print("err", done, file=sys.stderr, flush=True)
        while not os.path.exists(stage.params["gate"]): time.sleep(0.02)
    stage.write_json("out", {})
    return {}
"""
BAD = '    for n in range(30): print("line", n, file=sys.stderr)\n    raise ValueError("broken")'


def argv(project: Project, stages: dict[str, Any]) -> list[str]:
    """The driver's command line."""
    return [sys.executable, "-c", DRIVER, str(project.root), json.dumps(stages)]


def environment(**more: str) -> dict[str, str]:
    """Where the driver finds kassay and the tests."""
    return {**os.environ, "PYTHONPATH": str(HERE), **more}


def drive(project: Project, stages: dict[str, Any]) -> "subprocess.Popen[str]":
    """Start the driver; its talk and what it printed are read with `communicate`."""
    pipe = subprocess.PIPE
    return subprocess.Popen(argv(project, stages), cwd=HERE, env=environment(), stdout=pipe, stderr=pipe, text=True)


def counting(project: Project, total: int = 9, **body: Any) -> dict[str, Any]:
    """A stage that tells how far it is, and does not go on until `gate` is there."""
    project.program("count", COUNT)
    return {"program": "count", "params": {"total": total, "gate": str(project.root / "gate")}, **body}


def until(told: Callable[[], Any], what: str = "it") -> Any:
    """What `told` gives, as soon as it is something."""
    deadline = time.monotonic() + 120
    while not (found := told()):
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.02)
    return found
