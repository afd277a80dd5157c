"""Which kinds of records a file holds, and how many: found by one pass over it, remembered while it stays as it is.

A view reads only the files that hold its kind. Records of a version that this kassay does not read are known before
anything is asked, so that none is missing from a view in silence.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kassay import cache, digest, paths
from kassay.errors import RecordError
from kassay.record import parse_line

if TYPE_CHECKING:
    import duckdb

Counts = dict[str, int]  # schema -> records
CACHE = "kinds-of-files.json"  # below build/
MOST_REMEMBERED = 20_000
LITERALS = ("NaN", "Infinity")  # DuckDB takes them for numbers; JSON has no such tokens
SCHEMA = "json->>'schema'"


def counts(connection: "duckdb.DuckDBPyConnection", files: dict[str, str]) -> dict[str, Counts]:
    """File -> schema -> records, of files that are read in the place of others (by which they are called).

    Raises RecordError with file and line for a line that is no record.
    """
    known = dict(cache.read(paths.build() / CACHE) or {})
    wanted = {file: list(digest.identity_of(file)) for file in files}
    found: dict[str, Counts] = {}
    unknown: dict[str, str] = {}
    for file, identity in wanted.items():
        entry = known.get(file)
        if entry is not None and entry["identity"] == identity:
            found[file] = entry["counts"]
        else:
            unknown[file] = files[file]
    if unknown:
        counted = count(connection, unknown)
        found |= counted
        for file, told in counted.items():
            known.pop(file, None)
            known[file] = {"identity": wanted[file], "counts": told}
        cache.write(paths.build() / CACHE, dict(list(known.items())[-MOST_REMEMBERED:]))
    return found


def count(connection: "duckdb.DuckDBPyConnection", files: dict[str, str]) -> dict[str, Counts]:
    """The same, by reading."""
    import duckdb

    suspect = " OR ".join(f"contains(json::VARCHAR, '{word}')" for word in LITERALS)
    query = f"SELECT filename, {SCHEMA}, count(*), count_if({suspect}) FROM {lines_of(files)} GROUP BY ALL"
    try:
        rows = connection.execute(query).fetchall()
    except duckdb.Error as error:
        for file, origin in files.items():
            require_records(file, origin)
        raise RecordError(f"records cannot be read: {error}") from None
    found: dict[str, Counts] = {file: {} for file in files}
    for file, schema, records, doubtful in rows:
        if schema is None or not schema.startswith("kassay.") or doubtful:
            require_records(file, files[file])
        found[file][str(schema)] = records
    return found


def require_records(file: str, origin: str) -> None:
    """Raise RecordError with file and line for the first line that is no record in strict JSON."""
    with open(file, "rb") as stream:
        for number, raw in enumerate(stream, start=1):
            body = parse_line(raw, f"{origin}:{number}")
            if not isinstance(body["schema"], str):
                raise RecordError(f"{origin}:{number}: `schema` is no text")
            if token := bare(body):
                raise RecordError(f"{origin}:{number}: `{token}` is no number in JSON")


def bare(value: object) -> str:
    """A number of the value that JSON does not have; empty for none."""
    if isinstance(value, dict):
        return next(filter(None, map(bare, value.values())), "")
    if isinstance(value, list):
        return next(filter(None, map(bare, value)), "")
    return str(value) if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))) else ""


def lines_of(files: Iterable[str]) -> str:
    """The table function that reads whole lines of files; its columns are `json` and `filename`."""
    listed = ", ".join(quoted(escaped(file)) for file in files)
    return f"read_ndjson_objects([{listed}], filename = true)"


def escaped(file: str) -> str:
    """A path without the signs of a pattern."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in file)


def quoted(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"
