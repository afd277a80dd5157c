"""Locks that the drivers of one user on one host share, so that their stages respect each other.

    <temporary folder>/kassay-<uid>/host.lock       shared while stages run, exclusive while one runs that must be alone
    <temporary folder>/kassay-<uid>/gpu-<name>.lock exclusive while a stage has that GPU

The kernel lets a lock go when its holder dies, however it dies, and no stage inherits one. Drivers of another user, of
another container or with another TMPDIR do not take part. Nobody queues: a driver that wants to be alone asks again
until no other runs a stage, which may be as long as the other lasts. Where the folder cannot be written there are no
locks; this is said once, and the run goes on.
"""

import fcntl
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HOST = "host.lock"
_told: set[str] = set()


@dataclass(frozen=True, kw_only=True)
class HostLock:
    """A lock that is held."""

    descriptor: int | None  # None: there are no locks on this host

    def release(self) -> None:
        """Let it go."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def folder() -> Path:
    """Where the locks of this user lie."""
    return Path(tempfile.gettempdir()) / f"kassay-{os.getuid()}"


def acquire(name: str, exclusive: bool) -> HostLock | None:
    """The lock of that name if nobody else has it in a way that excludes ours, else None; it never waits."""
    try:
        while True:
            descriptor = opened(folder(), name)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                if is_at(descriptor, folder() / name):
                    os.utime(descriptor)  # what tidies the temporary folder looks for old files
                    return HostLock(descriptor=descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody removed the file meanwhile: its lock says nothing
    except BlockingIOError:
        return None
    except OSError as error:
        told_once(f"no locks between runs on this host: {folder()}: {error.strerror}")
        return HostLock(descriptor=None)


def opened(place: Path, name: str) -> int:
    """The descriptor of a lock file. Raises OSError if the folder is not this user's alone."""
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(1, "it is not a folder of this user")
    return os.open(place / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that its path names."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def told_once(text: str) -> None:
    """Say it on stderr, unless it has been said."""
    if text not in _told:
        _told.add(text)
        print(text, file=sys.stderr)
