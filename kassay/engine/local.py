"""The local engine: stages as process groups on this machine, side by side while their cores and memory fit."""

import os
import signal
import subprocess
import time
from pathlib import Path

from kassay import paths
from kassay.engine import Ended, Job, fits_beside, full_environment
from kassay.engine.reaper import Reaper

POLL_PERIOD_S = 0.02  # short beside any stage's own start
GRACE_S = 5.0  # what a stage gets between TERM and KILL
CANNOT_START = 127  # what a shell reports for a command that it cannot find


class LocalEngine:
    """Runs jobs as subprocesses, each in a session of its own."""

    def __init__(self, cpus: int, memory_gib: float) -> None:
        self.cpus = cpus
        self.memory_gib = memory_gib
        self._running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
        self._unstarted: list[Ended] = []
        self._reaper = Reaper()

    def fits(self, job: Job) -> bool:
        """Whether the job's cores and memory are free; a job larger than the machine fits when it is alone."""
        running = [other for other, _, _ in self._running.values()]
        return fits_beside(job, running, self.cpus, self.memory_gib)

    def start(self, job: Job) -> None:
        """Start the process with its output in the stage's logs and nothing on standard input."""
        with (job.directory / paths.STDOUT).open("wb") as out, (job.directory / paths.STDERR).open("wb") as err:
            try:
                process = subprocess.Popen(
                    job.argv,
                    cwd=job.directory,
                    env=full_environment(job),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:  # the interpreter is gone: that stage crashed, the others go on
                err.write(f"{job.argv[0]}: {error.strerror}\n".encode())
                self._unstarted.append(Ended(stage=job.stage, exit_code=CANNOT_START, timed_out=False, fault=""))
                return
        self._running[job.stage] = (job, process, time.monotonic())
        self._reaper.watch(process.pid)

    def poll(self) -> list[Ended]:
        """The jobs that ended; a job past its time-out is ended here."""
        ended, self._unstarted = self._unstarted, []
        if not ended:
            time.sleep(POLL_PERIOD_S)
        for name, (job, process, started) in list(self._running.items()):
            timed_out = time.monotonic() - started > job.timeout_s
            if not exited(process) and not timed_out:
                continue
            timed_out = timed_out and not exited(process)
            self._end([process], GRACE_S if timed_out else 0.0)
            del self._running[name]
            ended.append(Ended(stage=name, exit_code=process.wait(), timed_out=timed_out, fault=""))
        return ended

    def cancel(self) -> None:
        """End all running jobs; a second Ctrl-C cuts their grace short."""
        self._end([process for _, process, _ in self._running.values()], GRACE_S)
        self._running.clear()

    def holds(self, directory: Path) -> bool:
        """Nothing: what this engine starts ends with its driver."""
        return False

    def attach(self, job: Job) -> bool:
        """Nothing is held."""
        return False

    def release(self, directory: Path) -> None:
        """Nothing to end."""

    def _end(self, processes: list[subprocess.Popen[bytes]], grace_s: float) -> None:
        """TERM, grace, KILL. A group is killed before its leader is waited for: until then its number is its own."""
        deadline = time.monotonic() + grace_s
        try:
            if grace_s:
                for process in processes:
                    signal_group(process.pid, signal.SIGTERM)
            while time.monotonic() < deadline and not all(exited(process) for process in processes):
                time.sleep(POLL_PERIOD_S)
        finally:
            for process in processes:
                signal_group(process.pid, signal.SIGKILL)
                process.wait()
                self._reaper.forget(process.pid)


def exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is left unwaited for, so that its number stays its own."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone already."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass  # it ended by itself
