"""The local engine: stages as process groups on this machine, side by side while what they asked for is free.

A stage's end is seen at once (kassay.engine.ends). It is told when nothing that the stage started is left
(kassay.engine.orphans), and only then what was granted to it is free. Linux only.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from kassay.engine import KASSAY_JOB, Ended, Grant, Job, inherited_environment
from kassay.engine.ends import Ends, exited
from kassay.engine.grants import Grants
from kassay.engine.orphans import Orphans, since
from kassay.engine.process import encoded, peak, spawn, unstarted
from kassay.engine.reaper import Reaper

TICK_S = 0.1  # how often the driver looks up while nothing ends, to see a signal or to draw
LEAVING_S = 0.002  # between two looks at what a stage left; a process that got KILL is gone in less than 1 ms
GRACE_S = 5.0  # what a stage gets between TERM and KILL
GIVE_UP_S = 30.0  # the kernel takes seconds to take down a process that has tens of GiB pinned


@dataclass(kw_only=True)
class Running:
    """A stage's process and how far its end has come."""

    job: Job
    process: subprocess.Popen[bytes]
    mark: str
    started: float
    kill_at: float | None = None  # TERM was sent
    timed_out: bool = False
    left_at: float | None = None  # its process has ended; what it started is being ended
    above: int = 0  # all that it started has greater numbers


