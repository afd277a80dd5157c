"""The cursor: how many of a run's events have arrived in one place, kept atomically, written only after a confirmation.

It may lag behind what really arrived (a crash between sending and writing), never run ahead of it. Who sends therefore
asks the service for what it holds, or makes its local copy anew; see service.py.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kassay import digest
from kassay.mirror.request import Request

SCHEMA = "kassay.mirror_cursor/1"


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The content of mirror/<name>.cursor.json."""

    place: list[str]  # mode, entity and project
    events: int  # confirmed, from the first of the run
    copy: str  # folder of the copy on this disk below mirror/, empty where it is on the network


def cursor_path(request: Request) -> Path:
    """Where a mirror's cursor lies."""
    return request.folder / f"{request.mirror}.cursor.json"


def load(request: Request) -> Cursor:
    """The cursor of the request's place; at zero if nothing was confirmed there, or the copy on this disk is gone."""
    try:
        body = json.loads(cursor_path(request).read_bytes())
    except FileNotFoundError:
        body = {"place": []}
    if body["place"] == request.place():
        kept = Cursor(**{name: body[name] for name in Cursor.__dataclass_fields__})
        if (request.folder / kept.copy).is_dir():
            return kept
    return Cursor(place=request.place(), events=0, copy="")


def save(request: Request, events: int, copy: str) -> None:
    """Keep what was confirmed; a reader sees the old cursor or the new one."""
    cursor = Cursor(place=request.place(), events=events, copy=copy)
    digest.write_json(cursor_path(request), {"schema": SCHEMA, **asdict(cursor)})
