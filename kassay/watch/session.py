"""The last session of a run as its events tell it, read while the driver writes them.

A session begins with `run_started`. A last line without its newline is not there yet. What a stage's last event was
decides its state; the words of an outcome stand first in `why` of `stage_ended`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from kassay import paths
from kassay.errors import RecordError
from kassay.events import Event

STATES = {"stage_started": "running", "stage_attached": "running", "stage_reused": "reused", "stage_kept": "kept"}
OVER = {"run_ended": "ended", "run_interrupted": "interrupted"}


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the driver last did with a stage."""

    event: str
    at: str  # UTC, ISO 8601
    why: str

    @property
    def state(self) -> str:
        """The stage's state by this step; a stage that waits for another attempt is waiting."""
        if self.event == "stage_ended":
            return ended_word(self.why)
        return STATES.get(self.event, "waiting")


def ended_word(why: str) -> str:
    """The outcome's word of a `stage_ended` event."""
    return why.partition(":")[0]


class Session:
    """The events of a run so far; `read` takes in what was added."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / paths.EVENTS
        self.started_at: str | None = None
        self.over = ""  # ended or interrupted, empty while it goes on
        self.over_at = ""
        self.steps: dict[str, Step] = {}
        self._offset = 0
        self._line = 0

    def read(self) -> list[Event]:
        """The events that were added since the last call. Raises RecordError with file and line for a bad one."""
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(whole) + len(newline)
        events = [self.parsed(line) for line in whole.split(b"\n")] if newline else []
        for event in events:
            self.take(event)
        return events

    def parsed(self, line: bytes) -> Event:
        """One whole line as an event."""
        self._line += 1
        try:
            return Event.from_json(json.loads(line))
        except (ValueError, TypeError, AttributeError, RecordError) as error:
            raise RecordError(f"{self.path}:{self._line}: not an event: {error}") from None

    def take(self, event: Event) -> None:
        """Go on by one event."""
        if event.event == "run_started":
            self.started_at, self.over, self.over_at, self.steps = event.at, "", "", {}
        elif event.event in OVER:
            self.over, self.over_at = OVER[event.event], event.at
        elif event.stage is not None and event.event.startswith("stage_"):
            self.steps[event.stage] = Step(event=event.event, at=event.at, why=event.why)