class LocalEngine:
    """Runs jobs as subprocesses, each in a session of its own."""

    def __init__(self, cpus: int, memory_gib: float) -> None:
        self.cpus = cpus
        self.memory_gib = memory_gib
        outer = os.environ.get(KASSAY_JOB)
        self.token = f"{outer}/{secrets.token_hex(8)}" if outer else secrets.token_hex(8)
        self._grants = Grants(cpus, memory_gib)
        self._running: dict[str, Running] = {}
        self._unstarted: list[Ended] = []
        self._count = 0
        self._inherited: dict[bytes, bytes] = {}
        self._nothing = -1  # /dev/null, once a stage was started
        self._orphans: Orphans | None = None
        self._reaper: Reaper | None = None
        self._ends = Ends()
        self._first: tuple[int, float] = 0, 0.0  # the process that was started last while nothing ran, and when

    def grant(self, job: Job) -> Grant | None:
        """What the job gets now; None while other stages or another run on this host have it."""
        return self._grants.grant(job)

    def waits_for(self, job: Job) -> str:
        """Why the job was given nothing, in words."""
        return self._grants.waits_for(job)

    def start(self, job: Job, grant: Grant) -> None:
        """Start the process with its output in the stage's logs and nothing on standard input."""
        self._grants.take(job.stage, grant)
        orphans, reaper = self._attended()
        self._count += 1
        mark = f"{self.token}.{self._count}"
        own = {**job.environment, **self._grants.environment(grant), KASSAY_JOB: mark}
        given = {**self._inherited, **encoded(own)}
        process = None
        try:
            process = spawn(job, given, self._nothing)
            self._ends.add(process.pid)
        except (OSError, ValueError) as error:
            if process is not None:
                end_at_once(process)
            self._grants.free(job.stage)
            self._unstarted.append(unstarted(job, error))
            return
        now = time.monotonic()
        if not self._running:
            self._first = process.pid, now
        self._running[job.stage] = Running(job=job, process=process, mark=mark, started=now)
        orphans.own.add(process.pid)
        reaper.watch(process.pid)

    def _attended(self) -> tuple[Orphans, Reaper]:
        """What looks after the processes; made for the first of them."""
        if self._orphans is None or self._reaper is None:
            self._inherited = encoded(inherited_environment())
            self._nothing = os.open(os.devnull, os.O_RDONLY)
            weakref.finalize(self, os.close, self._nothing)
            self._orphans = Orphans()
            self._reaper = Reaper(self.token)
            self._orphans.own.add(self._reaper.pid)
        return self._orphans, self._reaper

    def poll(self) -> list[Ended]:
        """The jobs that ended; a job past its time-out is ended here."""
        self._grants.withdraw()
        ended, self._unstarted = self._unstarted, []
        over = self._wait(0.0 if ended else TICK_S)
        now = time.monotonic()
        for running in list(self._running.values()):
            if running.left_at is None and running.process.pid in over:
                self._leave(running)
            if running.left_at is None:
                enforce(running, now)
            elif (end := self._conclude(running)) is not None:
                ended.append(end)
        return ended

    def _wait(self, longest_s: float) -> set[int]:
        """The processes that have ended, after waiting for one, a deadline or a look at what is leaving."""
        now = time.monotonic()
        for running in self._running.values():
            longest_s = min(longest_s, LEAVING_S if running.left_at is not None else deadline(running) - now)
        over = self._ends.wait(longest_s)
        if not over and self._orphans is not None:
            self._orphans.take_in()
        return over

    def _leave(self, running: Running) -> None:
        """A stage's process has ended: its group goes at once. It stays unwaited for, so that its number is its own."""
        self._ends.forget(running.process.pid)
        running.left_at = time.monotonic()
        running.above = since(running.process.pid, running.left_at - running.started)
        signal_group(running.process.pid, signal.SIGKILL)

    def _conclude(self, running: Running) -> Ended | None:
        """The end of a stage whose process has ended, None while something that it started is still there."""
        orphans, _ = self._attended()
        assert running.left_at is not None, "a bug: a stage that runs is concluded"
        now, above, alone = time.monotonic(), running.above, len(self._running) == 1
        if alone and above:  # what has no mark may be of any stage since nothing ran
            pid, began = self._first
            above = since(pid, now - began)
        left = orphans.sweep(running.mark, {running.process.pid}, bare=alone, above=above)
        if left and now - running.left_at < GIVE_UP_S:
            return None
        tell_left(running.job.stage, left)
        return self._forget(running)

    def _forget(self, running: Running) -> Ended:
        """Wait for a process that has ended and free what it had."""
        orphans, reaper = self._attended()
        process = running.process
        del self._running[running.job.stage]  # first: whatever interrupts this, it is not waited for twice
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self._ends.forget(process.pid)
        orphans.own.discard(process.pid)
        reaper.forget(process.pid)
        self._grants.free(running.job.stage)
        return Ended(
            stage=running.job.stage,
            exit_code=process.returncode,
            timed_out=running.timed_out,
            fault="",
            peak_bytes=peak(used.ru_maxrss),
        )

    def cancel(self) -> None:
        """End all running jobs; a second Ctrl-C cuts their grace short."""
        self._grants.withdraw()
        if self._orphans is None:
            return
        until = time.monotonic() + GRACE_S
        try:
            for running in self._running.values():
                signal_group(running.process.pid, signal.SIGTERM)
            while time.monotonic() < until and not all(exited(one.process) for one in self._running.values()):
                time.sleep(LEAVING_S)
        except KeyboardInterrupt:
            pass
        self._kill_all(self._orphans)

    def _kill_all(self, orphans: Orphans) -> None:
        """KILL every group, and whatever carries this driver's token, one that was not yet noted included."""
        until = time.monotonic() + GIVE_UP_S
        leaders = {running.process.pid for running in self._running.values()}
        for pid in leaders:
            signal_group(pid, signal.SIGKILL)
        while True:
            left = orphans.sweep(self.token, leaders, bare=True, above=0)
            left += [running.process.pid for running in self._running.values() if not exited(running.process)]
            if not left or time.monotonic() > until:
                break
            time.sleep(LEAVING_S)
        tell_left("of this run", left)
        for running in list(self._running.values()):
            if exited(running.process):
                self._forget(running)
        self._grants.clear()

    def holds(self, directory: Path) -> bool:
        """Nothing: what this engine starts ends with its driver."""
        return False

    def attach(self, job: Job) -> bool:
        """Nothing is held."""
        return False

    def release(self, directory: Path) -> None:
        """Nothing to end."""


def deadline(running: Running) -> float:
    """When something has to be done about a stage that runs."""
    return running.started + running.job.timeout_s if running.kill_at is None else running.kill_at


def enforce(running: Running, now: float) -> None:
    """TERM for a stage past its time-out, KILL for one past its grace."""
    if now < deadline(running):
        return
    if running.kill_at is None:
        running.timed_out, running.kill_at = True, now + GRACE_S
        signal_group(running.process.pid, signal.SIGTERM)
    else:
        running.kill_at = now + GRACE_S
        signal_group(running.process.pid, signal.SIGKILL)


def tell_left(stage: str, left: list[int]) -> None:
    """Say on stderr which processes the kernel did not end."""
    if left:
        print(f"stage {stage}: process {', '.join(map(str, left))} does not end, though it got KILL", file=sys.stderr)


def end_at_once(process: subprocess.Popen[bytes]) -> None:
    """KILL a process that cannot be watched."""
    signal_group(process.pid, signal.SIGKILL)
    process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone already."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # it ended by itself
