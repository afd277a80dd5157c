"""The loop against an engine that starts no process: order, what runs side by side, and what ends it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kassay import outcome, paths
from kassay.engine import Ended, Grant, Job, lacking_beside
from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET
from kassay.outcome import Artifact, Outcome
from kassay.run import Run
from tests.conftest import Project, Silent, setup_of
from tests.engine.fake import HoldsNothing

EXIT = {"passed": EXIT_PASSED, "rejected": EXIT_REJECTED, "unmet": EXIT_UNMET, "crashed": 1}


class FakeEngine(HoldsNothing):
    """Counts resources as the local engine does; a job ends at the next poll with the word that the test says."""

    token = "fake"

    def __init__(self, cpus: int, words: dict[str, str], lasting: dict[str, int] | None = None) -> None:
        self.cpus = cpus
        self.words = words
        self.left = lasting or {}  # polls that a job still takes
        self.log: list[tuple[str, ...]] = []  # names that run, after each start
        self.asked = 0  # how often a grant was asked for
        self.cancelled: list[str] = []
        self.on_poll: Callable[[], None] = lambda: None
        self.running: dict[str, tuple[Job, Grant]] = {}

    def grant(self, job: Job) -> Grant | None:
        self.asked += 1
        if self.waits_for(job):
            return None
        return Grant(cpus=job.cpus, memory_gib=job.memory_gib, gpus=0, exclusive=job.exclusive, gpu_ids=())

    def waits_for(self, job: Job) -> str:
        return lacking_beside(job, [grant for _, grant in self.running.values()], self.cpus, 4)

    def start(self, job: Job, grant: Grant) -> None:
        self.running[job.stage] = job, grant
        self.log.append(tuple(self.running))

    def poll(self) -> list[Ended]:
        self.on_poll()
        assert self.running, "polled with nothing to wait for"
        ended = []
        for name, (job, _) in list(self.running.items()):
            self.left[name] = self.left.get(name, 1) - 1
            if self.left[name] > 0:
                continue
            word: Any = self.words.get(name, "passed")
            artifacts = {"out": Artifact(file="out.json", sha256="0", bytes=0)} if word == "passed" else {}
            request = json.loads((job.directory / paths.REQUEST).read_bytes())
            Outcome(
                stage=name,
                run=job.directory.parents[1].name,
                word=word,
                reason="" if word == "passed" else "said",
                metrics={},
                artifacts=artifacts,
                started_at="2026-01-01T00:00:00.000Z",
                duration_s=0.0,
                attempt=request["attempt"],
                grant=request["grant"],
            ).save(job.directory)
            del self.running[name]
            ended.append(Ended(stage=name, exit_code=EXIT[word], timed_out=False, fault="", peak_bytes=None))
        return ended

    def cancel(self) -> None:
        self.cancelled += self.running
        self.running.clear()


def run_of(project: Project, stages: dict[str, Any], engine: FakeEngine, **chosen: set[str]) -> Run:
    """A run on this engine."""
    return Run(project.plan(stages), setup_of(project.results, "python", 1, **chosen), engine)


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


def test_a_round_over_equal_stages_asks_once(project: Project) -> None:
    engine = FakeEngine(2, {})
    many = {f"s{i}": stage() for i in range(200)}
    assert run_of(project, many, engine).go(Silent()) == 0
    assert [names[0] for names in engine.log[:2]] == ["s0", "s0"] and len(engine.log) == 200
    assert engine.asked < 2 * 200


def test_a_crash_is_tried_again_as_often_as_the_workflow_says_and_nothing_else_is(project: Project) -> None:
    for word, tries in (("crashed", 3), ("rejected", 1), ("unmet", 1)):
        engine = FakeEngine(2, {"a": word})
        watcher = Silent()
        run = run_of(project, {"a": stage(retries=2, params={"of": word})}, engine)
        assert run.go(watcher) == EXIT[word]
        assert len(engine.log) == tries and run.outcomes["a"].attempt == tries
        told = [event.why for event in watcher.events if event.event == "stage_retried"]
        assert told == [f"attempt {n} of 3 said" for n in range(1, tries)]
        aside = list((run.directory / "stages").glob(".a.stale-*"))
        assert len(aside) == tries - 1
        attempts = sorted(json.loads((path / paths.REQUEST).read_bytes())["attempt"] for path in aside)
        assert attempts == list(range(1, tries))


def test_only_runs_what_is_named_and_what_it_needs(project: Project) -> None:
    engine = FakeEngine(2, {})
    run = run_of(project, DIAMOND, engine, only={"left"})
    assert run.go(Silent()) == 0
    assert list(run.outcomes) == ["top", "left"]
    again = FakeEngine(2, {})
    assert run_of(project, DIAMOND, again, only={"last"}).directory == run.directory


def test_a_grant_is_in_the_request_and_in_the_outcome(project: Project) -> None:
    run = run_of(project, {"a": stage(2)}, FakeEngine(2, {}))
    run.go(Silent())
    asked = json.loads((paths.stage_dir(run.directory, "a") / paths.REQUEST).read_bytes())
    given = {"cpus": 2, "memory_gib": 0.1, "gpus": 0, "exclusive": False, "gpu_ids": []}
    assert asked["grant"] == given == run.outcomes["a"].grant


def test_what_a_stage_waits_for_is_told(project: Project) -> None:
    engine = FakeEngine(1, {}, {"a": 3})
    run = run_of(project, {"a": stage(), "b": stage(), "c": stage(inputs={"x": "a.out", "y": "b.out"})}, engine)
    said: list[tuple[str, str]] = []

    class Asking(Silent):
        def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
            if states["a"] == "running":
                said.append((waits_for("b"), waits_for("c")))

    assert run.go(Asking()) == 0
    assert set(said) == {("0 of 1 cores are free", "waits for a, b")}
