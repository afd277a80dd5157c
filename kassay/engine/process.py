"""One stage's process: started with its logs, told of if it cannot be, measured when it has been waited for."""

import resource
import subprocess

from kassay import paths
from kassay.engine import Ended, Job

CANNOT_START = 127  # what a shell reports for a command that it cannot find
BYTES_PER_KIB = 1024  # ru_maxrss


def spawn(job: Job, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The process of a job, in a session of its own. Raises OSError or ValueError if it cannot be started."""
    with (job.directory / paths.STDOUT).open("wb") as out, (job.directory / paths.STDERR).open("wb") as err:
        return subprocess.Popen(
            job.argv,
            cwd=job.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


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
