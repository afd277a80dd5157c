"""The loop: start what is ready while resources allow, wait for one, record its outcome, go on.

Independent branches continue after a rejection or a crash. A stage whose key is equal is reused, from this run or
from an earlier one, which is then named. A run directory has one owner. What ended a stage is written before the next
starts.
"""

import json
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from kassay import digest, identity, paths
from kassay.engine import Ended, Engine, Job, environment_of
from kassay.errors import RunError
from kassay.events import Event
from kassay.identity import Input, Wanted
from kassay.outcome import Outcome, Word, exit_code, load
from kassay.plan import Plan, Stage
from kassay.record import Writer, set_aside_torn_tail
from kassay.rundir import Setup, link_to, open_run, same_request, set_aside
from kassay.stage import utc_now

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Watcher(Protocol):
    """Shows a run while it goes on; it can change nothing."""

    def event(self, event: Event) -> None:
        """Something happened."""

    def tick(self, states: dict[str, str]) -> None:
        """The loop went round; `states` has a word for every stage."""


class Run:
    """One run directory and the loop over its stages."""

    def __init__(self, plan: Plan, setup: Setup, engine: Engine) -> None:
        self.plan = plan
        self.setup = setup
        self.engine = engine
        self.directory = open_run(plan, setup)
        self.outcomes: dict[str, Outcome] = {}
        self.running: dict[str, str] = {}
        self._events: Writer | None = None
        self._watcher: Watcher | None = None
        self._pending: dict[str, tuple[Wanted, Job, str]] = {}
        self._attached: dict[str, tuple[Wanted, Job]] = {}  # started by a driver that is gone

    def go(self, watcher: Watcher) -> int:
        """Run all stages; the exit code of the whole. Whatever ends the loop early ends the stages too."""
        self._watcher = watcher
        torn = set_aside_torn_tail(self.directory / paths.EVENTS)
        self._events = Writer(self.directory / paths.EVENTS)
        self.note("run_started", None, f"plan {self.plan.hash()[:8]}")
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
        return code

    def loop(self, watcher: Watcher) -> None:
        """Until every stage has ended. TERM and HUP end it as Ctrl-C does."""
        waiting = {stage.name: stage for stage in self.plan.stages}
        asked: list[int] = []
        before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in ENDING}
        try:
            while waiting or self.running:
                if asked:
                    raise KeyboardInterrupt
                self.start_ready(waiting)
                for ended in self.engine.poll() if self.running else []:
                    self.settle(ended)
                watcher.tick(self.states(waiting))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def states(self, waiting: dict[str, Stage]) -> dict[str, str]:
        """A word for each stage: its outcome, running or waiting."""
        return {
            stage.name: self.outcomes[stage.name].word
            if stage.name in self.outcomes
            else ("running" if stage.name in self.running else "waiting")
            for stage in self.plan.stages
        }

    def start_ready(self, waiting: dict[str, Stage]) -> None:
        """Reuse, block or start every waiting stage whose needs have ended."""
        for name, stage in list(waiting.items()):
            if not self.ready(stage, waiting):
                continue
            if reason := stage.stop or identity.unusable(stage, self.outcomes):
                del waiting[name]
                self.leave_unstarted(stage, "blocked", reason)
                continue
            if lacking := identity.lacking(stage, self.outcomes):
                del waiting[name]
                self.leave_unstarted(stage, "crashed", lacking)
                continue
            if name not in self._pending:  # what a stage wants is looked up once, however long it waits for cores
                wanted = Wanted(stage=stage, inputs=self.resolve(stage))
                if self.engine.holds(paths.stage_dir(self.directory, name)) and self.attach(stage, wanted):
                    del waiting[name]
                    continue
                found, why = self.find(wanted)
                if found is not None:
                    del waiting[name]
                    self.reuse(stage, found)
                    continue
                self._pending[name] = (wanted, self.job(stage, wanted), why)
            if self.engine.fits(self._pending[name][1]):
                del waiting[name]
                self.start(stage, *self._pending.pop(name))

    def ready(self, stage: Stage, waiting: dict[str, Stage]) -> bool:
        """Whether all that the stage needs has ended."""
        if stage.after_all:
            return not self.running and all(other.after_all for other in waiting.values())
        return all(name in self.outcomes for name in stage.needs())

    def resolve(self, stage: Stage) -> dict[str, Input]:
        """Paths and digests of the inputs as they are now."""
        left = {name: (paths.stage_dir(self.directory, name), self.outcomes[name]) for name in stage.needs()}
        found = identity.resolve(stage, left)
        if stage.after_all:
            ended = {name: digest.of_value(asdict(outcome)) for name, outcome in sorted(self.outcomes.items())}
            found["run"] = Input(path=self.directory, sha256=digest.of_value([self.plan.hash(), ended]))
        return found

    def find(self, wanted: Wanted) -> tuple[Path | None, str]:
        """A result that answers `wanted`, from this run or an earlier one; else why there is none."""
        own = paths.stage_dir(self.directory, wanted.stage.name)
        why = identity.explain(own, wanted)
        if why is None:
            return own, ""
        return (None, why) if wanted.stage.after_all else identity.find_earlier(self.setup.results, wanted, why)

    def reuse(self, stage: Stage, found: Path) -> None:
        """Take a result that is there; one of another run is linked and its run is named."""
        own = paths.stage_dir(self.directory, stage.name)
        if found != own:
            self.clear(own)
            link_to(own, found)
        outcome = load(own)
        if outcome is None:
            raise RunError(f"{own}: the outcome vanished while the run went on")
        self.outcomes[stage.name] = outcome
        self.note("stage_reused", stage.name, "" if outcome.run == self.directory.name else f"from run {outcome.run}")

    def job(self, stage: Stage, wanted: Wanted) -> Job:
        """How the stage is started: by path, with its stack's interpreter if it has one."""
        python = self.setup.interpreter
        if (stack := wanted.inputs.get("stack")) is not None:
            python = json.loads(stack.path.read_bytes())["python"]
        return Job(
            stage=stage.name,
            directory=paths.stage_dir(self.directory, stage.name),
            argv=(python, str(paths.program(stage.program)), str(paths.stage_dir(self.directory, stage.name))),
            environment=environment_of(Path(python)),
            cpus=stage.cpus,
            memory_gib=stage.memory_gib,
            exclusive=stage.exclusive,
            timeout_s=self.setup.timeout_s,
        )

    def request(self, stage: Stage, wanted: Wanted, job: Job) -> dict[str, Any]:
        """The content of request.json."""
        return {
            "schema": "kassay.request/1",
            "run": self.directory.name,
            "run_dir": str(self.directory),
            "stage": stage.name,
            "params": stage.params,
            "inputs": {
                name: {"path": str(given.path), "sha256": given.sha256} for name, given in wanted.inputs.items()
            },
            "host": stage.host,
            "grant": {"cpus": job.cpus, "memory_gib": job.memory_gib, "exclusive": job.exclusive},
            "roots": [str(tree) for tree in paths.trees()],
            "argv": list(job.argv),
            "environment": job.environment,
            "key": wanted.parts(),
        }

    def clear(self, directory: Path) -> None:
        """Make the place of a stage free, whatever lies or still runs there."""
        self.engine.release(directory)
        set_aside(directory)

    def attach(self, stage: Stage, wanted: Wanted) -> bool:
        """Wait for the job that an earlier driver left, if it was asked the very same; else it is ended by `clear`."""
        job = self.job(stage, wanted)
        if not same_request(job.directory, self.request(stage, wanted, job)) or not self.engine.attach(job):
            return False
        self._attached[stage.name] = wanted, job
        self.running[stage.name] = utc_now()
        self.note("stage_attached", stage.name, "an earlier driver started it")
        return True

    def start(self, stage: Stage, wanted: Wanted, job: Job, why: str) -> None:
        """Write the request into a fresh directory and start the program."""
        self.clear(job.directory)
        job.directory.mkdir(parents=True)
        digest.write_json(job.directory / paths.REQUEST, self.request(stage, wanted, job))
        self.engine.start(job)
        self.running[stage.name] = utc_now()
        self.note("stage_started", stage.name, why)

    def settle(self, ended: Ended) -> None:
        """Record how a stage ended; an outcome is believed only if the exit status agrees with it.

        A job that was attached to and does not answer, as code changed or it crashed, is started once more.
        """
        started_at = self.running.pop(ended.stage)
        directory = paths.stage_dir(self.directory, ended.stage)
        outcome, broken = None, ""
        try:
            outcome = load(directory)
        except RunError as error:
            broken = error.messages[0]
            (directory / paths.OUTCOME).rename(directory / f"{paths.OUTCOME}.broken")
        expected = None if outcome is None else exit_code([outcome.word])
        if outcome is None or ended.exit_code != expected or ended.timed_out or ended.fault:
            outcome = crashed(ended, self.directory.name, started_at, directory, broken)
            outcome.save(directory)
        attached = self._attached.pop(ended.stage, None)
        if attached is not None and (why := identity.explain(directory, attached[0])) is not None:
            self.start(self.plan.stage(ended.stage), *attached, why)
            return
        self.record_end(outcome)

    def leave_unstarted(self, stage: Stage, word: Word, reason: str) -> None:
        """Write the outcome of a stage that cannot be started; an older result in its place is set aside."""
        directory = paths.stage_dir(self.directory, stage.name)
        if directory.is_symlink() or (directory / paths.REQUEST).exists():
            self.clear(directory)
        directory.mkdir(parents=True, exist_ok=True)
        outcome = ended_without_artifacts(stage.name, self.directory.name, word, reason, utc_now(), 0.0)
        outcome.save(directory)
        self.record_end(outcome)

    def record_end(self, outcome: Outcome) -> None:
        """Keep an outcome and tell it."""
        self.outcomes[outcome.stage] = outcome
        reason = f": {outcome.reason}" if outcome.reason else ""
        self.note("stage_ended", outcome.stage, f"{outcome.word}{reason}")

    def note(self, event: str, stage: str | None, why: str) -> None:
        """Append an event and show it."""
        made = Event(at=utc_now(), event=event, stage=stage, why=why)
        assert self._events is not None and self._watcher is not None, "a bug: note() outside go()"
        self._events.append(made)
        self._watcher.event(made)


def crashed(ended: Ended, run: str, started_at: str, directory: Path, broken: str) -> Outcome:
    """The outcome of a stage whose process did not keep the contract."""
    log = (directory / paths.STDERR).read_text(errors="replace").strip().splitlines()
    how = broken or ended.fault or f"exit status {ended.exit_code} without its outcome"
    how = "ran past its time-out" if ended.timed_out else how
    reason = f"{how}; last line: {log[-1]}" if log else how
    return ended_without_artifacts(ended.stage, run, "crashed", reason, started_at, time_since(directory))


def ended_without_artifacts(
    stage: str, run: str, word: Word, reason: str, started_at: str, duration_s: float
) -> Outcome:
    """An outcome that the driver writes for a stage that left nothing."""
    return Outcome(
        stage=stage,
        run=run,
        word=word,
        reason=reason,
        metrics={},
        artifacts={},
        started_at=started_at,
        duration_s=duration_s,
    )


def time_since(directory: Path) -> float:
    """Seconds since the request of a stage was written."""
    return round(time.time() - (directory / paths.REQUEST).stat().st_mtime, 3)
