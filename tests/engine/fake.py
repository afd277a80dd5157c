"""Jobs of the contract suite, and a fake engine that carries them out without a process."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.engine import Ended, Engine, Grant, Job, inherited_environment, lacking_beside
from tests.engine.errand import tell

ERRAND = Path(__file__).with_name("errand.py")


def job(
    directory: Path,
    stage: str = "errand",
    timeout_s: float = 60.0,
    exclusive: bool = False,
    gpus: int = 0,
    **errand: Any,
) -> Job:
    """A job in a fresh stage directory that does the errand: seconds, exit_code, signal, say, tell, spawn, deaf."""
    place = directory / "stages" / stage
    place.mkdir(parents=True)
    return Job(
        stage=stage,
        directory=place,
        argv=(sys.executable, "-I", "-S", str(ERRAND), str(place), json.dumps(errand)),
        environment={"KASSAY_ERRAND": "of the job"},
        cpus=1,
        memory_gib=0.1,
        gpus=gpus,
        exclusive=exclusive,
        timeout_s=timeout_s,
    )


def start(engine: Engine, job: Job) -> Grant:
    """Start a job for which there is room, with what it is granted."""
    granted = engine.grant(job)
    assert granted is not None, f"`{job.stage}` waits for {engine.waits_for(job)}"
    engine.start(job, granted)
    return granted


class HoldsNothing:
    """An engine whose jobs end with their driver."""

    def holds(self, directory: Path) -> bool:
        return False

    def attach(self, job: Job) -> bool:
        return False

    def release(self, directory: Path) -> None:
        pass


class FakeEngine(HoldsNothing):
    """Starts no process: every poll is a second in which the errands go on."""

    def __init__(self) -> None:
        self.token = "fake"
        self.now_s = 0.0
        self._running: dict[str, tuple[Job, Grant, float]] = {}

    def grant(self, job: Job) -> Grant | None:
        if self.waits_for(job):
            return None
        ids = tuple(str(number) for number in range(job.gpus))
        return Grant(cpus=job.cpus, memory_gib=job.memory_gib, gpus=job.gpus, exclusive=job.exclusive, gpu_ids=ids)

    def waits_for(self, job: Job) -> str:
        return lacking_beside(job, [grant for _, grant, _ in self._running.values()], 8, 4.0)

    def start(self, job: Job, grant: Grant) -> None:
        for log in (paths.STDOUT, paths.STDERR):
            (job.directory / log).touch()
        self._running[job.stage] = job, grant, self.now_s

    def poll(self) -> list[Ended]:
        self.now_s += 1.0
        found = [self._look(job, self.now_s - since) for job, _, since in self._running.values()]
        ended = [end for end in found if end is not None]
        for end in ended:
            del self._running[end.stage]
        return ended

    def _look(self, job: Job, ran_s: float) -> Ended | None:
        errand = json.loads(job.argv[-1]) if Path(job.argv[0]).exists() else {"exit_code": 127, "lost": job.argv[0]}
        if ran_s < min(errand.get("seconds", 0.0), job.timeout_s):
            return None
        if errand.get("seconds", 0.0) > job.timeout_s:
            return Ended(stage=job.stage, exit_code=-15, timed_out=True, fault="", peak_bytes=None)
        (job.directory / paths.STDOUT).write_text(errand.get("say", ""))
        (job.directory / paths.STDERR).write_text(errand.get("lost", errand.get("say", "")))
        tell(job.directory, errand.get("tell", []), {**inherited_environment(), **job.environment})
        code = -errand["signal"] if "signal" in errand else errand.get("exit_code", 0)
        return Ended(stage=job.stage, exit_code=code, timed_out=False, fault="", peak_bytes=None)

    def cancel(self) -> None:
        self._running.clear()


@contextmanager
def term_put_off() -> Iterator[None]:
    """What is started meanwhile, and all below it, hears of TERM once it asks: a time-out may come before it is up."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False
