"""Whole runs on a real cluster of this machine: the same results as locally, and what a cluster and a driver suffer."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kassay import outcome, paths
from kassay.engine import cluster, slurm
from kassay.engine.launcher import CLAIM, JOB
from kassay.engine.slurm import SlurmEngine
from kassay.engine.states import goes_on
from kassay.run import Run
from tests.conftest import Project, Silent
from tests.engine.conftest import Mini
from tests.engine.fake import job, running, start, until

ADD = """
    from dataclasses import dataclass
    from kassay.record import Record, doc
    @dataclass(frozen=True, kw_only=True)
    class Part(Record):
        schema = "kassay.part/1"
        value: int = doc("A part.")
    for name in sorted(stage.inputs):
        stage.append(Part(value=stage.json_input(name)["value"]))
    total = sum(stage.json_input(name)["value"] for name in stage.inputs)
    stage.write_json("out", {"value": total})
    return {"total": total}"""
DIAMOND: dict[str, Any] = {
    "top": {"program": "ok", "params": {"value": 7, "text": "$(id) `id` 'a\\"}},
    "left": {"program": "add", "inputs": {"x": "top.out"}},
    "right": {"program": "add", "inputs": {"x": "top.out", "y": "top.out"}},
    "bottom": {"program": "add", "inputs": {"l": "left.out", "r": "right.out"}},
    "no": {"program": "no", "inputs": {"x": "top.out"}},
    "below": {"program": "ok", "inputs": {"x": "no.out"}},
    "lacks": {"program": "lacks"},
}
WAIT = """
    import subprocess
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with open({pids!r}, "a") as stream: stream.write(f"{{os.getpid()}} {{child.pid}}\\n")
    while not os.path.exists({gate!r}): time.sleep(0.05)
    child.kill(); child.wait()
    stage.write_json("out", {{"value": 1}})
    return {{}}"""
DRIVER = """
import sys
from pathlib import Path
from kassay import paths
paths.ROOT = Path({root!r})
from kassay.engine.slurm import SlurmEngine
from kassay.engine.states import goes_on
from tests.conftest import Project
class OnSlurm(Project):
    def engine(self):
        return SlurmEngine(max_cpus=0, partition="debug", account="", poll_s=0.3)
project = OnSlurm.__new__(OnSlurm); project.root = paths.ROOT; project.results = paths.ROOT / "results"
try:
    sys.exit(project.go({stages!r}, 60.0).code)
except KeyboardInterrupt:
    sys.exit(130)
"""


class OnSlurm(Project):
    """A project whose stages are jobs of the cluster."""

    mini: Mini
    partition = "debug"

    def engine(self) -> SlurmEngine:
        return self.mini.engine(self.partition)

    @property
    def pids(self) -> list[list[int]]:
        """Of every start of the waiting stage: itself and its child."""
        path = self.root / "pids"
        lines = path.read_text().splitlines() if path.exists() else []
        return [[int(word) for word in line.split()] for line in lines]

    def waiting(self) -> dict[str, Any]:
        """A stage that waits for a file."""
        self.program("wait", WAIT.format(pids=str(self.root / "pids"), gate=str(self.root / "gate")))
        return {
            "first": {"program": "ok"},
            "wait": {"program": "wait", "inputs": {"x": "first.out"}},
            "last": {"program": "ok", "inputs": {"x": "wait.out"}},
        }

    def open_gate(self) -> None:
        """Let the waiting stage end."""
        (self.root / "gate").touch()


@pytest.fixture
def on_slurm(mini: Mini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OnSlurm:
    """A fresh project on the cluster; no job of it is left."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    made = OnSlurm(tmp_path)
    made.mini = mini
    return made


def drive(project: OnSlurm, stages: dict[str, Any]) -> subprocess.Popen[bytes]:
    """The run in another process, until its waiting stage runs."""
    here = Path(__file__).resolve().parents[2]
    script = DRIVER.format(root=str(project.root), stages=stages)
    before = len(project.pids)
    driver = subprocess.Popen([sys.executable, "-c", script], cwd=here, env={**os.environ, "PYTHONPATH": str(here)})
    until(lambda: len(project.pids) > before)
    return driver


def killed(project: OnSlurm, stages: dict[str, Any]) -> list[int]:
    """Kill the driver while its waiting stage runs; that goes on."""
    driver = drive(project, stages)
    driver.kill()
    driver.wait(30)
    time.sleep(0.5)
    assert all(map(running, project.pids[-1]))
    return project.pids[-1]


def events(run: Run) -> list[tuple[str, str | None]]:
    """What happened, from the run's own log."""
    lines = (run.directory / paths.EVENTS).read_text().splitlines()
    return [(event["event"], event["stage"]) for event in map(json.loads, lines)]


def job_of(run: Path, stage: str) -> tuple[str, str]:
    """Id and node of a stage's job."""
    told = json.loads((paths.stage_dir(run, stage) / CLAIM).read_text())
    return told["job"], told["node"]


