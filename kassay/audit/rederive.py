"""A stage that judges, run again: another process, another folder, the files of the run directory and nothing else.

The program is the one that this tree holds; where its code, or a file that it loaded, is another than the run's receipt
names, that is said, for a difference may then be the code's.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kassay import digest, outcome, paths
from kassay.audit import Audited, Difference, compare
from kassay.audit.files import Run, different
from kassay.engine import environment_of, inherited_environment
from kassay.entry import Stage
from kassay.errors import RecordError, RunError
from kassay.outcome import EXIT_OF, Outcome
from kassay.record import read_lines

TIMEOUT_S = 3600.0
MOST_CODE = 3  # files of changed code that are named


def stage(run: Run, planned: Stage) -> tuple[Audited, list[Difference]]:
    """One stage derived again and compared."""
    recorded = run.outcomes[planned.name]
    assert recorded is not None, f"{planned.name} has no outcome: this is a bug"
    inputs, found = inputs_of(run, planned)
    told = compare.Compared(stage=planned.name, differences=found)
    if not found:
        with tempfile.TemporaryDirectory(prefix="kassay-audit-") as scratch:
            directory = Path(scratch) / "stages" / planned.name
            directory.mkdir(parents=True)
            request = {**run.request(planned.name), "params": planned.params, "inputs": inputs, "run_dir": scratch}
            request |= {"roots": [str(tree) for tree in paths.trees()], "stage": planned.name}
            (directory / paths.REQUEST).write_text(json.dumps(request), encoding="utf-8")
            judged(told, run, planned, directory, recorded)
    note = code_note(run.folder(planned.name))
    audited = Audited(stage=planned.name, how="rederived", values=told.values, loose=told.loose, note=note)
    return audited, told.differences


def inputs_of(run: Run, planned: Stage) -> tuple[dict[str, dict[str, str]], list[Difference]]:
    """The inputs as they lie in the run directory; data of a tree must be what the request names."""
    asked = run.request(planned.name).get("inputs", {})
    inputs: dict[str, dict[str, str]] = {}
    found = []
    for name, reference in planned.inputs.items():
        stated = asked.get(name, {}).get("sha256")
        path = run.of_tree(reference, stated) if reference.startswith("tree:") else run.artifact(reference)
        now = digest.of_path(path) if path is not None and path.exists() else "no such file"
        if path is None or now != stated:
            found.append(different(planned.name, f"input {name}", "sha256", stated, now))
        else:
            inputs[name] = {"path": str(path), "sha256": now}
    return inputs, found


def judged(told: compare.Compared, run: Run, planned: Stage, directory: Path, recorded: Outcome) -> None:
    """Run the program and compare what it leaves."""
    argv = [sys.executable, str(paths.program(planned.program)), str(directory)]
    environment = {**inherited_environment(), **environment_of(Path(sys.executable)), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"PATH": os.environ.get("PATH", os.defpath)}
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
    )
    derived = outcome.load(directory)
    if derived is None or done.returncode not in EXIT_OF.values():
        reason = derived.reason if derived else f"exit status {done.returncode}"
        told.add(paths.OUTCOME, "word", recorded.word, f"crashed: {reason}")
        return
    try:
        lines = [lines_of(folder) for folder in (run.folder(planned.name), directory)]
    except (RecordError, RunError) as error:
        told.add(paths.RECORDS, "content", str(error).rpartition("/")[2], "records")
        return
    made = compare.records(planned.name, *lines)
    told.values, told.loose = told.values + made.values, told.loose + made.loose
    told.differences += made.differences
    compare.fields(told, paths.OUTCOME, ended(recorded), ended(derived))
    for name in sorted({*recorded.artifacts, *derived.artifacts} - {"records"}):
        was, now = (
            content(where, of, name) for where, of in ((run.folder(planned.name), recorded), (directory, derived))
        )
        compare.fields(told, f"artifact {name}", {"content": was}, {"content": now})


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The records of a stage directory; none where there is no file."""
    path = folder / paths.RECORDS
    return list(read_lines(path)) if path.exists() else []


def ended(found: Outcome) -> dict[str, Any]:
    """What of an outcome follows from the inputs."""
    return {"word": found.word, "reason": found.reason, "metrics": found.metrics, "artifacts": sorted(found.artifacts)}


def content(folder: Path, found: Outcome, name: str) -> Any:
    """An artifact as a value."""
    if name not in found.artifacts:
        return "absent"
    path = folder / found.artifacts[name].file
    if not path.is_file():
        return "no such file"
    return json.loads(path.read_bytes()) if path.suffix == ".json" else digest.of_file(path)


def code_note(folder: Path) -> str:
    """Which code is another one than the run loaded; empty for none."""
    try:
        code = json.loads((folder / paths.RECEIPT).read_bytes())["code"]
    except (OSError, ValueError, KeyError, TypeError):
        return "no receipt says which code ran"
    changed = [name for name, sha256 in sorted(code.items()) if current(name) != sha256]
    if not changed:
        return ""
    more = f" and {len(changed) - MOST_CODE} more" if len(changed) > MOST_CODE else ""
    return f"code is another than the run's: {', '.join(changed[:MOST_CODE])}{more}"


def current(name: str) -> str:
    """The digest of a file of the trees as it is now; empty where it is gone."""
    return next((digest.of_file(path) for tree in paths.trees() if (path := tree / name).is_file()), "")
