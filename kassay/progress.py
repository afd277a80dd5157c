"""What a person sees while a run goes on: a live table on a terminal, one plain line per event elsewhere.

It writes to standard error and can change nothing; colour only repeats what the words say.
"""

import json
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from kassay import paths
from kassay.events import Event

REFRESH_S = 0.25
COLOURS = {
    "passed": "green",
    "reused": "green",
    "running": "cyan",
    "rejected": "yellow",
    "unmet": "yellow",
    "crashed": "red",
    "blocked": "magenta",
}


class Lines:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started = time.monotonic()

    def event(self, event: Event) -> None:
        """Print the event with the seconds since the run began."""
        what = event.event.replace("_", " ")
        name = f" {event.stage}" if event.stage else ""
        why = f" ({event.why})" if event.why else ""
        line = f"[{time.monotonic() - self.started:6.1f} s] {what}{name}{why}"
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def tick(self, states: dict[str, str]) -> None:
        """Nothing: plain output speaks at events only."""

    def close(self) -> None:
        """Nothing is open."""


class LiveTable:
    """A table of all stages that is redrawn in place."""

    def __init__(self, console: Console, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.since: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.drawn_at = 0.0
        self.live = Live(console=console, auto_refresh=False, transient=False)
        self.live.start()

    def event(self, event: Event) -> None:
        """Keep the time at which a stage started or ended."""
        if event.stage and event.event in ("stage_started", "stage_attached"):
            self.since[event.stage] = time.monotonic()
        elif event.stage and event.stage in self.since:
            self.took[event.stage] = time.monotonic() - self.since[event.stage]

    def tick(self, states: dict[str, str]) -> None:
        """Redraw at most four times a second, and whenever nothing runs any more."""
        over = not {"running", "waiting"} & set(states.values())
        if not over and time.monotonic() - self.drawn_at < REFRESH_S:
            return
        self.drawn_at = time.monotonic()
        table = Table("stage", "state", "time", "progress", box=None, pad_edge=False)
        for name, word in states.items():
            table.add_row(
                name, f"[{COLOURS.get(word, 'dim')}]{word}[/]", self.elapsed(name, word), self.done(name, word)
            )
        self.live.update(table, refresh=True)

    def elapsed(self, name: str, word: str) -> str:
        """Seconds that the stage has taken, empty where it did not run."""
        if word == "running" and name in self.since:
            return f"{time.monotonic() - self.since[name]:.0f} s"
        return f"{self.took[name]:.0f} s" if name in self.took else ("reused" if word == "passed" else "")

    def done(self, name: str, word: str) -> str:
        """The stage's own last word on how far it is."""
        if word != "running":
            return ""
        try:
            told = json.loads((paths.stage_dir(self.run_dir, name) / paths.PROGRESS).read_bytes())
        except (OSError, ValueError):
            return ""  # it has told nothing yet
        return f"{told['done']}/{told['total']} {told['what']}"

    def close(self) -> None:
        """Leave the last table on the screen."""
        self.live.stop()
