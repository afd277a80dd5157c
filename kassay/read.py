"""The records of runs as pandas or Polars frames, as Arrow batches or rows: lazily, in bounded memory.

    import kassay.read

    with kassay.read.runs("results") as found:
        found.views                                     # names; `found.columns("gates")` names and types
        gates = found.sql("SELECT * FROM gates WHERE verdict = 'fails'")     # nothing is read yet
        gates.pandas()                                  # pandas.DataFrame
        gates.polars()                                  # polars.LazyFrame, read when it is collected
        for batch in found.view("answer").batches(): …  # pyarrow.RecordBatch, one at a time

docs/reading.md describes the views. DuckDB, pandas, Polars and pyarrow come with the extra `read`; what is lacking is
named when it is asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kassay.errors import ConfigError
from kassay.query import MEMORY_LIMIT, Opened, asking, library, opened
from kassay.query.asking import asked

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

BATCH_ROWS = 65_536


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One query over runs; it is carried out when its rows are asked for, and each time anew."""

    opened: Opened
    query: str

    def pandas(self) -> "pandas.DataFrame":
        """All rows as a pandas frame; null numbers are NaN there, whole numbers with nulls become floats."""
        library("pandas")
        with asked(self.opened, self.query) as cursor:
            found: pandas.DataFrame = cursor.sql(self.query).df()
            return found

    def polars(self) -> "polars.LazyFrame":
        """The rows as a lazy Polars frame; a filter or a choice of columns on it reads no more than it needs."""
        library("polars")
        library("pyarrow")
        with asked(self.opened, self.query) as cursor:
            found: polars.LazyFrame = cursor.sql(self.query).pl(lazy=True)
            return found

    def batches(self, rows: int = BATCH_ROWS) -> "Iterator[pyarrow.RecordBatch]":
        """The rows as Arrow batches of `rows` or fewer, one at a time."""
        library("pyarrow")
        with asked(self.opened, self.query) as cursor:
            yield from cursor.sql(self.query).to_arrow_reader(rows)

    def rows(self, rows: int = BATCH_ROWS) -> Iterator[dict[str, Any]]:
        """The rows as dictionaries, one at a time. Raises ConfigError for two columns of one name."""
        for names, found in asking.rows(self.opened, self.query, rows):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ConfigError(f"SQL: two columns are called `{twice[0]}`", hint="… AS <name> tells them apart")
            yield from (dict(zip(names, row, strict=True)) for row in found)


class Runs:
    """The runs of a results folder as views."""

    def __init__(self, found: Opened) -> None:
        self._opened = found
        self.views = found.views
        self.remarks = found.remarks  # what is in no view, in words: half lines, records of other schemas

    def sql(self, query: str) -> Frame:
        """A frame of one SELECT. Raises ConfigError, when it is read, for anything else."""
        return Frame(opened=self._opened, query=query)

    def view(self, name: str) -> Frame:
        """A frame of all rows of a view. Raises ConfigError, when it is read, if there is no such view."""
        quoted = name.replace('"', '""')
        return self.sql(f'SELECT * FROM "{quoted}"')

    def columns(self, name: str) -> dict[str, str]:
        """Column -> SQL type of a view."""
        query = self.view(name).query
        with asked(self._opened, query) as cursor:
            relation = cursor.sql(query)
            return dict(zip(relation.columns, map(str, relation.types), strict=True))

    def close(self) -> None:
        """Let go of the files; frames that were not read cannot be read any more."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def runs(results: str | Path, *names: str, memory_limit: str = MEMORY_LIMIT) -> Runs:
    """The runs of a results folder, or those of the given ids; DuckDB may take up to `memory_limit`.

    Raises RunError for a run that is not there, RecordError for a line that is no record, ConfigError without DuckDB.
    """
    return Runs(opened(Path(results), names, memory_limit))
