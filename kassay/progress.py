"""What a person sees while a run goes on: a live table on a terminal, one plain line per event elsewhere.

It writes to standard error and can change nothing: if nobody reads any more, it is silent. Only the table needs rich.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TextIO

from kassay import paths
from kassay.events import Event
from kassay.report.words import one_line
from kassay.watch import told
from kassay.watch.screen import Screen, on_terminal
from kassay.watch.session import Step, ended_word
from kassay.watch.view import Row

REFRESH_S = 0.5  # a measurement may run beside it


class Progress(Protocol):
    """Shows a run while it goes on."""

    def event(self, event: Event) -> None:
        """Something happened."""

    def tick(self, states: dict[str, str], waits: Callable[[str], str]) -> None:
        """The loop went round: a word for every stage, and how to ask in words what a waiting one waits for."""

    def close(self) -> None:
        """The run is over."""


def shown_on_stderr(run_dir: Path) -> Progress:
    """The table if standard error is a terminal, else lines."""
    return LiveTable(run_dir, sys.stderr) if on_terminal(sys.stderr) else Lines(run_dir)


def event_line(event: Event, since_start_s: float) -> str:
    """An event in words, with the seconds since the run began."""
    name = f" {event.stage}" if event.stage else ""
    why = f" ({one_line(event.why)})" if event.why else ""
    return f"[{since_start_s:6.1f} s] {event.event.replace('_', ' ')}{name}{why}"


def crash_lines(run_dir: Path, event: Event) -> list[str]:
    """The end of the log of a stage that this event says to have crashed; nothing for another event."""
    if event.event != "stage_ended" or event.stage is None or ended_word(event.why) != "crashed":
        return []
    return told.crash_report(run_dir, event.stage)


class Lines:
    """One line per event, for logs and pipes."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.began = time.monotonic()
        self.gone = False

    def event(self, event: Event) -> None:
        """Print the event; of a crash also where the log is and how it ends."""
        lines = [event_line(event, time.monotonic() - self.began), *crash_lines(self.run_dir, event)]
        try:
            if not self.gone:
                print("\n".join(lines), file=sys.stderr, flush=True)
        except OSError:
            self.gone = True  # the reader went away; the run goes on

    def tick(self, states: dict[str, str], waits: Callable[[str], str]) -> None:
        """Nothing: plain output speaks at events only."""

    def close(self) -> None:
        """Nothing is open."""


class LiveTable:
    """The stages as a table that is redrawn in place."""

    def __init__(self, run_dir: Path, stream: TextIO) -> None:
        self.run_dir = run_dir
        self.began = time.monotonic()
        self.due = self.began
        self.since: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.steps: dict[str, Step] = {}
        self.interrupted = False
        self.states: dict[str, str] = {}
        self.waits: Callable[[str], str] = lambda name: ""
        self.screen = Screen(stream)

    def event(self, event: Event) -> None:
        """Keep what was done with a stage and when; a crash is told above the table."""
        self.interrupted |= event.event == "run_interrupted"
        if event.stage is None:
            return
        now = time.monotonic()
        self.steps[event.stage] = step = Step(event=event.event, at=event.at, why=event.why)
        if step.state == "running":
            self.since[event.stage] = now
        elif event.stage in self.since:
            self.took[event.stage] = now - self.since[event.stage]
        if tail := crash_lines(self.run_dir, event):
            self.screen.say([event_line(event, now - self.began), *tail])

    def tick(self, states: dict[str, str], waits: Callable[[str], str]) -> None:
        """Redraw if it is time to."""
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + REFRESH_S
        self.states, self.waits = states, waits
        self.draw()

    def draw(self) -> None:
        """Draw the stages as they are now."""
        shown = {name: self.state(name, word) for name, word in self.states.items()}
        self.screen.draw(f"{self.run_dir.name}, {time.monotonic() - self.began:.0f} s", shown, self.row)

    def state(self, name: str, word: str) -> str:
        """The loop's word, told more exactly: a result that was there is reused or kept."""
        if word == "running" and self.interrupted:
            return "waiting"
        step = self.steps.get(name)
        reused = step is not None and word == "passed" and step.event in ("stage_reused", "stage_kept")
        return step.state if step is not None and reused else word

    def row(self, name: str) -> Row:
        """All that is told of one stage."""
        state = self.state(name, self.states[name])
        running = state == "running"
        directory = paths.stage_dir(self.run_dir, name)
        seconds = time.monotonic() - self.since[name] if running and name in self.since else self.took.get(name)
        return Row(
            stage=name,
            state=state,
            seconds=None if state == "waiting" else seconds,
            progress=told.progress(directory) if running else "",
            gpus=told.gpus(directory) if running else "",
            why=one_line(self.why(name, state)),
        )

    def why(self, name: str, state: str) -> str:
        """What a stage waits for, or what its last event says."""
        step = self.steps.get(name)
        if state == "waiting":
            return "ended with the run; `make` resumes" if self.interrupted else self.waits(name)
        if step is None:
            return ""
        return step.why.partition(": ")[2] if step.event == "stage_ended" else step.why

    def close(self) -> None:
        """Leave the last table on the screen, as the stages ended."""
        if self.states:
            self.draw()
        self.screen.close()
