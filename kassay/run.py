"""The loop: start what is ready while resources allow, wait for one, record its outcome, go on.

Independent branches continue after a rejection or a crash. A stage whose key is equal is reused, from this run or
from an earlier one, which is then named. A run directory has one owner. What ended a stage is written before the next
starts.
"""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kassay import digest, ending, identity, paths, protocol
from kassay.engine import Ended, Engine
from kassay.entry import Stage
from kassay.events import Event
from kassay.identity import Input, Wanted
from kassay.lock import Owner
from kassay.outcome import Outcome, Word, exit_code
from kassay.plan import Plan
from kassay.record import Writer, set_aside_torn_tail
from kassay.request import Prepared, Running, job_of, request_of
from kassay.reuse import Reuse, Taken
from kassay.rundir import Setup, link_to, make_place, open_run, same_request, short_of_disk
from kassay.schedule import Schedule, closure
from kassay.stage import utc_now
from kassay.waiting import Waiting

ENDING = (signal.SIGTERM, signal.SIGHUP)
PAUSE_S = 0.2  # while nothing of ours runs and what is ready waits for another run on this host


class Watcher(Protocol):
    """Shows a run while it goes on; it can change nothing."""

    def event(self, event: Event) -> None:
        """Something happened."""

    def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
        """The loop went round; `states` has a word for every stage, `waits_for` tells of one that waits."""


