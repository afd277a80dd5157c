"""One owner for each run directory: a lock that the system lets go when its holder dies, and who that is."""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from kassay import digest, paths
from kassay.errors import RunError
from kassay.stage import utc_now


def holder(owner: Path) -> str:
    """Who wrote the owner file, in words."""
    try:
        told = json.loads(owner.read_bytes())
        return f"pid {told['pid']} on {told['host']} since {told['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "it has not said which"


@contextmanager
def owned(run_dir: Path) -> Iterator[None]:
    """Hold the run directory. Raises RunError that names the holder if another driver has it."""
    lock = filelock.FileLock(run_dir / paths.LOCK, timeout=0)
    owner = run_dir / f"{paths.LOCK}.owner"
    try:
        lock.acquire()
    except filelock.Timeout:
        raise RunError(
            f"{paths.shown(run_dir)}: another driver has this run: {holder(owner)}",
            hint="wait for it, or end it by its pid",
        ) from None
    try:
        digest.write_json(owner, {"pid": os.getpid(), "host": platform.node(), "since": utc_now()})
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()
