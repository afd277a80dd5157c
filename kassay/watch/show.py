"""What `make watch` draws: a live table on a terminal, a line per new event elsewhere."""

import sys
from typing import Protocol

from kassay.configure import say
from kassay.events import Event
from kassay.progress import crash_lines, event_line
from kassay.watch import how, seconds_between
from kassay.watch.screen import Screen, counts, on_terminal
from kassay.watch.view import View


class Show(Protocol):
    """Shows a run after each look at it."""

    def go_on(self, events: list[Event]) -> None:
        """These have happened since the last look."""

    def close(self) -> None:
        """The run is over, or nobody wants to see it any more."""


def shown_on_stdout(view: View) -> Show:
    """The table if standard output is a terminal, else lines."""
    return TableOfView(view) if on_terminal(sys.stdout) else LinesOfView(view)


def told_lines(view: View, event: Event) -> list[str]:
    """An event of the present session in words, and of a crash the end of its log."""
    began = view.session.started_at or event.at
    return [event_line(event, seconds_between(began, event.at)), *crash_lines(view.run_dir, event)]


class LinesOfView:
    """Every new event as a line; where the run stands at the beginning is talk."""

    def __init__(self, view: View) -> None:
        self.view = view
        say(f"{view.run_dir.name}, {how(view)}; {counts(view.states())}")

    def go_on(self, events: list[Event]) -> None:
        """Print the new events."""
        for event in events:
            print("\n".join(told_lines(self.view, event)), flush=True)

    def close(self) -> None:
        """Nothing is open."""


class TableOfView:
    """The stages as they stand; a crash is told above them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.screen = Screen(sys.stdout)

    def go_on(self, events: list[Event]) -> None:
        """Draw the table again; how long things take is news too."""
        for event in events:
            if crash_lines(self.view.run_dir, event):
                self.screen.say(told_lines(self.view, event))
        title = f"{self.view.run_dir.name}, {self.view.driver or 'no driver'}"
        self.screen.draw(title, self.view.states(), self.view.row)

    def close(self) -> None:
        """Leave the last table on the screen."""
        self.screen.close()
