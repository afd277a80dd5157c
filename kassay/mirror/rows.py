"""Rows: what a mirror sends of each event, one row an event, numbered as the lines of events.jsonl from 0.

Numbers, truth values and short words only. Free text (reasons, which may end in a log's last line; settings that may be
paths) stays in the run directory.
"""

import datetime
import glob
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.errors import RunError
from kassay.events import Event
from kassay.outcome import Outcome, load
from kassay.record import parse_line

WORD_CHARS = 64  # longer texts among the metrics are prose


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is sent of one event."""

    number: int
    values: dict[str, Any]


class Rows:
    """Follows events.jsonl; only whole lines count, a torn tail may yet be set aside or completed."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.count = 0
        self.crashed: set[str] = set()
        self._offset = 0

    def fresh(self) -> list[Row]:
        """The rows of the events that were written since the last call."""
        path = self.run_dir / paths.EVENTS
        if not path.exists():
            return []  # the mirror is started before the loop
        with path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [self.row(raw) for raw in whole.splitlines(keepends=True)]

    def row(self, raw: bytes) -> Row:
        """The row of one line."""
        where = f"{paths.EVENTS}:{self.count + 1}"
        event = Event.from_json(parse_line(raw, where), where)
        values: dict[str, Any] = {"event": event.event, "_timestamp": seconds(event.at)}
        if event.stage is not None:
            values["stage"] = event.stage
            if event.event in ("stage_ended", "stage_reused"):
                values |= self.ending(event, event.stage)
        self.count += 1
        return Row(number=self.count - 1, values=values)

    def ending(self, event: Event, stage: str) -> dict[str, Any]:
        """Word, duration and metrics of the stage whose end an event tells; nothing if that outcome is gone."""
        outcome = outcome_at(self.run_dir, event, stage)
        if outcome is None:
            return {}
        (self.crashed.add if outcome.word == "crashed" else self.crashed.discard)(stage)
        values = {"outcome": outcome.word, f"{stage}/outcome": outcome.word, f"{stage}/duration_s": outcome.duration_s}
        return values | {f"{stage}/{name}": value for name, value in flat(outcome.metrics).items()}


def outcome_at(run_dir: Path, event: Event, stage: str) -> Outcome | None:
    """The outcome that a stage had when the event was written: a later one of the same stage is another's."""
    directory = paths.stage_dir(run_dir, stage)
    places = [directory]
    if event.event == "stage_ended":
        places += [Path(found) for found in glob.glob(f"{directory.parent}/.{glob.escape(stage)}.stale-*")]
    found = []
    for place in places:
        try:
            outcome = load(place)
        except RunError:
            continue  # a broken file tells nothing; the loop records that as the stage's crash
        own = outcome is not None and outcome.run == run_dir.name
        if outcome is not None and outcome.started_at <= event.at and (own or event.event == "stage_reused"):
            found.append(outcome)
    return max(found, key=lambda outcome: outcome.started_at, default=None)


def flat(metrics: dict[str, Any]) -> dict[str, Any]:
    """Nested metrics as `a/b`: value; lists, nulls and prose are left out."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= {f"{name}/{inner}": one for inner, one in flat(value).items()}
        elif isinstance(value, bool | int | float) or (isinstance(value, str) and is_word(value)):
            found[name] = value
    return found


def is_word(text: str) -> bool:
    """Whether a text is a verdict, a version or a name: short, in one piece, no path and no address."""
    return 0 < len(text) <= WORD_CHARS and not set(text) & set("/\\@:= \t\r\n")


def seconds(at: str) -> float:
    """Seconds since 1970 of an event's time."""
    return datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp()


def summary_of(run_dir: Path) -> dict[str, Any]:
    """What the service is told of the whole run: ids, and the settings that are numbers or truth values."""
    told, planned = (json.loads((run_dir / name).read_bytes()) for name in (paths.MANIFEST, paths.PLAN))
    settings = {name: setting["value"] for name, setting in told["settings"].items()}
    return {
        "run": told["run"],
        "created_at": told["created_at"],
        "plan_hash": planned["hash"],
        "profile": planned["profile"],
        "settings": {name: value for name, value in settings.items() if isinstance(value, bool | int | float)},
    }
