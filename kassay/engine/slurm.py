"""The Slurm engine: stages as batch jobs of an existing cluster, in directories that all its nodes see.

A job is over when Slurm says so; how it ended is what its launcher left, and what Slurm knows can only take from that
(docs/decisions/0003-slurm-by-sbatch.md). A job outlives a driver that is killed; the next driver attaches to it.
"""

import math
import secrets
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kassay import paths
from kassay.engine import Ended, Grant, Job, cluster, inherited_environment, lacking_beside
from kassay.engine.attempt import Attempt, held_attempt, left_by, note, open_attempt, publish, submitted
from kassay.engine.cluster import Unanswered
from kassay.engine.launcher import EXIT
from kassay.engine.states import Row, goes_on, how_it_ended, never_starts, the_one
from kassay.errors import RunError

TICK_S = 0.1  # how often the driver looks up, to see a signal or an exit.json
QUICK_S = 0.5  # between two looks at the queue while a job's exit.json is there
LATE_S = 60.0  # for how long NFS may keep an old folder (acdirmax)
GONE_S = 120.0  # cancelled jobs get TERM, KillWait (30 s by default), KILL, and an epilog
LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A job and the attempt that it is."""

    job: Job
    grant: Grant
    attempt: Attempt


class SlurmEngine:
    """Submits jobs with sbatch, polls them with squeue and sacct, ends them with scancel."""

    def __init__(self, max_cpus: int, partition: str, account: str, poll_s: float) -> None:
        self.max_cpus = max_cpus or math.inf
        self.partition = partition
        self.account = account
        self.poll_s = poll_s
        self.token = secrets.token_hex(8)  # no process of this host carries it
        self._running: dict[str, Running] = {}
        self._refused: list[Ended] = []
        self._over_since: dict[str, float] = {}  # Slurm says that it is over, or nothing; its files are awaited
        self._asked_at = -math.inf
        self._answered_at = time.monotonic()
        self._told_at = -math.inf

    def grant(self, job: Job) -> Grant | None:
        """What is asked for, if this run may have the job in the queue too; where it fits is for Slurm to say."""
        return None if self.waits_for(job) else asked_of_slurm(job)

    def waits_for(self, job: Job) -> str:
        """What of MAX_CPUS is free, or which stages must end first."""
        return lacking_beside(job, [running.grant for running in self._running.values()], self.max_cpus, math.inf)

    def start(self, job: Job, grant: Grant) -> None:
        """Submit the job. What sbatch refuses is a crash of that stage; the others go on."""
        attempt = open_attempt(job)
        # First: what is submitted can be cancelled.
        self._running[job.stage] = Running(job=job, grant=grant, attempt=attempt)
        environment = {**inherited_environment(), **job.environment}
        launch = [sys.executable, "-I", "-S", str(LAUNCHER), str(attempt.directory)]
        try:
            number = cluster.submit(attempt.name, self.options(job), launch, attempt.directory, environment)
        except Unanswered as error:
            (attempt.directory / paths.STDERR).write_text(f"{error}\n", encoding="utf-8")
            self._refused.append(refused(job))
            self._settle(job.stage)
            return
        note(attempt, job, number)

    def options(self, job: Job) -> list[str]:
        """What the job asks of the cluster. Slurm's limit is the launcher's, rounded up to its minutes.

        GPUs are asked for by --gres, which every way of selecting nodes understands and which is per node, and a job
        has one; --gpus is refused wherever SelectType is not cons_tres.
        """
        asked = [
            f"--cpus-per-task={job.cpus}",
            f"--mem={math.ceil(job.memory_gib * 1024)}M",
            f"--time={math.ceil(job.timeout_s / 60)}",
        ]
        given = {"partition": self.partition, "account": self.account}
        asked += [f"--{name}={value}" for name, value in given.items() if value]
        asked += [f"--gres=gpu:{job.gpus}"] if job.gpus else []
        return [*asked, "--exclusive"] if job.exclusive else asked

    def poll(self) -> list[Ended]:
        """The jobs that ended; the queue is asked every `poll_s`, sooner once a job has left its exit status."""
        ended, self._refused = self._refused, []
        if ended:
            return ended
        time.sleep(TICK_S)
        soon = any((running.attempt.directory / EXIT).exists() for running in self._running.values())
        if time.monotonic() - self._asked_at < (min(QUICK_S, self.poll_s) if soon else self.poll_s):
            return []
        try:
            rows = self._queue()
        except Unanswered:
            rows = None
        for stage, running in list(self._running.items()):
            if found := self._look(stage, running.attempt, rows):
                self._settle(stage)
                ended.append(found)
        return ended

    def _queue(self) -> list[Row]:
        """The queue now. Raises Unanswered; a long silence is told, once every `LATE_S`."""
        self._asked_at = time.monotonic()
        try:
            rows = cluster.queue()
        except Unanswered as error:
            now = time.monotonic()
            if now - max(self._answered_at, self._told_at) > LATE_S:
                print(f"Slurm has not answered for {now - self._answered_at:.0f} s: {error}", file=sys.stderr)
                self._told_at = now
            raise
        self._answered_at = time.monotonic()
        return rows

    def _look(self, stage: str, attempt: Attempt, rows: list[Row] | None) -> Ended | None:
        """How a job ended, or None; while squeue does not answer, a job that left its exit status can end too."""
        left = left_by(attempt)
        now = time.monotonic()
        if rows is None:
            silent = now - self._answered_at > LATE_S
            return how_it_ended(stage, None, left, late=False) if silent else None
        row = the_one(rows, attempt.name, left) or cluster.accounted(attempt.name)
        if row is not None and goes_on(row) and not never_starts(row):
            self._over_since.pop(stage, None)
            return None
        if row is not None and never_starts(row):
            self._end([attempt])
            fault = f"Slurm never starts job {row.job}: {row.reason}"
            return Ended(stage=stage, exit_code=None, timed_out=False, fault=fault, peak_bytes=None)
        since = self._over_since.setdefault(stage, now)
        return how_it_ended(stage, row, left, late=now - since > LATE_S)

    def _settle(self, stage: str) -> None:
        """Forget a job that is over; its stage directory is a plain one again."""
        publish(self._running.pop(stage).attempt)
        self._over_since.pop(stage, None)

    def cancel(self) -> None:
        """End all jobs and wait until Slurm has them no more. Raises RunError that names those that stay."""
        self._end([running.attempt for running in self._running.values()])
        for stage in list(self._running):
            self._settle(stage)

    def _end(self, attempts: list[Attempt]) -> None:
        """scancel, and again while a job is listed as going on. One that squeue does not list twice is gone."""
        names = {attempt.name for attempt in attempts}
        jobs, absent = ["of this run"], 0
        deadline = time.monotonic() + GONE_S
        while names and absent < 2:
            if time.monotonic() > deadline:
                still = f"Slurm has not ended job {', '.join(jobs)} in {GONE_S:.0f} s"
                raise RunError(still, hint="scancel ends it by its number; make finds it again")
            try:
                jobs = [row.job for row in cluster.queue() if row.name in names and goes_on(row)]
                absent = 0 if jobs else absent + 1
            except Unanswered:
                pass  # asked again
            else:
                if jobs:
                    cluster.scancel(jobs)
            time.sleep(QUICK_S)

    def holds(self, directory: Path) -> bool:
        """Whether the stage directory is still a link to an attempt."""
        return held_attempt(directory) is not None

    def attach(self, job: Job) -> bool:
        """Poll the job of an earlier driver as one of this; it may have ended long ago, or never been submitted."""
        attempt = held_attempt(job.directory)
        if attempt is None or not (submitted(attempt) or self._known(attempt)):
            return False
        self._running[job.stage] = Running(job=job, grant=asked_of_slurm(job), attempt=attempt)
        self._asked_at = -math.inf
        return True

    def _known(self, attempt: Attempt) -> bool:
        """Whether Slurm has a job of the attempt's name; while it does not answer, it may."""
        try:
            listed = [row for row in cluster.queue() if row.name == attempt.name]
        except Unanswered:
            return True
        return bool(listed) or cluster.accounted(attempt.name) is not None

    def release(self, directory: Path) -> None:
        """End the job of an attempt that nobody asks for any more."""
        if (attempt := held_attempt(directory)) is not None:
            self._end([attempt])
            publish(attempt)


def asked_of_slurm(job: Job) -> Grant:
    """What Slurm gives a job that it starts: what it asked for, on GPUs that Slurm chooses."""
    return Grant(cpus=job.cpus, memory_gib=job.memory_gib, gpus=job.gpus, exclusive=job.exclusive, gpu_ids=None)


def refused(job: Job) -> Ended:
    """The end of a job that sbatch did not take."""
    return Ended(stage=job.stage, exit_code=None, timed_out=False, fault="sbatch refused it", peak_bytes=None)
