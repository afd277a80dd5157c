"""Places under build/: made under a temporary name, renamed when whole, and by one process at a time.

Whoever dies leaves its temporary name behind; the next one that makes the same place removes it. A finished place is
one that has its real name and its proof, so that neither a half-made nor an older one is taken for it.
"""

import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from kassay.errors import SourceError

LOCK_WAIT_S = 6 * 3600.0  # longer than the longest build that is known (vLLM for all architectures)


@contextmanager
def alone(home: Path, what: str) -> Iterator[None]:
    """Be the only one that makes `home`; whoever comes second waits. Raises SourceError if that takes too long."""
    home.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(home.with_name(f".{home.name}.lock"))
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            print(f"waiting: another process makes {what}", file=sys.stderr, flush=True)
            lock.acquire(timeout=LOCK_WAIT_S)
    except filelock.Timeout:
        raise SourceError(f"{what}: another process has been making it for {LOCK_WAIT_S / 3600:g} h") from None
    try:
        yield
    finally:
        lock.release()


def fresh(home: Path) -> Path:
    """A temporary name to make `home` under; what killed builds left is removed. Only inside `alone`.

    A name of its own each time: a compiler that outlived a killed build may still write into the old one.
    """
    for left in home.parent.glob(f".{home.name}.making-*"):
        shutil.rmtree(left, ignore_errors=True)
    return home.with_name(f".{home.name}.making-{secrets.token_hex(4)}")


def publish(making: Path, home: Path) -> None:
    """Give a whole place its real name, in the place of one that has no proof."""
    shutil.rmtree(home, ignore_errors=True)
    making.rename(home)
