"""SHA-256 of values, files and folders: the identity by which reuse is decided.

A value's digest is over its canonical JSON (sorted keys, no spaces, UTF-8). A folder's digest is over the sorted list
of relative path and file digest, so that neither time stamps nor the folder's place count.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kassay import atomic, cache
from kassay.errors import RunError

CHUNK_BYTES = 1 << 20
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
PLAIN = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
TICK_NS = 20_000_000  # two ticks of the slowest clock that files are stamped by
MOST_REMEMBERED = 5_000
Identity = tuple[str, int, int, int, int]
_known: dict[Identity, str] = {}
_lasting: set[Identity] = set()  # those whose file had not changed for a while when it was read


def of_value(value: Any) -> str:
    """Hex SHA-256 of the canonical JSON of `value`; a non-finite number is refused by json itself."""
    text = CANONICAL.encode(value)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()  # a file name may be no UTF-8


def of_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read once per `identity_of` in a process."""
    identity = identity_of(str(path))
    if identity not in _known:
        summed = hashlib.sha256()
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                summed.update(chunk)
        _known[identity] = summed.hexdigest()
    return _known[identity]


def of_lasting(path: Path) -> str:
    """Hex SHA-256 of a file of a tree, which other processes will ask for too: read once at all (`recall`)."""
    identity = identity_of(str(path))
    if identity in _known:
        return _known[identity]
    began_ns = time.time_ns()
    sha256 = of_file(path)
    if began_ns - identity[3] > TICK_NS and identity in _known:  # else it has changed since
        _lasting.add(identity)
    return sha256


def recall(book: Path) -> None:
    """Take digests from a file that `remember` wrote: what is as it was is not read again."""
    for *identity, sha256 in cache.read(book) or ():
        _known[tuple(identity)] = sha256


def remember(book: Path) -> None:
    """Write down the digests of files that were read, of each path the last; nothing if there is no new one."""
    if _lasting:
        rows = {row[0]: row for row in cache.read(book) or ()}
        for identity in _lasting:
            rows.pop(identity[0], None)
            rows[identity[0]] = (*identity, _known[identity])
        cache.write(book, list(rows.values())[-MOST_REMEMBERED:])
        _lasting.clear()


def identity_of(path: str) -> Identity:
    """Path, size, mtime, ctime and inode: what changes when a file's bytes do.

    The time of change cannot be put back by a program. Before Linux 6.13 it moves in ticks of up to 10 ms: a file that
    is changed to the same size within the tick in which it was read looks as it did.
    """
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def of_files(root: Path, files: Iterable[Path]) -> str:
    """Hex SHA-256 over the sorted (relative path, file digest) pairs of `files` below `root`."""
    return of_value(sorted((str(file.relative_to(root)), of_lasting(followed(file))) for file in files))


def followed(file: Path) -> Path:
    """The file itself, so that two links to one are read once: caches of checkpoints hold little but links."""
    return file.resolve() if file.is_symlink() else file


def of_path(path: Path) -> str:
    """Digest of a file, or of a folder's regular files; hidden files, caches and prose (*.md) do not count."""
    try:
        return of_lasting(path)
    except IsADirectoryError:
        pass
    return of_files(path, counted(path))


def of_unchanging(path: Path) -> str:
    """`of_path` of what is not ours. Raises RunError if it changed while it was read, or a link in it leads nowhere."""
    before = identities(path)
    sha256 = of_path(path)
    if changed := sorted({name for name, _ in before.items() ^ identities(path).items()}):
        raise RunError(f"{changed[0]} changed while its digest was taken: it has none")
    return sha256


def identities(path: Path) -> dict[str, Identity]:
    """What `identity_of` says of every file that counts. Raises RunError for a link that leads nowhere."""
    files = [path] if path.is_file() else counted(path)
    if dangling := sorted(link for link in path.rglob("*") if link.is_symlink() and not link.exists()):
        raise RunError(f"{dangling[0]} leads nowhere: the folder is not whole")
    return {str(file): identity_of(str(file)) for file in files}


def counted(folder: Path) -> list[Path]:
    """The regular files below a folder that are part of its identity; a link stands for the file that it leads to."""
    return [file for file in folder.rglob("*") if file.is_file() and counts(file.relative_to(folder))]


def counts(relative: Path) -> bool:
    """Whether a file of a folder is part of its identity."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
    return not hidden and relative.suffix != ".md"


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON so that a reader sees the old file or the whole new one, also after a crash."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode())


def write_soon(path: Path, value: Any) -> None:
    """Write `value` as JSON on one line; it is durable after `sync`."""
    atomic.replace(path, (PLAIN.encode(value) + "\n").encode(), durable=False)


def write_new(path: str, value: Any) -> None:
    """Write `value` as JSON into a file that nobody reads before another says so."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        atomic.write(fd, (PLAIN.encode(value) + "\n").encode())
    finally:
        os.close(fd)


def sync(folder: Path) -> None:
    """Make all that was written to the folder's file system durable, in one call (Linux syncfs)."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        import ctypes

        if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(fd)


def write_bytes(path: Path, data: bytes) -> None:
    """Write by temporary file, fsync, rename and fsync of the folder."""
    atomic.replace(path, data, durable=True)
