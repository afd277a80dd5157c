"""One stage's process: started with its logs, told of if it cannot be, measured when it has been waited for."""

import functools
import os
import resource
import shutil
import subprocess

from kassay import paths
from kassay.engine import Ended, Job

LOG = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
CANNOT_START = 127  # what a shell reports for a command that it cannot find
BYTES_PER_KIB = 1024  # ru_maxrss


def spawn(job: Job, environment: dict[bytes, bytes], nothing: int) -> subprocess.Popen[bytes]:
    """The process of a job, in a session of its own; `nothing` is /dev/null. Raises OSError or ValueError if it fails.

    The environment is bytes, and the program is looked up once: Popen would encode and look up for every stage anew.
    """
    out = os.open(f"{job.directory}/{paths.STDOUT}", LOG)
    try:
        err = os.open(f"{job.directory}/{paths.STDERR}", LOG)
        try:
            return subprocess.Popen(
                job.argv,
                executable=located(job.argv[0], os.fsdecode(environment.get(b"PATH", b""))),
                cwd=job.directory,
                env=environment,
                stdin=nothing,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        finally:
            os.close(err)
    finally:
        os.close(out)


@functools.lru_cache
def located(program: str, path: str) -> str | None:
    """Where a program of that name lies on PATH; None: Popen takes it as it is, and says what is wrong with it."""
    return None if os.sep in program else shutil.which(program, path=path)


def encoded(environment: dict[str, str]) -> dict[bytes, bytes]:
    """An environment as the system takes it."""
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def unstarted(job: Job, error: OSError | ValueError) -> Ended:
    """The end of a stage that could not be started, told in its log too if it has one; the others go on."""
    path = getattr(error, "filename", None) or job.argv[0]
    said = f"{path}: {getattr(error, 'strerror', None) or error}"
    try:
        (job.directory / paths.STDERR).write_text(f"{said}\n", encoding="utf-8")
    except OSError:
        return Ended(stage=job.stage, exit_code=None, timed_out=False, fault=said, peak_bytes=None)
    if str(path) in (str(job.directory / paths.STDOUT), str(job.directory / paths.STDERR)):
        return Ended(stage=job.stage, exit_code=None, timed_out=False, fault=said, peak_bytes=None)
    return Ended(stage=job.stage, exit_code=CANNOT_START, timed_out=False, fault="", peak_bytes=None)


def peak(maxrss_kib: int) -> int | None:
    """The largest resident memory of a process that has been waited for, None if it was less than the driver's own.

    Linux counts what a process had before its first exec too, and that was the driver's memory: below it nothing is
    known.
    """
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maxrss_kib * BYTES_PER_KIB if maxrss_kib > own_kib else None
