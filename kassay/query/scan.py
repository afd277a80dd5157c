"""Which files of which runs are read, and how much of each: a look at a results folder as it is at this moment.

A run that goes on, or whose driver was killed, is read like an ended one. A file of a stage that has not ended may grow
while it is read, and may end in half a line: then a copy up to its last whole line is read, and what was left out is
told. A result that a run took from another one is the same file; it is read once, and belongs to both runs.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kassay import paths
from kassay.earlier import entries
from kassay.errors import RecordError, RunError
from kassay.record import parse_line

CHUNK_BYTES = 1 << 20
OF_RUN = (paths.EVENTS, "mirror.jsonl")  # files of records beside the stages


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of records, and the run and stage that have it."""

    file: str  # what is read: the file itself or a copy of its whole lines
    origin: str  # the file itself
    run: str
    stage: str | None  # None: a file of the run as a whole
    made_in: str  # the run in which it was written


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What of a results folder is read."""

    runs: tuple[Path, ...]  # newest first
    sources: tuple[Source, ...]
    left_out: tuple[str, ...]  # half lines that are not read, in words


def runs_in(results: Path, names: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The run directories of a results folder, newest first by name's time. Raises RunError for a name that is none."""
    if names:
        found = [results / name for name in names]
        if gone := [path.name for path in found if not (path / paths.PLAN).is_file()]:
            raise RunError(f"no run `{gone[0]}` in {paths.shown(results)}", hint="make runs lists them")
        return tuple(path.resolve() for path in found)
    found = [Path(entry.path) for entry in entries(results)]
    return tuple(sorted((path for path in found if (path / paths.PLAN).is_file()), key=age, reverse=True))


def age(run_dir: Path) -> tuple[str, str]:
    """By the time in the run's name, then by the name: `<profile>-<UTC time>-<hash>`."""
    parts = run_dir.name.rsplit("-", 2)
    return (parts[1] if len(parts) == 3 else "", run_dir.name)


def scan(results: Path, names: tuple[str, ...], copies: Path) -> Scan:
    """The files to read; copies of whole lines are made below `copies`."""
    runs = runs_in(results, names)
    sources: list[Source] = []
    left_out: list[str] = []
    readable: dict[Path, str] = {}
    for run_dir in runs:
        for stage, path, final in files_of(run_dir):
            real = path.resolve()
            if real not in readable:
                readable[real] = whole_lines(real, final, copies, left_out)
            made_in = real.parent.parent.parent.name if stage else run_dir.name
            place = {"file": readable[real], "origin": str(real)}
            sources.append(Source(**place, run=run_dir.name, stage=stage, made_in=made_in))
    return Scan(runs=runs, sources=tuple(sources), left_out=tuple(left_out))


def files_of(run_dir: Path) -> Iterator[tuple[str | None, Path, bool]]:
    """Stage, file of records, and whether nobody writes to it any more."""
    for name in OF_RUN:
        if (path := run_dir / name).is_file():
            yield None, path, False
    with os.scandir(run_dir / "stages") as found:
        stages = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in stages:
        directory = Path(entry.path)
        if (path := directory / paths.RECORDS).is_file():
            yield entry.name, path, (directory / paths.OUTCOME).is_file()


def whole_lines(path: Path, final: bool, copies: Path, left_out: list[str]) -> str:
    """The file to read in the place of `path`: itself, or a copy up to its last line that is whole."""
    size, kept = extent(path)
    if size != kept:
        left_out.append(
            f"{path.parent.parent.parent.name}/{path.parent.name}/{path.name}: {size - kept} bytes of a line"
        )
    elif final:
        return str(path)
    copies.mkdir(exist_ok=True)
    fd, copy = tempfile.mkstemp(dir=copies, suffix=".jsonl")
    with path.open("rb") as source, os.fdopen(fd, "wb") as target:
        left = kept
        while left and (chunk := source.read(min(left, CHUNK_BYTES))):
            target.write(chunk)
            left -= len(chunk)
        if ends_whole(path, kept):
            target.write(b"\n")
    return copy


def extent(path: Path) -> tuple[int, int]:
    """Size of a file, and how much of it is whole lines; one that lacks nothing but its newline is whole."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        place, tail = size, b""
        while place and b"\n" not in tail:
            step = min(CHUNK_BYTES, place)
            stream.seek(place - step)
            tail = stream.read(step) + tail
            place -= step
    whole = size - len(tail) + tail.rfind(b"\n") + 1
    return size, size if is_record(tail[tail.rfind(b"\n") + 1 :]) else whole


def ends_whole(path: Path, kept: int) -> bool:
    """Whether the last kept line lacks its newline."""
    if not kept:
        return False
    with path.open("rb") as stream:
        stream.seek(kept - 1)
        return stream.read(1) != b"\n"


def is_record(line: bytes) -> bool:
    """Whether a line without its newline is a whole record."""
    if not line:
        return False
    try:
        parse_line(line + b"\n", "")
    except RecordError:
        return False
    return True


def discard(copies: Path) -> None:
    """Take the copies away."""
    shutil.rmtree(copies, ignore_errors=True)
