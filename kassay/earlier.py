"""Results of earlier runs: an index of all stage directories below a results folder, made once by a driver.

A run that was asked something else may hold a stage that was asked the very same; the newest one that answers is taken.
"""

import os
from pathlib import Path

from kassay import paths
from kassay.identity import NEVER_RAN, Found, Wanted, examine, measured_elsewhere, nothing

STALE = ".stale-"  # `.<stage>.stale-<n>` beside the stage directory: set aside, never overwritten


class Earlier:
    """Where each stage was run before, in any run, set aside directories included."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._index: dict[str, list[Path]] | None = None

    def find(self, wanted: Wanted, why: str) -> Found:
        """The newest result that answers `wanted`; else none, with `why` or what says more than `never ran`."""
        for directory in self.of(wanted.stage.name):
            found = examine(directory, wanted)
            other = found.why or measured_elsewhere(directory)
            if other is None:
                return found
            why = other if why == NEVER_RAN else why
        return nothing(self.results, why)

    def intact(self, wanted: Wanted) -> Found | None:
        """The newest result of this stage that is whole, whatever it answers."""
        for directory in self.of(wanted.stage.name):
            found = examine(directory, wanted)
            if found.why is None or found.intact():
                return found
        return None

    def of(self, stage: str) -> list[Path]:
        """Real directories of this stage, newest first."""
        if self._index is None:
            self._index = indexed(self.results)
        asked = {path: asked_at(path) for path in self._index.get(stage, [])}
        return sorted((path for path in asked if asked[path]), key=lambda path: asked[path], reverse=True)

    def add(self, stage: str, directory: Path) -> None:
        """A directory that was set aside after the index was made."""
        if self._index is not None:
            self._index.setdefault(stage, []).append(directory)


def indexed(results: Path) -> dict[str, list[Path]]:
    """Stage -> its directories in all runs; links are passed over."""
    found: dict[str, list[Path]] = {}
    for run in entries(results):
        for entry in entries(Path(run.path) / "stages"):
            name, stale, _ = entry.name.rpartition(STALE)
            stage = name.removeprefix(".") if stale else entry.name
            if not stage.startswith("."):
                found.setdefault(stage, []).append(Path(entry.path))
    return found


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """The real folders of a folder; none if it is not there."""
    try:
        with os.scandir(folder) as found:
            return [entry for entry in found if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def asked_at(directory: Path) -> int:
    """When the stage was asked, in nanoseconds; 0 if it never was."""
    try:
        return (directory / paths.REQUEST).stat().st_mtime_ns
    except OSError:
        return 0
