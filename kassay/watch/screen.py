"""Stages as aligned text: all of them for a pipe, as many as matter on a terminal that is drawn over and over.

Where there are more stages than rows, those that run are shown, those that failed and the next ones that wait; a line
of counts tells of all. Colour only repeats the state's word.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from kassay.report.words import counted, seconds
from kassay.watch.told import shortened
from kassay.watch.view import Row

if TYPE_CHECKING:
    from rich.text import Text

COLOURS = {
    "passed": "green",
    "reused": "green",
    "kept": "yellow",
    "running": "cyan",
    "rejected": "yellow",
    "unmet": "yellow",
    "crashed": "red",
    "lost": "red",
    "blocked": "magenta",
}
FAILED = ("crashed", "lost", "rejected", "unmet")
NEXT = 3  # waiting stages that are shown where not all stages fit
AROUND = 5  # lines that are no stage: title, column names, counts, and the cursor's own two
FEWEST = 3  # stages, on however small a screen
ABSENT = "-"
GAP = "  "
COLUMNS = ("stage", "state", "time", "gpus", "progress", "why")
NO_SCREEN = ("", "dumb", "unknown")  # of TERM


def on_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream and it can be drawn over."""
    return stream.isatty() and os.environ.get("TERM", "") not in NO_SCREEN


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns two or more spaces apart; an empty cell is `-`."""
    full = [[cell or ABSENT for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*full, strict=True)]
    return [GAP.join(map(str.ljust, row, widths)).rstrip() for row in full]


def listing(rows: Iterable[Row]) -> list[str]:
    """Every stage with all that is told of it, under the columns' names."""
    cells = [(row.stage, row.state, lasted(row), row.gpus, row.progress, row.why) for row in rows]
    return aligned([COLUMNS, *cells])


def lasted(row: Row) -> str:
    """How long a stage takes or took."""
    return "" if row.seconds is None else seconds(row.seconds)


def counts(states: Mapping[str, str]) -> str:
    """`40 stages: 2 running, 37 waiting, 1 crashed`."""
    found = Counter(states.values())
    ordered = [word for word in ("running", "waiting") if word in found]
    ordered += [word for word in found if word not in ordered]
    return f"{counted(len(states), 'stage')}: {', '.join(f'{found[word]:,} {word}' for word in ordered)}"


def chosen(states: Mapping[str, str], room: int) -> list[str]:
    """The stages that are shown in so many rows, in the plan's order."""
    if len(states) <= room:
        return list(states)
    by_state: dict[str, list[str]] = {}
    for name, state in states.items():
        by_state.setdefault(state, []).append(name)
    wanted = [*by_state.get("running", []), *(name for word in FAILED for name in by_state.get(word, []))]
    shown = set([*wanted, *by_state.get("waiting", [])[:NEXT]][:room])
    return [name for name in states if name in shown]


def about(row: Row) -> str:
    """What a narrow table tells of a stage: its GPUs and progress while it runs, else why it is where it is."""
    if row.state != "running":
        return row.why
    gpus = f"GPU {row.gpus}" if row.gpus[:1].isdigit() else shortened(row.gpus)
    return GAP.join(filter(None, [gpus, row.progress]))


class Screen:
    """A table that is redrawn in place on a terminal, and lines above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(file=stream)
        self.live = Live(console=self.console, auto_refresh=False)
        self.gone = False  # the terminal was closed: whoever drew goes on without it
        self.live.start()

    def draw(self, title: str, states: Mapping[str, str], row: Callable[[str], Row]) -> None:
        """Draw the stages that fit; `row` is asked of these only."""
        from rich.text import Text

        rows = [row(name) for name in chosen(states, max(FEWEST, self.console.height - AROUND))]
        lines = [Text(title), *self.table(rows), Text(counts(states))]
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        self.guarded(lambda: self.live.update(Text("\n").join(lines), refresh=True))

    def table(self, rows: list[Row]) -> "list[Text]":
        """Column names and one line a stage, the state's word in its colour."""
        from rich.text import Text

        cells = [(row.stage, row.state, lasted(row), about(row)) for row in rows]
        widest = max((len(row.stage) for row in rows), default=0)
        start = max(widest, len(COLUMNS[0])) + len(GAP)
        lines = [Text(line) for line in aligned([("stage", "state", "time", ""), *cells])]
        lines[0] = Text(lines[0].plain.removesuffix(ABSENT).rstrip(), style="dim")
        for line, row in zip(lines[1:], rows, strict=True):
            line.stylize(COLOURS.get(row.state, "dim"), start, start + len(row.state))
        return lines

    def say(self, lines: Iterable[str]) -> None:
        """Print lines above the table, as long as they are."""
        from rich.text import Text

        self.guarded(lambda: self.console.print(Text("\n".join(lines)), soft_wrap=True))

    def guarded(self, write: Callable[[], None]) -> None:
        """Write, unless the terminal was closed."""
        if not self.gone:
            self.attempt(write)

    def attempt(self, write: Callable[[], None]) -> None:
        """Write, or note that nobody can see it."""
        try:
            write()
        except OSError:
            self.gone = True

    def close(self) -> None:
        """Leave the last table on the screen; standard output and error are themselves again."""
        self.attempt(self.live.stop)
