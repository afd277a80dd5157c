"""The loop against an engine that starts no process: order, what runs side by side, and what ends it."""

from collections.abc import Callable
from typing import Any

import pytest

from kassay import outcome, paths
from kassay.engine import Ended, Job
from kassay.engine.local import LocalEngine
from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET
from kassay.outcome import Artifact, Outcome
from kassay.run import Run
from kassay.rundir import Setup
from tests.conftest import Project, Silent

EXIT = {"passed": EXIT_PASSED, "rejected": EXIT_REJECTED, "unmet": EXIT_UNMET, "crashed": 1}


class FakeEngine(LocalEngine):
    """Counts resources as the local engine does; a job ends at the next poll with the word that the test says."""

    def __init__(self, cpus: int, words: dict[str, str], lasting: dict[str, int] | None = None) -> None:
        super().__init__(cpus=cpus, memory_gib=4)
        self.words = words
        self.left = lasting or {}  # polls that a job still takes
        self.log: list[tuple[str, ...]] = []  # names that run, after each start
        self.cancelled: list[str] = []
        self.on_poll: Callable[[], None] = lambda: None

    def start(self, job: Job) -> None:
        self._running[job.stage] = (job, None, 0.0)  # type: ignore[assignment]
        self.log.append(tuple(self._running))

    def poll(self) -> list[Ended]:
        self.on_poll()
        assert self._running, "polled with nothing to wait for"
        ended = []
        for name, (job, _, _) in list(self._running.items()):
            self.left[name] = self.left.get(name, 1) - 1
            if self.left[name] > 0:
                continue
            word: Any = self.words.get(name, "passed")
            artifacts = {"out": Artifact(file="out.json", sha256="0", bytes=0)} if word == "passed" else {}
            Outcome(
                stage=name,
                run=job.directory.parents[1].name,
                word=word,
                reason="" if word == "passed" else "said",
                metrics={},
                artifacts=artifacts,
                started_at="2026-01-01T00:00:00.000Z",
                duration_s=0.0,
            ).save(job.directory)
            del self._running[name]
            ended.append(Ended(stage=name, exit_code=EXIT[word], timed_out=False, fault=""))
        return ended

    def cancel(self) -> None:
        self.cancelled += self._running
        self._running.clear()


def run_of(project: Project, stages: dict[str, Any], engine: FakeEngine) -> Run:
    """A run on this engine."""
    setup = Setup(results=project.results, settings={}, overrides=[], interpreter="python", timeout_s=1)
    return Run(project.plan(stages), setup, engine)


def stage(cpus: int = 1, memory_gib: float = 0.1, exclusive: bool = False, **body: Any) -> dict[str, Any]:
    """An entry of a workflow."""
    return {"program": "ok", "resources": {"cpus": cpus, "memory_gib": memory_gib, "exclusive": exclusive}, **body}


DIAMOND = {
    "top": stage(),
    "left": stage(inputs={"x": "top.out"}),
    "right": stage(inputs={"x": "top.out"}),
    "bottom": stage(inputs={"l": "left.out", "r": "right.out"}),
    "last": stage(after="all"),
}


def test_a_stage_starts_when_all_that_it_needs_has_ended(project: Project) -> None:
    engine = FakeEngine(2, {}, {"left": 3})
    assert run_of(project, DIAMOND, engine).go(Silent()) == 0
    assert engine.log == [("top",), ("left",), ("left", "right"), ("bottom",), ("last",)]


@pytest.mark.parametrize(
    ("entries", "most"),
    [
        ({"a": stage(), "b": stage(), "c": stage()}, 2),
        ({"a": stage(2), "b": stage(), "c": stage()}, 2),
        ({"a": stage(memory_gib=3), "b": stage(memory_gib=3)}, 1),
        ({"a": stage(exclusive=True), "b": stage(), "c": stage(exclusive=True)}, 1),
        ({"a": stage(64, 999.0), "b": stage(64, 999.0)}, 1),
    ],
)
def test_stages_run_side_by_side_while_they_fit(project: Project, entries: dict[str, Any], most: int) -> None:
    engine = FakeEngine(2, {})
    assert run_of(project, entries, engine).go(Silent()) == 0
    assert max(map(len, engine.log)) == most and len(engine.log) == len(entries)
    for together in engine.log:
        assert len(together) == 1 or not any(entries[name]["resources"]["exclusive"] for name in together)


@pytest.mark.parametrize(
    ("words", "code", "ends"),
    [
        ({"left": "rejected"}, 3, {"right": "passed", "bottom": "blocked", "last": "passed"}),
        ({"left": "unmet"}, 4, {"right": "passed", "bottom": "blocked", "last": "passed"}),
        ({"left": "crashed", "right": "rejected"}, 1, {"bottom": "blocked", "last": "passed"}),
        ({"left": "unmet", "right": "rejected"}, 3, {"bottom": "blocked", "last": "passed"}),
        ({"top": "unmet"}, 4, {"left": "blocked", "right": "blocked", "bottom": "blocked", "last": "passed"}),
        ({"last": "crashed"}, 1, {"bottom": "passed"}),
    ],
)
def test_branches_go_on_and_the_worst_decides(
    project: Project, words: dict[str, str], code: int, ends: dict[str, str]
) -> None:
    run = run_of(project, DIAMOND, FakeEngine(2, words))
    assert run.go(Silent()) == code
    assert {name: run.outcomes[name].word for name in ends} == ends
    for name in DIAMOND:
        assert outcome.load(paths.stage_dir(run.directory, name)) == run.outcomes[name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_whatever_ends_the_loop_cancels_what_runs(project: Project, error: type[BaseException]) -> None:
    engine = FakeEngine(2, {}, {"left": 9, "right": 9})

    def fail() -> None:
        if len(engine.log) == 3:
            raise error

    engine.on_poll = fail
    with pytest.raises(error):
        run_of(project, DIAMOND, engine).go(Silent())
    assert engine.cancelled == ["left", "right"]


def test_every_step_is_an_event(project: Project) -> None:
    watcher = Silent()
    run_of(project, DIAMOND, FakeEngine(2, {"left": "rejected"})).go(watcher)
    told = [(event.event, event.stage) for event in watcher.events]
    assert (told[0], told[-1]) == (("run_started", None), ("run_ended", None))
    assert {name for kind, name in told if kind == "stage_ended"} == set(DIAMOND)
    assert {name for kind, name in told if kind == "stage_started"} == set(DIAMOND) - {"bottom"}
    whys = {event.stage: event.why for event in watcher.events if event.event == "stage_ended"}
    assert whys["bottom"] == "blocked: `left` was rejected" and whys["left"] == "rejected: said"
