"""A run directory, live or ended, as one view: the run's state, and of each stage its state and what it is about.

Only files are read: plan.json, events.jsonl, the lock's owner file and the stage directories. Nothing is locked or
written. A run is `lost` if its last session has neither ended nor a live driver.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import outcome, paths
from kassay.engine.attempt import held_attempt
from kassay.errors import EXIT_CRASHED, RunError
from kassay.events import Event
from kassay.report.words import counted, one_line
from kassay.watch import told
from kassay.watch.driver import Driver, driver_of
from kassay.watch.session import Session

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended
NAMED = 3  # stages that a waiting one is said to wait for; the others are counted
UNENDED = ("waiting", "running", "lost")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One stage as it is shown; empty texts where there is nothing to say."""

    stage: str
    state: str  # waiting, running, lost, reused, kept, or an outcome's word
    seconds: float | None  # so far, or how long it took
    progress: str
    gpus: str
    why: str  # what it waits for, why it was started, how it ended, in what a kept result is stale


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a plan says of one stage."""

    needs: tuple[str, ...]
    after_all: bool
    asks: str  # cores, memory and GPUs, in words


class View:
    """A run directory; `refresh` takes in what happened since."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir.resolve()  # `latest` may lead to another run while we look
        plan = told.read_object(self.run_dir / paths.PLAN)
        try:
            self.profile, self.hash = str(plan["profile"]), str(plan["hash"])
            self.planned = {str(body["name"]): planned(body) for body in plan["stages"]}
        except (KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{paths.shown(run_dir / paths.PLAN)}: not a readable plan: {error!r}") from None
        self.session = Session(self.run_dir)
        self.driver: Driver | None = None

    def refresh(self) -> list[Event]:
        """Read what was added; the new events. A driver that is gone may have ended the run just before it went."""
        events = self.session.read()
        self.driver = driver_of(self.run_dir)
        return events + self.session.read() if self.state == "lost" else events

    @property
    def state(self) -> str:
        """Of the run: starting, running, ended, interrupted or lost."""
        lives = self.driver is not None and self.driver.lives
        if self.session.over:
            again = lives and self.driver is not None and self.driver.since > self.session.over_at
            return "starting" if again else self.session.over
        if not lives:
            return "lost"
        return "starting" if self.session.started_at is None else "running"

    @property
    def live(self) -> bool:
        """Whether something may still happen."""
        return self.state in ("starting", "running")

    @property
    def exit_code(self) -> int:
        """Exit code of a session that is over, by the outcomes of the stages that it came to; 1 for a lost one."""
        if self.state == "interrupted":
            return INTERRUPTED
        if self.state != "ended":
            return EXIT_CRASHED
        words = {self.word(name) for name in self.session.steps}
        return outcome.exit_code([word for word in outcome.WORDS if word in words])

    def word(self, name: str) -> str:
        """The outcome's word of a stage that has ended; crashed if its outcome is gone."""
        state = self.session.steps[name].state
        if state in outcome.WORDS:
            return state
        return str(told.read_object(self.directory(name) / paths.OUTCOME).get("word", "crashed"))

    def directory(self, name: str) -> Path:
        """The directory of a stage."""
        return paths.stage_dir(self.run_dir, name)

    def states(self) -> dict[str, str]:
        """A word for each stage of the plan."""
        return {name: self.stage_state(name) for name in self.planned}

    def stage_state(self, name: str) -> str:
        """The state of one stage; one that the last session did not come to keeps the outcome that it had."""
        step = self.session.steps.get(name)
        if step is None:
            kept = None if self.live and self.asked(name) else self.outcome(name)
            return kept.word if kept else "waiting"
        if step.state == "running" and not self.live:
            return "lost" if self.state == "lost" else "waiting"
        return step.state

    def row(self, name: str) -> Row:
        """All that can be told of one stage."""
        state = self.stage_state(name)
        directory = self.directory(name)
        running = state == "running"
        ended = None if state in UNENDED else self.outcome(name)
        return Row(
            stage=name,
            state=state,
            seconds=self.elapsed(name) if running else (ended.duration_s if ended else None),
            progress=told.progress(directory) if running else "",
            gpus=told.gpus(directory) if running or ended else "",
            why=one_line(self.why(name, state, ended.reason if ended else "")),
        )

    def outcome(self, name: str) -> outcome.Outcome | None:
        """What is written of a stage's end, if it can be read."""
        try:
            return outcome.load(self.directory(name))
        except RunError:
            return None

    def asked(self, name: str) -> bool:
        """Whether the driver was asked for the stage (STAGE=)."""
        return self.driver is None or not self.driver.only or name in self.driver.only

    def elapsed(self, name: str) -> float | None:
        """Seconds since a running stage was asked to run, whichever driver asked it."""
        try:
            begun = (self.directory(name) / paths.REQUEST).stat().st_mtime
        except OSError:
            return None
        return max(0.0, datetime.datetime.now(datetime.UTC).timestamp() - begun)

    def why(self, name: str, state: str, reason: str) -> str:
        """What is said of a stage in this state."""
        step = self.session.steps.get(name)
        if state == "waiting":
            return self.waits(name) if self.live and self.asked(name) else self.not_run(name)
        if state == "lost":
            held = held_attempt(self.directory(name)) is not None
            return "its driver is gone" + ("; its job may go on, the next `make` finds it" if held else "")
        if step is None:
            return reason or "of an earlier session"
        return step.why if state in ("running", "reused", "kept") else reason

    def waits(self, name: str) -> str:
        """What a waiting stage waits for; what is free only the driver knows."""
        step = self.session.steps.get(name)
        again = f"to be started again: {step.why}" if step is not None and step.why else ""
        plan = self.planned[name]
        needed: Iterable[str] = plan.needs
        if plan.after_all:
            needed = [other for other, body in self.planned.items() if not body.after_all]
        unended = [other for other in needed if self.stage_state(other) in UNENDED]
        return again or waits_for(unended) or f"its turn: it asks for {plan.asks}"

    def not_run(self, name: str) -> str:
        """Why a stage of a session that is over has no outcome."""
        if name in self.session.steps:
            return "it was ended with the run; `make` runs it again"
        return "not asked for" if self.state == "ended" or self.live else "not reached; `make` resumes"


def planned(body: dict[str, Any]) -> Planned:
    """What a stage of plan.json needs and asks for."""
    inputs = [reference for reference in body["inputs"].values() if not reference.startswith("tree:")]
    asks = [counted(body["cpus"], "core"), f"{body['memory_gib']:g} GiB"]
    asks += [counted(body["gpus"], "GPU")] if body.get("gpus") else []
    return Planned(
        needs=tuple(sorted({reference.rpartition(".")[0] for reference in inputs})),
        after_all=bool(body["after_all"]),
        asks=", ".join(asks) + (", alone" if body.get("exclusive") else ""),
    )


def waits_for(names: list[str]) -> str:
    """`waits for a, b, c and 5 more`; empty if there is nothing to wait for."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"waits for {', '.join(names[:NAMED])}{more}" if names else ""
