"""The loop with real processes: the five outcomes, what goes on, what is reused and why, and how it survives."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kassay import lock, paths
from kassay.errors import RunError
from tests.conftest import Project

CHAIN: dict[str, Any] = {
    "a": {"program": "ok", "params": {"value": 1}},
    "b": {"program": "ok", "inputs": {"x": "a.out"}, "params": {"value": 2}},
    "c": {"program": "ok", "inputs": {"x": "b.out"}},
    "side": {"program": "ok"},
}


def changed(stages: dict[str, Any], name: str, **params: Any) -> dict[str, Any]:
    """The same stages with other parameters of one."""
    return {**stages, name: {**stages[name], "params": params}}


def test_all_passed_and_then_nothing_to_do(project: Project) -> None:
    first = project.go(CHAIN)
    assert (first.code, set(first.words.values())) == (0, {"passed"})
    again = project.go(CHAIN)
    assert again.code == 0 and not again.started and set(again.reused) == set(CHAIN)
    assert again.run.directory == first.run.directory


@pytest.mark.parametrize(
    ("body", "word", "code", "reason"),
    [
        ('    return stage.rejected("gate says no")', "rejected", 3, "gate says no"),
        ('    raise Unmet("no GPU")', "unmet", 4, "no GPU"),
        ('    raise ValueError("broken")', "crashed", 1, "ValueError: broken"),
        ("    sys.exit(0)", "crashed", 1, "without its outcome"),
        ("    sys.exit(2)", "crashed", 1, "without its outcome"),
        ("    os.kill(os.getpid(), 9)", "crashed", 1, "exit status -9"),
        ('    stage.finish("passed", "", {}); os._exit(1)', "crashed", 1, "exit status 1"),
    ],
)
def test_how_a_stage_ends(project: Project, body: str, word: str, code: int, reason: str) -> None:
    project.program("bad", body)
    went = project.go(
        {"bad": {"program": "bad"}, "below": {"program": "ok", "inputs": {"x": "bad.out"}}, "side": {"program": "ok"}}
    )
    assert went.words == {"bad": word, "below": "blocked", "side": "passed"}
    assert reason in went.reasons["bad"] and went.reasons["below"] == f"`bad` was {word}"
    assert went.code == code
    saved = json.loads((paths.stage_dir(went.run.directory, "bad") / paths.OUTCOME).read_text())
    assert saved["word"] == word


def test_a_changed_parameter_runs_exactly_what_depends_on_it(project: Project) -> None:
    first = project.go(CHAIN)
    went = project.go(changed(CHAIN, "b", value=3))
    assert went.run.directory != first.run.directory, "another plan is another run"
    assert went.started == {"b": "parameter value: 2 -> 3", "c": "input x changed"}
    assert went.reused["a"] == f"from run {first.run.directory.name}"
    assert (went.run.directory / "stages" / "a").is_symlink()


def test_an_unchanged_output_stops_the_wave(project: Project) -> None:
    project.go(CHAIN)
    source = project.root / "stages" / "first.py"
    stages = {**CHAIN, "a": {"program": "first", "params": {"value": 1}}}
    source.write_text((project.root / "stages" / "ok.py").read_text())
    project.go(stages)
    source.write_text(source.read_text() + "# a comment\n")
    assert set(project.go(stages).started) == {"a"}


def test_changed_code_runs_again_and_says_which(project: Project) -> None:
    project.go(CHAIN)
    path = project.root / "stages" / "ok.py"
    path.write_text(path.read_text().replace('"value", 0', '"value", 9'))
    went = project.go(CHAIN)
    assert set(went.started) == set(CHAIN) and went.started["a"] == "code stages/ok.py changed"


def test_a_changed_artifact_is_noticed(project: Project) -> None:
    first = project.go(CHAIN)
    path = paths.stage_dir(first.run.directory, "a") / "out.json"
    path.write_text(path.read_text().replace("1", "7"))
    went = project.go(CHAIN)
    assert went.started == {"a": "artifact out.json is gone or was changed"}


def test_what_another_run_reused_stays_what_it_was(project: Project) -> None:
    project.go(CHAIN)
    other = project.go(changed(CHAIN, "b", value=3))
    reused = paths.stage_dir(other.run.directory, "a") / paths.OUTCOME
    before = reused.read_bytes()
    path = project.root / "stages" / "ok.py"
    path.write_text(path.read_text().replace('"value", 0', '"value", 9'))
    assert "a" in project.go(CHAIN).started
    assert reused.read_bytes() == before


def test_unmet_and_crashed_are_asked_again(project: Project, tmp_path: Path) -> None:
    project.program(
        "maybe", f'    if not os.path.exists({str(tmp_path / "gpu")!r}): raise Unmet("no GPU")\n{" " * 4}return {{}}'
    )
    stages = {"maybe": {"program": "maybe"}}
    assert project.go(stages).code == 4
    (tmp_path / "gpu").touch()
    went = project.go(stages)
    assert went.code == 0 and went.started == {"maybe": "was unmet"}


def test_after_all_runs_whatever_happened(project: Project) -> None:
    project.program("bad", '    raise ValueError("x")')
    stages = {"bad": {"program": "bad"}, "last": {"program": "ok", "after": "all"}}
    went = project.go(stages)
    assert went.words == {"bad": "crashed", "last": "passed"} and went.code == 1


def test_a_stage_past_its_time_out_is_ended(project: Project) -> None:
    project.program("slow", "    time.sleep(60)")
    went = project.go({"slow": {"program": "slow"}}, timeout_s=1.0)
    assert went.words["slow"] == "crashed" and "time-out" in went.reasons["slow"]


def test_a_read_only_results_folder_is_said_before_anything_runs(project: Project, monkeypatch: Any) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(RunError, match="cannot be written: Permission denied"):
        project.open(CHAIN)


def test_a_second_driver_is_told_who_holds_the_run(project: Project) -> None:
    run = project.open(CHAIN)
    with lock.owned(run.directory), pytest.raises(RunError, match=f'"pid": {os.getpid()}'), lock.owned(run.directory):
        pass


def test_a_torn_event_is_set_aside(project: Project) -> None:
    first = project.go(CHAIN)
    events = first.run.directory / paths.EVENTS
    events.write_bytes(events.read_bytes() + b'{"schema": "kass')
    assert project.go(CHAIN).code == 0
    assert (first.run.directory / "events.jsonl.torn").read_bytes() == b'{"schema": "kass\n'
    assert all(json.loads(line) for line in events.read_text().splitlines())


DRIVER = """
import sys
from pathlib import Path
from kassay import paths
paths.ROOT = Path({root!r}); paths.STAGES = paths.ROOT / "stages"
from tests.conftest import Project
project = Project.__new__(Project); project.root = paths.ROOT; project.results = paths.ROOT / "results"
try:
    sys.exit(project.go({stages!r}).code)
