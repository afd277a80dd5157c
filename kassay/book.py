"""The book of a run: which results were found to answer what was wanted, and the state of every file that said so.

`identity.examine` reads a stage's files and decides. While size, time of change and inode of all of them are the same
and the same is wanted, the answer is the same, and nothing is read again: `make` with nothing to do costs a look at
each file. It is a cache; without it, or where anything differs, the files are read.
"""

import time
from pathlib import Path
from typing import Any

from kassay import cache, digest, earlier, identity, paths
from kassay.identity import Found, Wanted
from kassay.outcome import Outcome

CHANGED = 2  # place of the time of change in a state
OWN = (paths.REQUEST, paths.RECEIPT, paths.OUTCOME)
KEPT = ("python", "packages", "argv0", "executable")  # of a receipt: what is asked of the environment
RULES = (identity.__file__, earlier.__file__, __file__)  # other rules, another book


class Book:
    """What was decided about the stages of one run directory."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / paths.BOOK
        self._head = {"trees": [str(tree) for tree in paths.trees()], "rules": [digest.of_file(Path(f)) for f in RULES]}
        told = cache.read(self.path)
        same = isinstance(told, dict) and told.get("head") == self._head
        self._entries: dict[str, dict[str, Any]] = told["entries"] if same else {}
        self._changed = False
        self._shared: dict[str, tuple[int, ...] | None] = {}
        self._fresh: list[tuple[Path, Wanted, dict[str, Any], str]] = []

    def look_again(self) -> None:
        """Time has passed: what was seen of code and foundations a moment ago is forgotten."""
        self._shared.clear()

    def answer(self, directory: Path, wanted: Wanted) -> Outcome | None:
        """The outcome in a stage directory if nothing has changed since it was found to answer the very same."""
        entry = self._entries.get(wanted.stage.name)
        if entry is None or entry["wanted"] != digest.of_value(wanted.parts()):
            return None
        if digest.of_value(self._states(directory, entry)) != entry["states"]:
            return None
        if "stack" not in wanted.inputs and identity.changed_environment(entry["receipt"]):
            return None
        return Outcome.from_body(entry["outcome"])

    def enter(self, wanted: Wanted, found: Found, since_ns: int) -> None:
        """Keep what was found by reading, unless a file may have changed since the reading began at `since_ns`."""
        entry = {"receipt": kept(found.receipt), "outcome": found.made().body()}
        states = self._states(found.directory, entry)
        if settled(states, since_ns):
            self._put(wanted, entry, digest.of_value(states))

    def made(self, directory: Path, wanted: Wanted, outcome: Outcome, receipt: dict[str, Any]) -> None:
        """What the driver has just written, of artifacts that it has just read: entered by `save`, if it stays so."""
        entry = {"receipt": kept(receipt), "outcome": outcome.body()}
        self._fresh.append((directory, wanted, entry, digest.of_value(self._states(directory, entry))))

    def _put(self, wanted: Wanted, entry: dict[str, Any], states: str) -> None:
        known = {"wanted": digest.of_value(wanted.parts()), "states": states}
        self._entries[wanted.stage.name] = {**entry, **known}
        self._changed = True

    def save(self) -> None:
        """Write it down if it has grown."""
        self.look_again()
        for directory, wanted, entry, before in self._fresh:
            states = self._states(directory, entry)
            if digest.of_value(states) == before and settled(states, time.time_ns()):
                self._put(wanted, entry, before)
        if self._changed:
            cache.write(self.path, {"head": self._head, "entries": self._entries})

    def _states(self, directory: Path, entry: dict[str, Any]) -> list[tuple[int, ...] | None]:
        """The state of every file that decides: the stage's own, its artifacts, its foundations, its code."""
        receipt = entry["receipt"]
        artifacts = (artifact["file"] for artifact in entry["outcome"]["artifacts"].values())
        own = [state(f"{directory}/{name}") for name in (*OWN, *artifacts)]
        code = [str(place) for name in receipt["code"] for place in paths.places(name)]
        return own + [self._of_shared(path) for path in (*receipt["foundations"], *code)]

    def _of_shared(self, path: str) -> tuple[int, ...] | None:
        """The state of a file that many stages share, looked at once until `look_again`."""
        if path not in self._shared:
            self._shared[path] = state(path)
        return self._shared[path]


def kept(receipt: dict[str, Any]) -> dict[str, Any]:
    """What of a receipt is asked again."""
    found = {name: receipt[name] for name in KEPT if name in receipt}
    return found | {name: list(receipt[name]) for name in ("code", "foundations")}


def settled(states: list[tuple[int, ...] | None], since_ns: int) -> bool:
    """Whether all files are there and had not changed for a while when their reading began."""
    return all(state is not None and state[CHANGED] <= since_ns - digest.TICK_NS for state in states)


def state(path: str) -> tuple[int, ...] | None:
    """Size, times and inode of a file as it is now; None if it is not there."""
    try:
        return digest.identity_of(path)[1:]
    except OSError:
        return None
