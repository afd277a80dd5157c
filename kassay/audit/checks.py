"""What the recounts share: records of one kind as plain bodies, and one value held against another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kassay.audit import compare
from kassay.record import read_lines

Body = dict[str, Any]


def bodies(path: Path, kind: str) -> Iterator[Body]:
    """The records of one kind in a file."""
    return (body for body in read_lines(path) if str(body["schema"]).startswith(f"kassay.{kind}/"))


def check(told: compare.Compared, name: str, field: str, recorded: object, derived: object) -> None:
    """One value that has no tolerance."""
    told.values += 1
    if recorded != derived:
        told.add(name, field, recorded, derived)


def close(told: compare.Compared, name: str, field: str, recorded: float, derived: float, allowed: float) -> None:
    """One value up to an absolute difference; NaN is none."""
    told.values += 1
    told.loose += recorded != derived
    if not abs(recorded - derived) <= allowed:
        told.add(name, field, recorded, derived)
