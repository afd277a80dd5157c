"""One question: a single SELECT, and DuckDB's objections as ours, wherever they come up.

What DuckDB objects to may be the question, or a record that is not what its kind says. The second is looked for in the
files, so that it is named by file, line and field.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kassay.errors import ConfigError, KassayError, RecordError
from kassay.query import STATEMENTS, Opened, library
from kassay.record import read_lines
from kassay.schemas import kinds

if TYPE_CHECKING:
    import duckdb

OF_A_RECORD = ("does not have key", "Failed to cast value", "Malformed JSON")


def require_reading(sql: str) -> None:
    """Raise ConfigError for anything else than one SELECT."""
    duckdb = library("duckdb")
    try:
        found = [statement.type.name.removesuffix("_STATEMENT") for statement in duckdb.extract_statements(sql)]
    except duckdb.Error as error:
        raise objection(error) from None
    if len(found) != 1 or found[0] not in STATEMENTS:
        said = ", ".join(found) or "nothing"
        raise ConfigError(f"SQL: {said}; allowed is one SELECT, SHOW or DESCRIBE", hint="records are only read")


@contextmanager
def asked(opened: Opened, sql: str) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A cursor for one question; whatever DuckDB objects to meanwhile is a ConfigError, or a RecordError."""
    duckdb = library("duckdb")
    require_reading(sql)
    try:
        yield opened.connection.cursor()
    except duckdb.Error as error:
        raise (unlike(opened) if any(words in str(error) for words in OF_A_RECORD) else None) or objection(
            error
        ) from None


def rows(opened: Opened, sql: str, at_once: int) -> Iterator[tuple[list[str], list[tuple[Any, ...]]]]:
    """Names of the columns and `at_once` rows, again and again; the first time also without any row."""
    with asked(opened, sql) as cursor:
        cursor.execute(sql)
        names = [column[0] for column in cursor.description or ()]
        found = cursor.fetchmany(at_once)
        yield names, found
        while found := cursor.fetchmany(at_once):
            yield names, found


def objection(error: Exception) -> ConfigError:
    """DuckDB's own words; its caret keeps its place below its line."""
    first, *more = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    hint = 'make query lists the views, make query SQL="DESCRIBE gates" the columns of one'
    return ConfigError(f"SQL: {first}", *more, hint=hint)


def unlike(opened: Opened) -> KassayError | None:
    """The first record that lacks a field of its kind; None if there is none, and something else is wrong."""
    wanted = {kind.schema: {field.name for field in fields(kind)} for kind in kinds()}
    for file, origin in opened.files.items():
        for number, body in enumerate(read_lines(Path(file)), start=1):
            if lacking := sorted(wanted.get(str(body["schema"]), set()) - body.keys()):
                return RecordError(f"{origin}:{number}: record of `{body['schema']}` lacks {', '.join(lacking)}")
    return None
