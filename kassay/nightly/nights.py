"""The folders of nights, `<results>/nightly/<profile>-<UTC time>`: their mark, which was the last, and which may go.

A mark (`.nightly.json`) is written before a night begins and again when it has ended. What is removed carries a mark
that names its own folder, is no link, has ended or lost its driver, and is neither tonight nor the run of a baseline;
it is renamed before its files go, so that half a night is never taken for one.
"""

import datetime
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kassay import digest
from kassay.lock import started_at
from kassay.stage import utc_now

FOLDER = "nightly"
MARK = ".nightly.json"
SCHEMA = "kassay.nightly/1"
GOING = ".going-"  # of a night whose files are being removed
LATEST = "latest"
PAUSE_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a night says of itself."""

    night: str  # name of its folder
    profile: str
    commit: str  # of kassay's own tree, which was clean
    started_at: str  # UTC, ISO 8601
    pid: int
    host: str
    ticks: int  # when that process was started: a pid alone may be somebody else's by now
    ended_at: str | None  # None: it goes on, was cancelled, or died
    run: str | None  # id of its run; None: none was made
    exit_code: int | None  # of the night as a whole; None: it has no verdict

    def alive(self) -> bool:
        """Whether its driver goes on; of another host nothing is known, so it is taken for alive."""
        return self.ended_at is None and (self.host != os.uname().nodename or started_at(self.pid) == self.ticks)

    @property
    def fate(self) -> str:
        """How it ended, in words."""
        if self.ended_at is None:
            return "goes on" if self.alive() else "was cut short"
        return "was cancelled" if self.exit_code is None else f"ended with {self.exit_code}"


def begin(folder: Path, profile: str, commit: str) -> Path:
    """Make the folder of a night that begins now, with its mark."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".gitignore").exists():
        (folder / ".gitignore").write_text("*\n")  # nights are no part of the tree that must be clean
    ended = [mark.ended_at or mark.started_at for mark in of_profile(folder, profile)]
    while (now := utc_now())[:19] <= max(ended, default="")[:19]:
        time.sleep(PAUSE_S)  # a run's id has its second: no two nights may share one
    night = f"{profile}-{now[:19].replace('-', '').replace(':', '')}Z"
    (folder / night).mkdir()
    write(
        folder / night,
        Mark(
            night=night,
            profile=profile,
            commit=commit,
            started_at=now,
            pid=os.getpid(),
            host=os.uname().nodename,
            ticks=started_at(os.getpid()),
            ended_at=None,
            run=None,
            exit_code=None,
        ),
    )
    return folder / night


def end(place: Path, run: str | None, exit_code: int | None) -> None:
    """Write down how a night ended; no exit code: it was cancelled."""
    mark = read(place)
    assert mark is not None, "a bug: a night without its mark"
    write(place, replace(mark, ended_at=utc_now(), run=run, exit_code=exit_code))


def write(place: Path, mark: Mark) -> None:
    """Write a mark."""
    digest.write_json(place / MARK, {"schema": SCHEMA, **asdict(mark)})


def read(place: Path) -> Mark | None:
    """The mark of a folder; None if it is none of ours, a link, or names another folder."""
    try:
        if place.is_symlink() or (place / MARK).is_symlink():
            return None
        body = json.loads((place / MARK).read_bytes())
        if body.pop("schema") != SCHEMA:
            return None
        mark = Mark(**body)
        datetime.datetime.fromisoformat(mark.started_at)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return mark if mark.night == place.name else None


def asked_as(run_dir: Path) -> str:
    """What RUN= is for a run that may be one of a night."""
    mark = read(run_dir.parent)
    return run_dir.name if mark is None else f"{FOLDER}/{mark.night}/{run_dir.name}"


def of_profile(folder: Path, profile: str) -> list[Mark]:
    """The nights of a profile, newest first."""
    found = [read(place) for place in (folder.iterdir() if folder.is_dir() else ())]
    return sorted(
        (mark for mark in found if mark and mark.profile == profile),
        key=lambda mark: (mark.started_at, mark.night),
        reverse=True,
    )


def removable(marks: list[Mark], keep: int, days: int, kept_runs: set[str], now: datetime.datetime) -> list[Mark]:
    """The nights that may go: beyond the newest `keep`, or older than `days` (0: whatever their age)."""
    oldest = now - datetime.timedelta(days=days)
    return [
        mark
        for number, mark in enumerate(marks)
        if number > 0
        and (number >= keep or (days and datetime.datetime.fromisoformat(mark.started_at) < oldest))
        and mark.run not in kept_runs
        and not mark.alive()
    ]


def remove(folder: Path, mark: Mark) -> bool:
    """Remove a night; false if its folder does not carry that very mark any more."""
    place = folder / mark.night
    if read(place) != mark:
        return False
    going = folder / f"{GOING}{mark.night}"
    shutil.rmtree(going, ignore_errors=True)
    place.rename(going)
    shutil.rmtree(going)
    return True
