"""One owner for each run directory: a lock that the system lets go when its holder dies, and who that is.

The lock is the kernel's (flock), never the file's existence: what a dead driver left is taken over at once, whoever has
its pid now. The owner file beside it only says who; on a shared file system it names the other host.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from kassay import digest, paths
from kassay.errors import RunError
from kassay.stage import utc_now


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The driver that has, or had, a run directory."""

    pid: int
    host: str
    since: str  # UTC, ISO 8601
    started: int  # of the process, in the kernel's ticks: a pid alone may be somebody else's by now
    token: str  # carried in the environment of every process that it starts
    only: list[str]  # the stages that it was asked for with what they need; empty: all

    def words(self) -> str:
        """Who that is."""
        return f"pid {self.pid} on {self.host} since {self.since}"

    def alive(self) -> bool:
        """Whether the very process goes on, as far as this host can tell."""
        return self.host == os.uname().nodename and started_at(self.pid) == self.started


def started_at(pid: int) -> int:
    """When a process was started, in ticks since boot; 0 if there is none of that number, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            fields = stream.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def owner_of(run_dir: Path) -> Owner | None:
    """Who has written down that it has the run; None if nobody has, or not so that it can be read."""
    try:
        owner = Owner(**json.loads((run_dir / paths.OWNER).read_bytes()))
        return owner if isinstance(owner.token, str) and isinstance(owner.pid, int) else None
    except (OSError, ValueError, TypeError):
        return None


@contextmanager
def held(path: Path, wait: bool) -> Iterator[None]:
    """Hold a lock file. Raises BlockingIOError if somebody has it and we do not wait."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


@contextmanager
def owned(run_dir: Path, token: str, only: list[str]) -> Iterator[Owner | None]:
    """Hold the run directory; gives the owner that died and left it, if one did.

    Raises RunError that names the holder if another driver has it.
    """
    lock = held(run_dir / paths.LOCK, wait=False)
    try:
        lock.__enter__()
    except BlockingIOError:
        owner = owner_of(run_dir)
        who = owner.words() if owner else "it has not said which"
        raise RunError(
            f"{paths.shown(run_dir)}: another driver has this run: {who}",
            hint="wait for it, or end it by its pid; make watch shows what it does",
        ) from None
    try:
        before = owner_of(run_dir)
        here, since, started = os.uname().nodename, utc_now(), started_at(os.getpid())
        own = Owner(pid=os.getpid(), host=here, since=since, started=started, token=token, only=only)
        digest.write_soon(run_dir / paths.OWNER, asdict(own))
        try:
            yield before
        finally:
            (run_dir / paths.OWNER).unlink(missing_ok=True)
    finally:
        lock.__exit__(None, None, None)
