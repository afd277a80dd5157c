"""The loop and what an earlier driver left: attached to if it was asked the same, ended if not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.engine import Ended, Grant, Job
from kassay.run import Run
from tests.conftest import Project, Silent
from tests.test_loop import FakeEngine, run_of, stage

CHAIN: dict[str, Any] = {"top": stage(), "long": stage(inputs={"x": "top.out"}), "end": stage(inputs={"x": "long.out"})}


class Holding(FakeEngine):
    """Holds what a driver that died has left; it is told of as any other job."""

    def __init__(self, words: dict[str, str], held: set[str], startable: bool) -> None:
        super().__init__(2, words)
        self.held = held
        self.startable = startable
        self.attached: list[str] = []
        self.released: list[str] = []
        self.started: list[str] = []

    def start(self, job: Job, grant: Grant) -> None:
        super().start(job, grant)
        self.started.append(job.stage)

    def holds(self, directory: Path) -> bool:
        return directory.name in self.held

    def attach(self, job: Job) -> bool:
        if self.startable:
            self.held.discard(job.stage)
            granted = self.grant(job)
            assert granted is not None
            self.running[job.stage] = job, granted
            self.attached.append(job.stage)
        return self.startable

    def release(self, directory: Path) -> None:
        if directory.name in self.held:
            self.held.discard(directory.name)
            self.released.append(directory.name)


def died_during(project: Project, name: str) -> Run:
    """A run whose driver dies while that stage runs."""
    engine = FakeEngine(2, {}, {name: 9})

    def die() -> None:
        if name in engine.log[-1]:
            raise SystemExit

    engine.on_poll = die
    run = run_of(project, CHAIN, engine)
    with pytest.raises(SystemExit):
        run.go(Silent())
    return run


def told(run: Run, name: str) -> list[str]:
    """The events of a stage."""
    lines = (run.directory / paths.EVENTS).read_text().splitlines()
    return [event["event"] for event in map(json.loads, lines) if event["stage"] == name]


@pytest.mark.parametrize("shell", ["the same", "another"])
@pytest.mark.parametrize(("word", "below", "code"), [("passed", "passed", 0), ("rejected", "blocked", 3)])
def test_a_job_of_the_same_request_is_waited_for_and_its_result_taken(
    project: Project, monkeypatch: pytest.MonkeyPatch, shell: str, word: str, below: str, code: int
) -> None:
    died_during(project, "long")
    if shell == "another":
        monkeypatch.setenv("PATH", "/somewhere/else:/usr/bin:/bin")
    engine = Holding({"long": word}, {"long"}, startable=True)
    run = run_of(project, CHAIN, engine)
    own = paths.stage_dir(run.directory, "long")
    monkeypatch.setattr("kassay.identity.explain", lambda where, wanted: None if where == own else "never ran")
    assert run.go(Silent()) == code and engine.attached == ["long"] and "long" not in engine.started
    assert (run.outcomes["long"].word, run.outcomes["end"].word) == (word, below)
    assert told(run, "long") == ["stage_started", "stage_attached", "stage_ended"]


@pytest.mark.parametrize("startable", [True, False])
def test_a_job_of_another_request_or_none_at_all_is_released_and_started_anew(
    project: Project, startable: bool
) -> None:
    run = died_during(project, "long")
    if startable:
        path = paths.stage_dir(run.directory, "long") / paths.REQUEST
        body = json.loads(path.read_text())
        path.write_text(json.dumps({**body, "params": {"value": 1}}))
    engine = Holding({}, {"long"}, startable)
    run = run_of(project, CHAIN, engine)
    assert run.go(Silent()) == 0
    assert (engine.attached, engine.released) == ([], ["long"]) and engine.started == ["top", "long", "end"]


@pytest.mark.parametrize("torn", ["", "{", "[]", "null"])
def test_a_request_that_cannot_be_read_is_another(project: Project, torn: str) -> None:
    run = died_during(project, "long")
    (paths.stage_dir(run.directory, "long") / paths.REQUEST).write_text(torn)
    engine = Holding({}, {"long"}, startable=True)
    assert run_of(project, CHAIN, engine).go(Silent()) == 0
    assert (engine.attached, engine.released) == ([], ["long"])


def test_a_stage_that_is_blocked_now_ends_what_it_left(project: Project) -> None:
    died_during(project, "long")
    engine = Holding({"top": "unmet"}, {"long"}, startable=True)
    run = run_of(project, CHAIN, engine)
    assert run.go(Silent()) == 4
    assert (engine.attached, engine.released, run.outcomes["long"].word) == ([], ["long"], "blocked")


def test_a_job_that_crashed_is_started_once_more_and_then_told(project: Project) -> None:
    died_during(project, "long")
    engine = Holding({"long": "crashed"}, {"long"}, startable=True)
    run = run_of(project, CHAIN, engine)
    assert run.go(Silent()) == 1 and engine.started.count("long") == 1
    assert told(run, "long") == ["stage_started", "stage_attached", "stage_started", "stage_ended"]
    assert len(list((run.directory / "stages").glob(".long.stale-*"))) == 1, "the crash of the earlier job is kept"


@pytest.mark.parametrize("word", ["passed", "rejected"])
def test_a_fault_that_the_engine_tells_of_outweighs_outcome_and_exit_code(project: Project, word: str) -> None:
    class Faulting(FakeEngine):
        def start(self, job: Job, grant: Grant) -> None:
            super().start(job, grant)
            (job.directory / paths.STDERR).touch()

        def poll(self) -> list[Ended]:
            return [replace(ended, fault="Slurm says FAILED of job 7") for ended in super().poll()]

    run = run_of(project, {"top": stage()}, Faulting(2, {"top": word}))
    assert run.go(Silent()) == 1 and run.outcomes["top"].word == "crashed"
    assert run.outcomes["top"].reason == "Slurm says FAILED of job 7"
