"""Symbols that had another name before: what a .config of an older kassay is told to write, and nothing more.

The one table of them. Nothing is migrated: a value that was chosen under one meaning is not carried over to another
without a word, and the user's file stays as it is until the user changes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Renamed:
    """What became of a symbol."""

    now: tuple[str, ...]  # symbols that stand for it; the same value in each means what it meant
    why: str


RENAMED = {
    "TIMING_THROTTLED_PERCENT": Renamed(
        now=("TIMING_POWER_CAPPED_PERCENT", "TIMING_SLOWDOWN_PERCENT"), why="power caps and slowdowns are limits apart"
    ),
}


def said(name: str) -> str:
    """What became of a symbol, to stand behind `unknown symbol`; empty if it never was one."""
    found = RENAMED.get(name)
    return "" if found is None else f"; it is {listed(found.now)} now: {found.why}"


def lines(name: str, text: str, where: str) -> str:
    """What to write in place of an assignment, as its file or the command line has it."""
    head = "" if where.startswith("command line") else "CONFIG_"
    return f"write {listed(f'{head}{new}={text}' for new in RENAMED[name].now)} in place of `{head}{name}={text}`"


def listed(names: Iterable[str]) -> str:
    """Names as literals."""
    return " and ".join(f"`{name}`" for name in names)
