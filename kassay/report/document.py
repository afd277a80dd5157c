"""report.json: verdict, findings, stages and every concluded record as one JSON document in ASCII.

Records that something was concluded from (cells, requests, oracle cases) are counted, file by file, and not said again:
they lie beside it, line by line, and may be a hundred thousand. A non-finite number is null and named in `nonfinite`.
The JSON Schema of the document ships as report.schema.json beside this module, which writes it when it is run as a
program; a record has the schema of its own kind.
"""

import json
import types
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from kassay import paths
from kassay.record import Record, plain
from kassay.report.evidence import Report
from kassay.report.findings import Finding, findings, verdict_line
from kassay.report.model import RunView

SCHEMA = "kassay.report/3"
SCHEMA_FILE = "report.schema.json"
PLAIN: dict[Any, Any] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: ["number", "null"],
    type(None): "null",
}
RAW = frozenset(  # kinds of which a run has many: counted, not repeated
    f"kassay.{name}"
    for name in (
        "fusion_cell",
        "gpu_state",
        "host_state",
        "oracle_case",
        "probe_text",
        "served_request",
        "sweep_cell",
        "timing_cell",
    )
)
DESCRIBED = {
    "schema": "Kind and version of this document.",
    "verdict": "The one sentence that answers the run.",
    "exit_code": "Exit code of the run by its outcomes; null while a stage has not ended.",
    "findings": "One sentence for each question of the workflow, negative results like positive ones.",
    "faults": "Records files that cannot be read, each with file and line; nothing of them is shown.",
    "run": "What was planned, where it ran, and how each stage ended.",
    "records": "Every record in which something was concluded or identified, in plan order.",
    "files": "Every records file with the number of its lines, those counted that are not repeated here.",
    "nonfinite": "Places in `findings` and `run` whose number was not finite, and what it was; it is null there.",
}


def report_json(report: Report) -> str:
    """The document; a record a line, so that it can be read and compared by eye."""
    nonfinite: list[str] = []
    body = {
        "schema": SCHEMA,
        "verdict": verdict_line(report),
        "exit_code": report.run.exit_code,
        "findings": plain(findings(report), "findings", nonfinite),
        "faults": list(report.faults),
        "run": plain(report.run, "run", nonfinite),
        "records": [json.loads(record.to_json()) for record in report.records if not raw(record)],
        "files": [
            {"stage": stage.name, "file": stage.file(paths.RECORDS), "records": report.counts[stage.name]}
            for stage in report.run.stages
            if stage.name in report.counts
        ],
        "nonfinite": nonfinite,
    }
    members = [f'"{name}": {laid_out(value)}' for name, value in body.items()]
    return "{\n" + ",\n".join(members) + "\n}\n"


def raw(record: Record) -> bool:
    """Whether a record is counted and not repeated."""
    return record.schema.partition("/")[0] in RAW


def laid_out(value: object) -> str:
    """A member of the document: a list has one item a line."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f" {one_line_json(item)}" for item in value) + "\n]"
    return one_line_json(value)


def one_line_json(value: object) -> str:
    """JSON on one line, in ASCII."""
    return json.dumps(value, allow_nan=False)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document, from the dataclasses that it is written from."""
    shapes: dict[str, dict[str, Any]] = {
        "schema": {"const": SCHEMA},
        "verdict": {"type": "string"},
        "exit_code": {"type": ["integer", "null"]},
        "findings": {"type": "array", "items": of_type(Finding)},
        "faults": {"type": "array", "items": {"type": "string"}},
        "run": of_type(RunView),
        "records": {"type": "array", "items": {"type": "object", "required": ["schema"]}},
        "files": {"type": "array", "items": closed({"stage": text(), "file": text(), "records": {"type": "integer"}})},
        "nonfinite": {"type": "array", "items": {"type": "string"}},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "report.json of a kassay run.",
        **closed({key: {"description": DESCRIBED[key], **shape} for key, shape in shapes.items()}),
    }


def text() -> dict[str, Any]:
    """A member that is text."""
    return {"type": "string"}


def closed(members: dict[str, Any]) -> dict[str, Any]:
    """An object with these members and no others."""
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def of_type(given: Any) -> dict[str, Any]:
    """The schema of a Python type; null may stand for any float, since it may not have been finite."""
    if given in PLAIN:
        return {"type": PLAIN[given]}
    origin, inner = get_origin(given), get_args(given)
    if origin in (list, tuple):
        return {"type": "array", "items": of_type(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": of_type(inner[1])}
    if origin in (Union, types.UnionType):
        return {"anyOf": [of_type(each) for each in inner]}
    if is_dataclass(given):
        hints = get_type_hints(given)
        return closed({field.name: of_type(hints[field.name]) for field in fields(given)})
    if given is Any:
        return {}
    raise TypeError(f"{given} is no type of a report's field")


def schema_text() -> str:
    """The shipped file."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / SCHEMA_FILE).write_text(schema_text(), encoding="ascii")
