"""Runs whose records are of other versions than this kassay reads, and what reads them.

The version of a kind counts up when its fields change, and no reader of another version is kept: what a number meant
is said by the code that wrote it. A run names the commit of kassay that wrote it (the source of kind `tree` that stage
`freeze` records), and a clone at that commit reads, renders and audits it.
"""

import json
import re
from pathlib import Path

from kassay import paths, schemas
from kassay.errors import VersionError
from kassay.record import require_schema

SCHEMA_OF_LINE = re.compile(rb'\s*\{\s*"schema"\s*:\s*"(kassay\.[^"/]+)/(\d+)"')
SOURCE = b"kassay.source"


def require_ours(run_dir: Path) -> None:
    """Raise VersionError, with the next command, where a record of a run is of another version than ours."""
    if found := others(run_dir):
        raise VersionError(*found, hint=reader(run_dir))


def others(run_dir: Path) -> list[str]:
    """The first line of every kind and stage that is of another version, in words; unknown kinds are another's."""
    ours = {kind.schema.rpartition("/")[0].encode(): kind.schema for kind in schemas.kinds()}
    told: dict[tuple[Path, bytes], str] = {}
    for path in sorted((run_dir / "stages").glob(f"*/{paths.RECORDS}")):
        with path.open("rb") as stream:
            for number, raw in enumerate(stream, start=1):
                found = SCHEMA_OF_LINE.match(raw)
                if found is None or (wanted := ours.get(found[1])) is None or (path, found[1]) in told:
                    continue
                try:
                    require_schema({"schema": b"/".join(found.groups()).decode()}, wanted)
                except VersionError as error:
                    told[path, found[1]] = f"{path.parent.name}/{path.name}:{number}: {error}"
    return list(told.values())


def reader(run_dir: Path) -> str:
    """What reads a run of another version."""
    commit = written_by(run_dir)
    where = f"a clone at commit {commit}, which wrote it" if commit else "the kassay that wrote it"
    return f"make export RUN={run_dir.name} TO=run.tar, then `make audit TAR=run.tar` in {where} (docs/records.md)"


def written_by(run_dir: Path) -> str | None:
    """The commit of kassay that wrote a run, as it recorded it; None where it did not."""
    for path in sorted((run_dir / "stages").glob(f"*/{paths.RECORDS}")):
        with path.open("rb") as stream:
            for raw in stream:
                found = SCHEMA_OF_LINE.match(raw)
                if found and found[1] == SOURCE and (body := json.loads(raw)).get("kind") == "tree":
                    return None if body.get("commit") is None else str(body["commit"])
    return None
