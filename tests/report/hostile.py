"""A run directory with hostile text in every free field: markup, quotes, control codes, marks that turn text around."""

import dataclasses
from collections.abc import Container
from pathlib import Path
from typing import Any

from kassay.errors import RecordError
from kassay.record import Record
from tests.report.fabricate import FakeRun, records_of

EVIL = (
    "<script>alert('x')</script>\"><b>&amp;`$x_1^2$ \x1b[31mred\x00 \u202eltr\u2066 \ud800 | [a](javascript:b)\n# head"
)
MEGABYTE = 1_000_000
MATCHED = {"recipe", "candidate", "control", "model", "part", "quantity", "mutation", "verdict", "state", "endpoint"}


def poisoned(record: Record, text: str, kept: Container[str] = MATCHED) -> Record:
    """The record with `text` appended to every string of it but those `kept`, by which records find each other.

    A string that its kind allows no other words for stays as it is.
    """
    for name, value in texts(record, text).items():
        if name not in kept:
            try:
                record = dataclasses.replace(record, **{name: value})
            except RecordError:
                continue
    return record


def forged(record: Record, text: str) -> Record:
    """The same with `text` in all strings, those too that allow no such words: as another program writes it."""
    made = object.__new__(type(record))
    vars(made).update(vars(record) | texts(record, text))
    return made


def texts(record: Record, text: str) -> dict[str, Any]:
    """Every string and list of strings of a record, with `text` appended."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, str):
            changed[field.name] = value + text
        elif isinstance(value, list) and value and isinstance(value[0], str):
            changed[field.name] = [item + text for item in value]
    return changed


def swollen_run(root: Path) -> FakeRun:
    """A run in which the first record of every kind, and every other free text, has a megabyte in each field."""
    run = FakeRun(root)
    big = f"{EVIL.replace(chr(0xD800), '')}{'W' * MEGABYTE}"
    run.write_manifest({"SYMBOL": {"value": big, "origin": big, "where": big}}, overrides=(big,))
    seen: set[type[Record]] = set()
    for stage in run.stages[:-1]:
        records = []
        for record in records_of(stage.name):
            records.append(record if type(record) in seen else poisoned(record, big))
            seen.add(type(record))
        word = "crashed" if stage.name == "memory" else "passed"
        run.end(stage.name, word, big if word == "crashed" else "", records=records, stderr=big, metrics={big: big})
    return run


def hostile_run(root: Path) -> FakeRun:
    """A run whose every free text is hostile, and whose stages ended in every way."""
    run = FakeRun(root)
    run.write_manifest({EVIL: {"value": EVIL, "origin": EVIL, "where": EVIL}}, overrides=(EVIL,))
    words = {"timing": "crashed", "sweep": "unmet", "calibrate.robust": "rejected"}
    for stage in run.stages[:-1]:
        text = EVIL.replace("\ud800", "")
        records = [poisoned(record, text) for record in records_of(stage.name)]
        word = words.get(stage.name, "passed")
        reason = text if word != "passed" else ""
        run.end(stage.name, word, reason, records=records, stderr=text, metrics={text: text})
    return run
