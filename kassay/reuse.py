"""What of a run's results is there already: in this run, in an earlier one, or kept on demand though it is stale.

A stale result that was kept (`make KEEP=x`) is written down in kept.json of the run until the stage answers again, and
every report says so.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, identity, paths
from kassay.book import Book
from kassay.earlier import Earlier
from kassay.identity import Wanted
from kassay.outcome import Outcome
from kassay.rundir import kept_of, set_aside

FORCED = "forced"


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A result that is there, where, and in what it is stale if it is kept all the same."""

    outcome: Outcome
    directory: Path
    stale: str  # empty: it answers


class Reuse:
    """The results that a run may take."""

    def __init__(self, run_dir: Path, results: Path, force: frozenset[str], keep: frozenset[str]) -> None:
        self.run_dir = run_dir
        self.keep = keep
        self._forced = set(force)
        self._book = Book(run_dir)
        self._earlier = Earlier(results)
        self.stale = kept_of(run_dir)

    def find(self, wanted: Wanted, read: dict[str, str]) -> Taken | str:
        """A result that answers `wanted` and left what others `read` of it; else why there is none."""
        found = self._find(wanted)
        if isinstance(found, Taken) and (lack := found.outcome.lacks(read)):
            return lack
        return found

    def _find(self, wanted: Wanted) -> Taken | str:
        own = paths.stage_dir(self.run_dir, wanted.stage.name)
        if wanted.stage.name in self._forced:
            return FORCED
        if (outcome := self._book.answer(own, wanted)) is not None:
            return Taken(outcome=outcome, directory=own, stale="")
        began_ns = time.time_ns()
        found = identity.examine(own, wanted)
        if found.why is not None and not wanted.stage.after_all:
            found = self._earlier.find(wanted, found.why)
        if found.why is None:
            if found.directory == own:
                self._book.enter(wanted, found, began_ns)
            return Taken(outcome=found.made(), directory=found.directory, stale="")
        if wanted.stage.name in self.keep and (old := self._earlier.intact(wanted)) is not None:
            return Taken(outcome=old.made(), directory=old.directory, stale=found.why)
        return found.why

    def forced(self, stage: str) -> bool:
        """Whether the stage is to run whatever is there."""
        return stage in self._forced

    def started(self, stage: str) -> None:
        """The stage runs: what was there of it is the past."""
        self._forced.discard(stage)
        self.mark(stage, "")

    def mark(self, stage: str, stale: str) -> None:
        """Write down that a stale result of the stage is kept, or is no more."""
        if self.stale.get(stage, "") != stale:
            self.stale = {name: why for name, why in {**self.stale, stage: stale}.items() if why}
            digest.write_json(self.run_dir / paths.KEPT, {"schema": "kassay.kept/1", "stages": self.stale})

    def set_aside(self, directory: Path) -> None:
        """Make the place of a stage free; what lay there can still be found."""
        if (target := set_aside(directory)) is not None:
            self._earlier.add(directory.name, target)

    def look_again(self) -> None:
        """Time has passed: files may be others."""
        self._book.look_again()

    def made(self, wanted: Wanted, outcome: Outcome, receipt: dict[str, Any]) -> None:
        """An executable has passed. What the driver itself wrote of it need not be read again."""
        self._book.made(paths.stage_dir(self.run_dir, outcome.stage), wanted, outcome, receipt)

    def save(self) -> None:
        """Keep what was found out for the next driver."""
        self._book.save()
