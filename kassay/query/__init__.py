"""SQL over the records of all runs: `make query SQL="SELECT …"`, and for programs `kassay.read`.

DuckDB reads the JSONL files where they lie; nothing is copied but the whole lines of a file that is being written, and
nothing is kept but which kinds a file holds (kassay.query.index). A query streams: memory is bounded by `MEMORY_LIMIT`,
and what does not fit goes to a temporary folder.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kassay import paths
from kassay.errors import ConfigError, RunError
from kassay.schemas import kinds

if TYPE_CHECKING:
    import duckdb

EXTRA = "read"
MEMORY_LIMIT = "1GB"
STATEMENTS = ("SELECT", "EXPLAIN")  # SHOW and DESCRIBE are of the first kind


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A results folder behind SQL."""

    connection: "duckdb.DuckDBPyConnection"
    views: tuple[str, ...]
    remarks: tuple[str, ...]  # what is not in the views, in words
    files: dict[str, str]  # file that is read -> the one in the run, which is another while it is written
    temporary: Path

    def close(self) -> None:
        """Let go of the files and take the copies away."""
        self.connection.close()
        shutil.rmtree(self.temporary, ignore_errors=True)


def opened(results: Path, runs: tuple[str, ...] = (), memory_limit: str = MEMORY_LIMIT) -> Opened:
    """The runs of a results folder, or some of them by id, as tables and views.

    Raises RunError for a run that is not there, RecordError for a line that is no record, ConfigError without DuckDB.
    """
    duckdb = library("duckdb")
    if not results.is_dir():
        raise RunError(f"{paths.shown(results)}: there is no such folder of results", hint="make runs it")
    from kassay.query import index, scan, tables, views

    temporary = Path(tempfile.mkdtemp(prefix="kassay-query-"))
    try:
        connection = duckdb.connect(config=settings(memory_limit, temporary))
        seen = scan.scan(results, runs, temporary / "lines")
        files = {source.file: source.origin for source in seen.sources}
        counts = index.counts(connection, files)
        made, faults = tables.rows(seen, counts)
        tables.fill(connection, made)
        holders: dict[str, list[str]] = {}
        for file, told in counts.items():
            for schema in told:
                holders.setdefault(schema, []).append(file)
        queries = views.all_views(holders)
        for name, query in queries.items():
            connection.execute(f"CREATE VIEW {name} AS {query}")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shown = sorted({*queries, *tables.COLUMNS} - {views.OWNED})
    remarks = [f"left out: {line}" for line in seen.left_out] + faults + strange(counts)
    return Opened(connection=connection, views=tuple(shown), remarks=tuple(remarks), files=files, temporary=temporary)


def settings(memory_limit: str, temporary: Path) -> dict[str, str | bool | int]:
    """How DuckDB runs: no network, bounded memory, what spills lies in the temporary folder."""
    return {
        "memory_limit": memory_limit,
        "temp_directory": str(temporary / "spilled"),
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "autoinstall_known_extensions": False,
        "TimeZone": "UTC",
    }


def strange(counts: dict[str, dict[str, int]]) -> list[str]:
    """Which records are in no view but `other_records`, in words."""
    known = {kind.schema.rpartition("/")[0]: kind.schema for kind in kinds()}
    total: dict[str, int] = {}
    for told in counts.values():
        for schema, records in told.items():
            if schema not in known.values():
                total[schema] = total.get(schema, 0) + records
    return [
        f"{records} records of `{schema}` are in `other_records` only: this kassay reads "
        f"`{known.get(schema.rpartition('/')[0], 'no such kind')}`"
        for schema, records in sorted(total.items())
    ]


def library(name: str):  # type: ignore[no-untyped-def]  # a module has no type of its own
    """An optional library. Raises ConfigError that names the extra which has it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"`{name}` is not in this environment: it comes with the extra `{EXTRA}`",
            hint=f"pip install 'kassay[{EXTRA}]'; `make query` has an environment of its own",
        ) from None