except KeyboardInterrupt:
    sys.exit(130)
"""


def drive(project: Project, stages: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The same run in another process."""
    here = Path(__file__).resolve().parent.parent
    script = DRIVER.format(root=str(project.root), stages=stages)
    return subprocess.Popen([sys.executable, "-c", script], cwd=here, env={**os.environ, "PYTHONPATH": str(here)})


def wait_for(path: Path) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.02)


def slow_stages(project: Project) -> dict[str, Any]:
    """A stage that starts a grandchild and waits until it is allowed to end."""
    pid, gate = project.root / "pid", project.root / "gate"
    body = (
        '    import subprocess\n    child = subprocess.Popen(["sleep", "600"])\n'
        f'    open({str(pid)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")\n'
        f"    while not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
        '    child.kill(); child.wait()\n    stage.write_json("out", {})\n    return {}'
    )
    project.program("slow", body)
    return {"first": {"program": "ok"}, "slow": {"program": "slow", "inputs": {"x": "first.out"}}}


def alive(pids: list[int]) -> list[int]:
    """Those that still run; a zombie does not."""
    return [p for p in pids if psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_stages_and_leaves_a_resumable_run(project: Project, number: int) -> None:
    stages = slow_stages(project)
    driver = drive(project, stages)
    wait_for(project.root / "pid")
    time.sleep(0.2)
    pids = [int(word) for word in (project.root / "pid").read_text().split()]
    driver.send_signal(number)
    assert driver.wait(30) == 130
    assert alive(pids) == []
    (project.root / "gate").touch()
    went = project.go(stages)
    assert went.code == 0 and "first" in went.reused and went.started == {"slow": "did not finish"}


def test_kill_9_of_the_driver_leaves_no_stage_and_a_resumable_run(project: Project) -> None:
    stages = slow_stages(project)
    driver = drive(project, stages)
    wait_for(project.root / "pid")
    time.sleep(0.2)
    stage_pid = int((project.root / "pid").read_text().split()[0])
    grandchild = int((project.root / "pid").read_text().split()[1])
    driver.kill()
    driver.wait(30)
    deadline = time.monotonic() + 5
    while alive([stage_pid]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive([stage_pid]) == []
    if alive([grandchild]):
        os.kill(
            grandchild, signal.SIGKILL
        )  # the orchestrator's own end is not yet every grandchild's (docs/architecture.md)
    (project.root / "gate").touch()
    went = project.go(stages)
    assert went.code == 0 and went.started == {"slow": "did not finish"} and "first" in went.reused
