"""Files that any reader sees as they were or whole, never in between: written beside, renamed over.

The temporary has a fixed name, so that one which a killed writer left is taken over by the next and nothing piles up.
Two writers at once are told apart by a lock on it, and the second takes a name of its own.
"""

import fcntl
import os
import tempfile
from pathlib import Path

SUFFIX = ".new"


def replace(path: Path, data: bytes, durable: bool) -> None:
    """Write a file. A durable one is on the disk with its name when this returns; another after `digest.sync`."""
    fd, temporary = opened(path)
    try:
        write(fd, data)
        if durable:
            os.fsync(fd)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # what went wrong is told
        raise
    finally:
        os.close(fd)
    if durable:
        sync_folder(path.parent)


def opened(path: Path) -> tuple[int, str]:
    """An empty file beside `path`, open for writing, and its name."""
    name = f"{path.parent}/.{path.name}{SUFFIX}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(name).st_ino == os.fstat(fd).st_ino:  # else the other writer has just renamed it
            os.ftruncate(fd, 0)
            return fd, name
    except OSError:
        pass  # another writes it now, or the file system has no locks
    os.close(fd)
    fd, other = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.fchmod(fd, 0o644)
    return fd, other


def write(fd: int, data: bytes) -> None:
    """Write all of it; a disk that takes only a part says why at the next call."""
    while data:
        data = data[os.write(fd, data) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to a folder, in one step. Only the owner of the folder around it may call this."""
    temporary = link.with_name(f".{link.name}{SUFFIX}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)