def active() -> list[str]:
    """Jobs that wait or run."""
    return [row.job for row in cluster.queue() if row.state in ("PENDING", "RUNNING", "COMPLETING")]


def content(run: Run) -> dict[str, Any]:
    """What every stage left, without what differs between any two runs."""
    found: dict[str, Any] = {}
    for stage in run.plan.stages:
        directory = paths.stage_dir(run.directory, stage.name)
        told = outcome.load(directory)
        assert told is not None and not directory.is_symlink()
        files = {artifact.file: (directory / artifact.file).read_bytes() for artifact in told.artifacts.values()}
        key = json.loads((directory / paths.REQUEST).read_text())["key"] if files else None
        found[stage.name] = (told.word, told.reason, told.metrics, told.artifacts, files, key)
    return found


def test_results_equal_those_of_the_local_engine(on_slurm: OnSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hush-hush")
    on_slurm.program("add", ADD)
    on_slurm.program("no", '    return stage.rejected("gate says no", at=3)')
    on_slurm.program("lacks", '    raise Unmet("no GPU")')
    went = on_slurm.go(DIAMOND)
    local = Project.__new__(Project)
    local.root, local.results = on_slurm.root, on_slurm.root / "local"
    there = local.go(DIAMOND)
    assert content(went.run) == content(there.run) and went.code == there.code == 3
    assert went.words["bottom"] == "passed" and went.run.outcomes["bottom"].metrics == {"total": 21}
    assert went.words["no"] == "rejected" and went.words["below"] == "blocked" and went.words["lacks"] == "unmet"
    assert (paths.stage_dir(went.run.directory, "bottom") / paths.RECORDS).read_text().count("\n") == 2
    again = on_slurm.go(DIAMOND)
    assert set(again.started) == {"lacks"} and set(again.reused) == set(DIAMOND) - {"lacks", "below"}
    files = [path for path in on_slurm.results.rglob("*") if path.is_file()]
    assert not [path for path in files if b"hush-hush" in path.read_bytes()]
    assert not list(on_slurm.results.rglob(".*.attempt-*")) and active() == []


def test_a_driver_that_was_killed_attaches_to_its_job(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    pids = killed(on_slurm, stages)
    run = on_slurm.open(stages)

    class Opens(Silent):
        def tick(self, states: dict[str, str], waits_for: Any) -> None:
            if states["wait"] == "running" and all(map(running, pids)):
                on_slurm.open_gate()

    assert run.go(Opens()) == 0
    assert [event for event in events(run) if event[1] == "wait"] == [
        ("stage_started", "wait"),
        ("stage_attached", "wait"),
        ("stage_ended", "wait"),
    ]
    assert on_slurm.pids == [pids], "it ran once"
    assert not list(map(running, pids)).count(True) and active() == []
    assert not on_slurm.go(stages).started


def test_a_job_that_ended_without_a_driver_is_taken(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    killed(on_slurm, stages)
    on_slurm.open_gate()
    until(lambda: active() == [])
    went = on_slurm.go(stages)
    assert went.code == 0 and set(went.started) == {"last"} and len(on_slurm.pids) == 1


def test_a_job_whose_code_was_edited_meanwhile_runs_again(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    killed(on_slurm, stages)
    program = on_slurm.root / "stages" / "wait.py"
    program.write_text(program.read_text() + "# edited\n")
    on_slurm.open_gate()
    went = on_slurm.go(stages)
    assert went.code == 0 and went.started["wait"] == "code stages/wait.py changed while it ran"
    assert len(on_slurm.pids) == 2 and len(list(went.run.directory.glob("stages/.wait.stale-*"))) == 1


def test_a_job_that_was_cancelled_without_a_driver_runs_again(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    pids = killed(on_slurm, stages)
    subprocess.run(["scancel", *active()], check=True)
    until(lambda: active() == [])
    assert not [pid for pid in pids if running(pid)]
    on_slurm.open_gate()
    went = on_slurm.go(stages)
    assert went.code == 0 and went.started["wait"] == "was crashed"


def test_a_job_of_another_request_is_ended(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    pids = killed(on_slurm, stages)
    program = on_slurm.root / "stages" / "ok.py"
    program.write_text(program.read_text().replace('"value", 0', '"value", 9'))
    (job,) = active()
    on_slurm.open_gate()
    os.kill(pids[0], signal.SIGSTOP)  # it shall not end by itself
    went = on_slurm.go(stages)
    assert went.code == 0 and went.started["wait"] == "did not finish" and len(on_slurm.pids) == 2
    states = {row.job: row.state for row in cluster.queue()}
    assert states[job] == "CANCELLED" and not [pid for pid in pids if running(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_neither_job_nor_process(on_slurm: OnSlurm, number: signal.Signals) -> None:
    stages = on_slurm.waiting()
    driver = drive(on_slurm, stages)
    driver.send_signal(number)
    assert driver.wait(60) == 130 and active() == []
    assert not [pid for pid in on_slurm.pids[0] if running(pid)]
    on_slurm.open_gate()
    went = on_slurm.go(stages)
    assert went.code == 0 and went.started["wait"] == "did not finish" and "first" in went.reused


def test_a_job_that_is_cancelled_from_outside_is_a_crash_that_says_so(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    run = on_slurm.open(stages)

    class Cancels(Silent):
        def tick(self, states: dict[str, str], waits_for: Any) -> None:
            if states["wait"] == "running" and on_slurm.pids:
                job, _ = job_of(run.directory, "wait")
                assert subprocess.run(["scontrol", "requeue", job], capture_output=True).returncode != 0
                subprocess.run(["scancel", job], check=True)

    assert run.go(Cancels()) == 1
    assert run.outcomes["wait"].word == "crashed" and run.outcomes["last"].word == "blocked"
    assert "Slurm says CANCELLED of job" in run.outcomes["wait"].reason
    assert not [pid for pid in on_slurm.pids[0] if running(pid)]


def test_a_time_limit_of_the_partition_that_never_lets_it_start(on_slurm: OnSlurm) -> None:
    on_slurm.partition = "short"
    went = on_slurm.go({"a": {"program": "ok"}}, timeout_s=600.0)
    assert went.words == {"a": "crashed"} and "Slurm never starts job" in went.reasons["a"]
    assert "PartitionTimeLimit" in went.reasons["a"] and active() == []


def test_a_partition_that_is_none(on_slurm: OnSlurm) -> None:
    on_slurm.partition = "nowhere"
    went = on_slurm.go({"a": {"program": "ok"}})
    assert went.words == {"a": "crashed"} and "invalid partition" in went.reasons["a"].lower()


def test_a_node_that_dies_is_a_crash_and_what_still_runs_there_harms_nothing(on_slurm: OnSlurm) -> None:
    stages = on_slurm.waiting()
    run = on_slurm.open(stages)

    class Kills(Silent):
        killed = False

        def tick(self, states: dict[str, str], waits_for: Any) -> None:
            if on_slurm.pids and not self.killed:
                self.killed = True
                os.kill(on_slurm.mini.pid(f"slurmd.{job_of(run.directory, 'wait')[1]}"), signal.SIGKILL)

    try:
        assert run.go(Kills()) == 1
        assert "Slurm says NODE_FAIL" in run.outcomes["wait"].reason
        (orphan, _), lost = on_slurm.pids[0], job_of(run.directory, "wait")
        assert running(orphan), "the node is gone for Slurm only"
        on_slurm.open_gate()
        os.kill(orphan, signal.SIGSTOP)
        went = on_slurm.go(stages)
        directory = paths.stage_dir(went.run.directory, "wait")
        before = {path: path.read_bytes() for path in directory.iterdir()}
        assert went.code == 0 and job_of(went.run.directory, "wait")[1] != lost[1]
        os.kill(orphan, signal.SIGCONT)
        until(lambda: not running(orphan))
        assert before == {path: path.read_bytes() for path in directory.iterdir()}
        assert not list(directory.parent.glob(".*.attempt-*")), "the orphan's own directory is not made again"
    finally:
        on_slurm.mini.repair()


def test_a_launcher_that_is_killed_leaves_a_crash_even_where_the_queue_has_forgotten_the_job(
    on_slurm: OnSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage says that it passed; its launcher could not say how it ended."""
    listed = cluster.queue
    monkeypatch.setattr(cluster, "queue", lambda: [row for row in listed() if goes_on(row)])
    monkeypatch.setattr(slurm, "LATE_S", 6.0)  # sacct is up to 5 s behind
    on_slurm.program("kills", '    stage.finish("passed", "", {})\n    os.kill(os.getppid(), 9)\n    time.sleep(600)')
    went = on_slurm.go({"a": {"program": "kills"}})
    job = json.loads((paths.stage_dir(went.run.directory, "a") / JOB).read_text())["id"]
    accounting = subprocess.run(["sacct", "-n"], capture_output=True, check=False).returncode == 0
    said = f"Slurm says FAILED of job {job}" if accounting else "Slurm does not know the job any more"
    assert went.words == {"a": "crashed"} and went.reasons["a"] == f"{said}, and it left no exit status"
    assert active() == []


@pytest.mark.parametrize(("count", "seen"), [(2, "0,1"), (1, "0"), (0, "")])
def test_a_job_sees_the_gpus_that_slurm_gave_it_and_none_else(
    mini: Mini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, seen: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    engine, asked = mini.engine(), job(tmp_path, gpus=count, tell=["CUDA_VISIBLE_DEVICES"])
    start(engine, asked)
    until(lambda: bool(engine.poll()))
    assert json.loads((asked.directory / "told.json").read_text()) == {"CUDA_VISIBLE_DEVICES": seen}
