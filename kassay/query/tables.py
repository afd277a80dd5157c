"""What is no record: runs, their stages, settings and artifacts, as tables of a query."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kassay import outcome, paths
from kassay.errors import RunError
from kassay.plan import Plan
from kassay.protocol import name_of
from kassay.query.index import Counts
from kassay.query.scan import Scan
from kassay.watch.told import read_object
from kassay.watch.view import View

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
COLUMNS: dict[str, dict[str, str]] = {
    "files": {"file": "VARCHAR", "run": "VARCHAR", "stage": "VARCHAR", "made_in": "VARCHAR", "records": "BIGINT"},
    "runs": {
        "run": "VARCHAR", "profile": "VARCHAR", "workflow": "VARCHAR", "study": "VARCHAR", "plan_hash": "VARCHAR",
        "protocol": "VARCHAR", "created_at": "TIMESTAMP", "state": "VARCHAR", "exit_code": "BIGINT",
        "processor": "VARCHAR", "cpus": "BIGINT", "memory_gib": "BIGINT", "machine": "VARCHAR", "system": "VARCHAR",
        "python": "VARCHAR", "directory": "VARCHAR",
    },
    "stages": {
        "run": "VARCHAR", "stage": "VARCHAR", "program": "VARCHAR", "state": "VARCHAR", "word": "VARCHAR",
        "reason": "VARCHAR", "made_in": "VARCHAR", "started_at": "TIMESTAMP", "duration_s": "DOUBLE",
        "attempt": "BIGINT", "cpus": "BIGINT", "memory_gib": "DOUBLE", "gpus": "BIGINT", "metrics": "JSON",
    },
    "settings": {"run": "VARCHAR", "name": "VARCHAR", "value": "JSON", "origin": "VARCHAR", "origin_place": "VARCHAR"},
    "artifacts": {
        "run": "VARCHAR", "stage": "VARCHAR", "artifact": "VARCHAR", "file": "VARCHAR", "sha256": "VARCHAR",
        "bytes": "BIGINT",
    },
}  # fmt: skip


def rows(scan: Scan, counts: dict[str, Counts]) -> tuple[dict[str, list[Row]], list[str]]:
    """The rows of each table, and what could not be read, in words."""
    made: dict[str, list[Row]] = {name: [] for name in COLUMNS}
    faults: list[str] = []
    for source in scan.sources:
        made["files"].append({**vars(source), "records": sum(counts[source.file].values())})
    for run_dir in scan.runs:
        try:
            of_run(run_dir, made, faults)
        except (RunError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            faults.append(f"{run_dir.name}: not in `runs`: {str(error).splitlines()[0]}")
    return made, faults


def of_run(run_dir: Path, made: dict[str, list[Row]], faults: list[str]) -> None:
    """The rows of one run."""
    view = View(run_dir)
    view.refresh()
    plan = Plan.from_json(read_object(run_dir / paths.PLAN))
    manifest = read_object(run_dir / paths.MANIFEST)
    study = plan.config.get("study")
    made["runs"].append(
        {
            "run": run_dir.name,
            "profile": plan.profile,
            "workflow": plan.workflow,
            "study": None if study is None else name_of(plan.workflow, study),
            "plan_hash": plan.hash(),
            "protocol": plan.protocol(),
            "created_at": plain_time(manifest.get("created_at")),
            "state": view.state,
            "exit_code": view.exit_code if view.state in ("ended", "interrupted") else None,
            **{key: manifest.get("host", {}).get(key) for key in ("processor", "cpus", "memory_gib", "machine")},
            **{key: manifest.get("host", {}).get(key) for key in ("system", "python")},
            "directory": str(run_dir),
        }
    )
    for name, setting in manifest.get("settings", {}).items():
        told = {"run": run_dir.name, "name": name, "value": setting["value"]}
        made["settings"].append({**told, "origin": setting["origin"], "origin_place": setting["where"]})
    for stage in plan.stages:
        try:
            ended = outcome.load(paths.stage_dir(run_dir, stage.name))
        except RunError as error:
            ended = None
            faults.append(error.messages[0])
        row = {"run": run_dir.name, "stage": stage.name, "program": stage.program or "executable"}
        asked = {"cpus": stage.cpus, "memory_gib": stage.memory_gib, "gpus": stage.gpus}
        made["stages"].append({**row, "state": view.stage_state(stage.name), **asked, **of_outcome(ended)})
        for artifact, left in (ended.artifacts if ended else {}).items():
            made["artifacts"].append({**row, "artifact": artifact, **vars(left)})


def of_outcome(ended: outcome.Outcome | None) -> Row:
    """How a stage ended; all null where it did not."""
    if ended is None:
        return dict.fromkeys(("word", "reason", "made_in", "started_at", "duration_s", "attempt", "metrics"))
    return {
        "word": ended.word,
        "reason": ended.reason,
        "made_in": ended.run,
        "started_at": plain_time(ended.started_at),
        "duration_s": ended.duration_s,
        "attempt": ended.attempt,
        "metrics": ended.metrics,
    }


def plain_time(text: str | None) -> str | None:
    """UTC without its zone, as a TIMESTAMP has it."""
    return text.removesuffix("Z") if text else None


def fill(connection: "duckdb.DuckDBPyConnection", made: dict[str, list[Row]]) -> None:
    """Make the tables; rows go in as one JSON text."""
    for name, columns in COLUMNS.items():
        structure = json.dumps([columns])
        shown = ", ".join(f'row."{column}"' for column in columns)
        whole = [{column: row.get(column) for column in columns} for row in made[name]]
        query = (
            f"CREATE TABLE {name} AS SELECT {shown} FROM (SELECT unnest(json_transform(?::JSON, '{structure}')) AS row)"
        )
        connection.execute(query, [json.dumps(whole, ensure_ascii=False)])