class Run:
    """One run directory and the loop over its stages."""

    def __init__(self, plan: Plan, setup: Setup, engine: Engine) -> None:
        self.plan = plan
        self.setup = setup
        self.engine = engine
        self.protocol = protocol.state_of(plan)
        self.directory = open_run(plan, setup)
        self.stages = closure(plan.stages, setup.only) if setup.only else list(plan.stages)
        self.schedule = Schedule(self.stages)
        self.outcomes: dict[str, Outcome] = {}
        self.states = {stage.name: "waiting" for stage in self.stages}
        self.running: dict[str, Running] = {}
        self.waiting: Waiting[Prepared] = Waiting()
        self.reuse = Reuse(self.directory, setup.results, setup.force, setup.keep)
        self._events: Writer | None = None
        self._watcher: Watcher | None = None
        self.changed = False  # whether a stage ended that was not there

    def go(self, watcher: Watcher, before: Owner | None = None) -> int:
        """Run all stages; the exit code of the whole. Whatever ends the loop early ends the stages too."""
        self._watcher = watcher
        torn = set_aside_torn_tail(self.directory / paths.EVENTS)
        self._events = Writer(self.directory / paths.EVENTS)
        only = f", only {', '.join(sorted(self.setup.only))}" if self.setup.only else ""
        self.note("run_started", None, f"plan {self.plan.hash()[:8]}{only}")
        if self.protocol is not None and protocol.note(self.directory, self.protocol) and self.protocol.words:
            self.note("protocol_noted", None, self.protocol.words)
        if before is not None:
            self.note("lock_taken_over", None, f"{before.words()} died and left it")
        if torn is not None:
            self.note("torn_line_set_aside", None, f"{paths.EVENTS}:{torn}, from a session that died")
        try:
            self.loop(watcher)
        except KeyboardInterrupt:
            self.engine.cancel()
            self.note("run_interrupted", None, "the stages were ended; `make` resumes")
            raise
        except BaseException:
            self.engine.cancel()
            raise
        code = exit_code([outcome.word for outcome in self.outcomes.values()])
        self.note("run_ended", None, f"exit code {code}")
        self._events.close()
        if self.changed:
            digest.sync(self.directory)
        self.reuse.save()
        return code

    def loop(self, watcher: Watcher) -> None:
        """Until every stage has ended. TERM and HUP end it as Ctrl-C does."""
        asked: list[int] = []
        before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in ENDING}
        try:
            while self.schedule.left:
                if asked:
                    raise KeyboardInterrupt
                self.start_ready()
                if self.running:
                    for ended in self.engine.poll():
                        self.settle(ended)
                elif self.schedule.left and self.waiting:
                    time.sleep(PAUSE_S)
                watcher.tick(self.states, self.waits_for)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start_ready(self) -> None:
        """Reuse, block or start every stage whose needs have ended, the first of the plan first."""
        self.reuse.look_again()
        self.waiting.start(self.start)
        while (stage := self.schedule.pop()) is not None:
            if (found := self.prepare(stage)) is not None:
                self.enqueue(found)

    def enqueue(self, prepared: Prepared) -> None:
        """Start it, or let it wait; behind one that was refused the same, nothing is asked again."""
        job = prepared.job
        kind = (job.cpus, job.memory_gib, job.gpus, job.exclusive, prepared.wanted.stage.disk_gib)
        if self.waiting.has(kind) or not self.start(prepared):
            self.waiting.add(kind, self.schedule.index[job.stage], prepared)

    def prepare(self, stage: Stage) -> Prepared | None:
        """What starting the stage takes; None if it has ended now, without a start, or was attached to."""
        if reason := stage.stop or identity.unusable(stage, self.outcomes):
            self.leave_unstarted(stage, "blocked", reason)
            return None
        wanted = Wanted(stage=stage, inputs=self.resolve(stage))
        directory = paths.stage_dir(self.directory, stage.name)
        if self.engine.holds(directory) and self.attach(wanted):
            return None
        found = self.reuse.find(wanted, self.plan.read_of(stage.name))
        if isinstance(found, Taken):
            self.take(found)
            return None
        return Prepared(wanted=wanted, job=job_of(directory, wanted, self.setup), why=found, attempt=1)

    def resolve(self, stage: Stage) -> dict[str, Input]:
        """Paths and digests of the inputs as they are now."""
        left = {name: (paths.stage_dir(self.directory, name), self.outcomes[name]) for name in stage.needs()}
        found = identity.resolve(stage, left)
        if stage.after_all:
            ended = {name: digest.of_value(outcome.body()) for name, outcome in sorted(self.outcomes.items())}
            of_run = [self.plan.hash(), ended, self.reuse.stale]
            found["run"] = Input(path=self.directory, sha256=digest.of_value(of_run))
        return found

    def take(self, taken: Taken) -> None:
        """Count a result that is there as this run's; one of another run is linked and its run is named."""
        outcome = taken.outcome
        own = paths.stage_dir(self.directory, outcome.stage)
        if taken.directory != own:
            self.clear(own)
            link_to(own, taken.directory)
        self.reuse.mark(outcome.stage, taken.stale)
        place = "" if outcome.run == self.directory.name else f"from run {outcome.run}"
        if taken.stale:
            self.note("stage_kept", outcome.stage, f"stale, {taken.stale}{'; ' if place else ''}{place}")
        else:
            self.note("stage_reused", outcome.stage, place)
        self.conclude(outcome)

    def clear(self, directory: Path) -> None:
        """Make the place of a stage free, whatever lies or still runs there."""
        self.engine.release(directory)
        self.reuse.set_aside(directory)

    def attach(self, wanted: Wanted) -> bool:
        """Wait for the job that an earlier driver left, if it was asked the very same; else it is ended by `clear`."""
        directory = paths.stage_dir(self.directory, wanted.stage.name)
        job = job_of(directory, wanted, self.setup)
        asked = request_of(self.directory, wanted, job, None, 1, self.told_protocol())
        if self.reuse.forced(job.stage) or not same_request(directory, asked) or not self.engine.attach(job):
            return False
        prepared = Prepared(wanted=wanted, job=job, why="", attempt=1)
        self.goes_on(Running(prepared=prepared, grant=None, at=utc_now(), since=time.monotonic()))
        self.note("stage_attached", job.stage, "an earlier driver started it")
        return True

    def start(self, prepared: Prepared) -> bool:
        """Write the request into a fresh directory and start the program; false if it has to wait."""
        job, stage = prepared.job, prepared.wanted.stage
        if stage.disk_gib and (lack := short_of_disk(self.directory, self.disk_gib() + stage.disk_gib)):
            if self.running:
                return False
            self.leave_unstarted(stage, "unmet", lack)
            return True
        if (grant := self.engine.grant(job)) is None:
            return False
        self.clear(job.directory)
        make_place(job.directory)
        asked = request_of(self.directory, prepared.wanted, job, grant, prepared.attempt, self.told_protocol())
        digest.write_new(f"{job.directory}/{paths.REQUEST}", asked)
        self.reuse.started(job.stage)
        self.changed = True
        started = Running(prepared=prepared, grant=grant, at=utc_now(), since=time.monotonic())
        self.engine.start(job, grant)
        self.goes_on(started)
        self.note("stage_started", job.stage, prepared.why)
        return True

    def told_protocol(self) -> dict[str, Any] | None:
        """What stages are told of the protocol; it is no part of a key."""
        return None if self.protocol is None else self.protocol.of_request()

    def goes_on(self, running: Running) -> None:
        """Count a stage as running."""
        name = running.prepared.job.stage
        self.running[name] = running
        self.states[name] = "running"

    def disk_gib(self) -> float:
        """What the running stages were promised of the disk."""
        return sum(running.prepared.wanted.stage.disk_gib for running in self.running.values())

    def settle(self, ended: Ended) -> None:
        """Record how a stage ended. A crash is tried again as often as the workflow says.

        A job that was attached to and does not answer, as code changed or it crashed, is started once more.
        """
        running = self.running.pop(ended.stage)
        prepared = running.prepared
        stage = prepared.wanted.stage
        outcome, receipt = ending.outcome_of(
            ended, prepared.wanted, prepared.job, running.told(self.directory.name), self.plan.read_of(stage.name)
        )
        again = ""
        if running.grant is None and (why := identity.explain(prepared.job.directory, prepared.wanted)) is not None:
            again = why
        elif outcome.word == "crashed" and prepared.attempt <= stage.retries:
            self.note(
                "stage_retried", stage.name, f"attempt {prepared.attempt} of {stage.retries + 1} {outcome.reason}"
            )
            again = f"attempt {prepared.attempt + 1} of {stage.retries + 1}"
        if again:
            self.states[stage.name] = "waiting"
            number = prepared.attempt + (running.grant is not None)
            self.enqueue(Prepared(wanted=prepared.wanted, job=prepared.job, why=again, attempt=number))
            return
        if receipt:
            self.reuse.made(prepared.wanted, outcome, receipt)
        self.record_end(outcome)

    def leave_unstarted(self, stage: Stage, word: Word, reason: str) -> None:
        """Write the outcome of a stage that cannot be started; an older result in its place is set aside."""
        directory = paths.stage_dir(self.directory, stage.name)
        if directory.is_symlink() or (directory / paths.REQUEST).exists():
            self.clear(directory)
        make_place(directory)
        outcome = ending.unstarted(stage.name, self.directory.name, word, reason)
        outcome.save(directory, durable=False)
        self.changed = True
        self.reuse.mark(stage.name, "")
        self.record_end(outcome)

    def record_end(self, outcome: Outcome) -> None:
        """Keep an outcome and tell it."""
        reason = f": {outcome.reason}" if outcome.reason else ""
        self.note("stage_ended", outcome.stage, f"{outcome.word}{reason}")
        self.conclude(outcome)

    def conclude(self, outcome: Outcome) -> None:
        """The stage has ended: those below it may be ready."""
        self.outcomes[outcome.stage] = outcome
        self.states[outcome.stage] = outcome.word
        self.schedule.ended(outcome.stage)

    def waits_for(self, name: str) -> str:
        """What a waiting stage waits for, in words."""
        from kassay.watch.view import waits_for  # only where somebody looks

        if (prepared := self.waiting.of(self.schedule.index[name])) is not None:
            return self.engine.waits_for(prepared.job)
        return waits_for(self.schedule.lacking(name, self.outcomes))

    def note(self, event: str, stage: str | None, why: str) -> None:
        """Append an event and show it."""
        made = Event(at=utc_now(), event=event, stage=stage, why=why)
        assert self._events is not None and self._watcher is not None, "a bug: note() outside go()"
        self._events.append(made)
        self._watcher.event(made)
