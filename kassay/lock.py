"""One owner for each run directory: a lock that the system lets go when its holder dies, and who that is."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from kassay import host, paths
from kassay.errors import RunError
from kassay.stage import utc_now


@contextmanager
def owned(run_dir: Path) -> Iterator[None]:
    """Hold the run directory. Raises RunError that names the holder if another driver has it."""
    lock = filelock.FileLock(run_dir / paths.LOCK, timeout=0)
    owner = run_dir / f"{paths.LOCK}.owner"
    try:
        lock.acquire()
    except filelock.Timeout:
        holder = owner.read_text() if owner.exists() else "unknown"
        raise RunError(
            f"{run_dir}: another driver has this run: {holder}", hint="wait for it, or end it by its pid"
        ) from None
    try:
        owner.write_text(json.dumps({"pid": os.getpid(), "host": host.describe()["system"], "since": utc_now()}))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()
