"""Attempts: one Slurm job's own directory, to which the stage directory is a link until the job is over.

A job that Slurm has given up (a node that does not answer) may still run and write. It writes to its attempt, by the
attempt's path; the stage directory becomes a plain one again, by a rename, only when the driver has seen the end, and
the next attempt has another path. Nobody but the driver renames anything, and a run directory has one driver.

    stages/quality -> .quality.attempt-5f0c2d11     while the job is not over
    stages/quality                                  afterwards; job.json, claim.json and exit.json tell of the job

The attempt's token is in the job's name too, so that the job is found again whatever was written down about it.
"""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from kassay import digest, gpus, paths
from kassay.engine import Job
from kassay.engine.launcher import CLAIM, EXIT, JOB

MARK = ".attempt-"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One Slurm job's directory and the name by which Slurm knows the job."""

    link: Path  # the stage directory
    directory: Path
    name: str  # `<stage>.<token>`, unique


@dataclass(frozen=True, kw_only=True)
class Left:
    """The content of exit.json: how the stage's process ended, as its launcher saw it."""

    job: str  # id of the Slurm job
    node: str
    exit_code: int  # negative: ended by that signal
    timed_out: bool


def named(link: Path, token: str) -> Attempt:
    """The attempt of that token."""
    return Attempt(link=link, directory=link.with_name(f".{link.name}{MARK}{token}"), name=f"{link.name}.{token}")


def open_attempt(job: Job) -> Attempt:
    """Turn the stage directory of a job into an attempt: its files move along, and the job is written down."""
    attempt = named(job.directory, secrets.token_hex(4))
    job.directory.rename(attempt.directory)
    attempt.link.symlink_to(attempt.directory.name, target_is_directory=True)
    for log in (paths.STDOUT, paths.STDERR):
        (attempt.directory / log).touch()  # Slurm makes them when the job starts, if it ever does
    note(attempt, job, None)
    return attempt


def note(attempt: Attempt, job: Job, number: str | None) -> None:
    """Write job.json: what the launcher runs, and the job's id once it is known."""
    own, moved = str(job.directory), str(attempt.directory)
    argv = [moved if word == own else word for word in job.argv]
    told = {"schema": "kassay.job/1", "name": attempt.name, "id": number, "argv": argv, "timeout_s": job.timeout_s}
    # Set on the node: Slurm 22.05 takes CUDA_VISIBLE_DEVICES away from a job without GPUs, which then sees them all.
    unseen = {} if job.gpus else {gpus.VISIBLE: ""}
    digest.write_json(attempt.directory / JOB, told | {"environment": unseen})


def held_attempt(link: Path) -> Attempt | None:
    """The attempt that a stage directory links to; a link to another run's result is none.

    A driver that died while it renamed leaves an attempt without its link.
    """
    if link.is_symlink():
        targets = [os.readlink(link)]
    elif not link.exists() and link.parent.is_dir():
        targets = os.listdir(link.parent)
    else:
        return None
    start = f".{link.name}{MARK}"
    return next((named(link, name.removeprefix(start)) for name in sorted(targets) if name.startswith(start)), None)


def publish(attempt: Attempt) -> None:
    """Make the stage directory a plain one again."""
    attempt.link.unlink(missing_ok=True)
    attempt.directory.rename(attempt.link)


def submitted(attempt: Attempt) -> bool:
    """Whether the attempt is known to have become a job: its id was written down, or it ran."""
    try:
        told = json.loads((attempt.directory / JOB).read_bytes())
    except (OSError, ValueError):
        return False
    return told["id"] is not None or (attempt.directory / CLAIM).exists()


def left_by(attempt: Attempt) -> Left | None:
    """What the launcher left, None if it is not there or cannot be read.

    The folder is listed first: a shared file system may remember that a file was absent, and reading the folder anew
    makes it forget. exit.json was made last, so whoever sees it sees all the others.
    """
    try:
        if EXIT not in os.listdir(attempt.directory):
            return None
        told = json.loads((attempt.directory / EXIT).read_bytes())
        return Left(**{name: told[name] for name in Left.__dataclass_fields__})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # stale handles and half-transferred files of a shared file system: asked again
