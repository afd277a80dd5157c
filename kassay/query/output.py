"""What a query gives, as a table for people or as CSV, JSON lines or Parquet for programs; all but the table stream.

`TO=csv`, `TO=json` and `TO=parquet` write to standard output, `TO=<file>.csv`, `.json`, `.jsonl` or `.parquet` a file.
A number that is not finite is null in CSV and JSON, which have no form for it.
"""

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kassay.columns import columns
from kassay.configure import say
from kassay.errors import ConfigError
from kassay.query import Opened
from kassay.query.asking import asked, rows
from kassay.query.index import quoted

FORMATS = {"csv": "csv, header true", "json": "json", "jsonl": "json", "parquet": "parquet"}
STDOUT = "-"
SHOWN_ROWS = 200
FLOATS = ("DOUBLE", "FLOAT")


def write(opened: Opened, sql: str, to: str, results: Path) -> None:
    """Write what the query gives. Raises ConfigError for a format or a file that is not allowed, or a bad query."""
    if to in ("", "table"):
        for line in table(opened, sql):
            print(line)
        return
    form, target = destination(to, results)
    with asked(opened, sql) as cursor, onward(target) as place:
        relation = cursor.sql(sql)
        shown = ", ".join(finite(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True))
        chosen = "*" if form == "parquet" else shown
        cursor.execute(f"COPY (SELECT {chosen} FROM ({sql.strip().rstrip(';')}\n)) TO {quoted(place)} (FORMAT {form})")
    if target != STDOUT:
        say(f"wrote {to}")


@contextmanager
def onward(target: str) -> Iterator[str]:
    """What DuckDB writes to: the file, or a pipe into our standard output, which it would open anew and cut."""
    if target != STDOUT:
        yield target
        return
    sys.stdout.flush()
    out, into = os.pipe()
    reader = threading.Thread(target=forward, args=(out,))
    reader.start()
    try:
        yield f"/dev/fd/{into}"
    finally:
        os.close(into)
        reader.join()


def forward(out: int) -> None:
    """Copy a pipe to standard output until its last writer has gone."""
    with os.fdopen(out, "rb") as stream:
        shutil.copyfileobj(stream, sys.stdout.buffer)
    sys.stdout.flush()


def destination(to: str, results: Path) -> tuple[str, str]:
    """DuckDB's name of the format with its options, and the file. Raises ConfigError for another word."""
    if to in FORMATS:
        return FORMATS[to], STDOUT
    path = Path(to)
    if path.suffix.removeprefix(".") not in FORMATS:
        allowed = ", ".join(FORMATS)
        raise ConfigError(f"TO=`{to}`: allowed are table, {allowed}, or a file whose name ends in one of them")
    if path.resolve().is_relative_to(results.resolve()):
        raise ConfigError(f"TO=`{to}`: it lies among the results, which are only read")
    if not path.resolve().parent.is_dir():
        raise ConfigError(f"TO=`{to}`: there is no such folder")
    return FORMATS[path.suffix.removeprefix(".")], str(path)


def finite(name: str, kind: str) -> str:
    """A column without what is not finite, lists of numbers included."""
    quoted_name = '"' + name.replace('"', '""') + '"'
    if kind in FLOATS:
        return f"CASE WHEN isfinite({quoted_name}) THEN {quoted_name} END AS {quoted_name}"
    if kind in [f"{one}[]" for one in FLOATS]:
        kept = f"list_transform({quoted_name}, lambda x: CASE WHEN isfinite(x) THEN x END)"
        return f"{kept} AS {quoted_name}"
    return quoted_name


def table(opened: Opened, sql: str) -> Iterator[str]:
    """The first rows in columns."""
    names, found = next(rows(opened, sql, SHOWN_ROWS + 1))
    yield from columns([names, *([cell(value) for value in row] for row in found[:SHOWN_ROWS])])
    if len(found) > SHOWN_ROWS:
        say(f"the first {SHOWN_ROWS} rows; TO=csv, json or parquet gives all")


def cell(value: Any) -> str:
    """A value for people; every other form has all digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
