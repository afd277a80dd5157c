"""The local engine: stages as process groups on this machine, side by side while their cores and memory fit."""

import os
import signal
import subprocess
import time

from kassay import paths
from kassay.engine import Ended, Job

POLL_PERIOD_S = 0.02  # short beside any stage's own start
GRACE_S = 5.0  # what a stage gets between TERM and KILL


class LocalEngine:
    """Runs jobs as subprocesses, each in a session of its own."""

    def __init__(self, cpus: int, memory_gib: float) -> None:
        self.cpus = cpus
        self.memory_gib = memory_gib
        self._running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
        self._expired: set[str] = set()

    def fits(self, job: Job) -> bool:
        """Whether the job's cores and memory are free; a job larger than the machine fits when it is alone."""
        jobs = [running for running, _, _ in self._running.values()]
        if not jobs:
            return True
        if job.exclusive or any(running.exclusive for running in jobs):
            return False
        cpus = sum(running.cpus for running in jobs) + job.cpus
        memory_gib = sum(running.memory_gib for running in jobs) + job.memory_gib
        return cpus <= self.cpus and memory_gib <= self.memory_gib

    def start(self, job: Job) -> None:
        """Start the process with its output in the stage's logs and nothing on standard input."""
        with (job.directory / paths.STDOUT).open("wb") as out, (job.directory / paths.STDERR).open("wb") as err:
            process = subprocess.Popen(
                job.argv,
                cwd=job.directory,
                env={**os.environ, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._running[job.stage] = (job, process, time.monotonic())

    def poll(self) -> list[Ended]:
        """The jobs that ended; a job past its time-out is ended here."""
        time.sleep(POLL_PERIOD_S)
        ended = []
        for name, (job, process, started) in list(self._running.items()):
            if process.poll() is None and time.monotonic() - started > job.timeout_s:
                self._expired.add(name)
                self._end([process])
            code = process.poll()
            if code is not None:
                kill_group(process.pid)
                del self._running[name]
                ended.append(Ended(stage=name, exit_code=code, timed_out=name in self._expired))
        return ended

    def cancel(self) -> None:
        """End all running jobs."""
        self._end([process for _, process, _ in self._running.values()])
        self._running.clear()

    def _end(self, processes: list[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass  # it had its grace; KILL follows
            kill_group(process.pid)
            process.wait()


def kill_group(group: int) -> None:
    """KILL whatever is left of a process group, so that no grandchild outlives its stage."""
    signal_group(group, signal.SIGKILL)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone already."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # it ended by itself
