"""Run directories with whatever plan, outcomes and records a test wants, written without running anything."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.entry import Stage
from kassay.kinds.verdict import GateRecord
from kassay.outcome import Artifact, Outcome
from kassay.plan import Plan
from kassay.record import Record
from tests.audit.fabricated import planned

HOST = {"processor": "A", "cpus": 2, "memory_gib": 24, "machine": "x86_64"}
STUDY: dict[str, Any] = {"name": "tiny", "split": "confirmation", "alpha": 0.05}


@dataclass(frozen=True, kw_only=True)
class Invented:
    """One stage of a run."""

    program: str = "certify"
    records: Iterable[Record | str] = ()  # a text is a line as it stands
    inputs: Mapping[str, str] = field(default_factory=dict)
    input_sha256: Mapping[str, str] = field(default_factory=dict)
    word: str | None = "passed"  # None: it has not ended
    metrics: Mapping[str, Any] = field(default_factory=dict)
    measures: bool = False
    end: str = "\n"  # of the last line


def run(
    results: Path, name: str, stages: dict[str, Invented], study: dict[str, Any] | None = STUDY, **manifest: Any
) -> Path:
    """A run directory; `manifest` adds to its manifest, `host` says where its measurements were made."""
    host = manifest.pop("host", HOST)
    directory = results / name
    config = {} if study is None else {"study": study}
    plan = Plan(profile="tiny", workflow="tiny", stages=tuple(of_plan(*item) for item in stages.items()), config=config)
    (directory / "stages").mkdir(parents=True)
    (directory / paths.PLAN).write_text(plan.text(), encoding="utf-8")
    told = {"schema": "kassay.manifest/1", "run": name, "plan_hash": plan.hash(), "host": host, "settings": {}}
    digest.write_json(directory / paths.MANIFEST, {**told, "overrides": [], **manifest})
    events = [
        ("run_started", None, "plan"),
        *((f"stage_{s}", n, w) for n, one in stages.items() for s, w in steps(one)),
    ]
    if all(one.word for one in stages.values()):
        events.append(("run_ended", None, ""))
    with (directory / paths.EVENTS).open("w") as stream:
        for event, stage, why in events:
            body = {"schema": "kassay.event/1", "at": "2026-11-30T00:00:00.000Z", "event": event, "stage": stage}
            stream.write(json.dumps({**body, "why": why}) + "\n")
    for stage, one in stages.items():
        fill(directory / "stages" / stage, stage, one, host)
    return directory


def of_plan(name: str, one: Invented) -> Stage:
    """The planned stage."""
    return replace(planned(name, dict(one.inputs)), program=one.program, measures_host=one.measures)


def steps(one: Invented) -> list[tuple[str, str]]:
    """Its events."""
    return [("started", "never ran"), *([("ended", one.word)] if one.word else [])]


def fill(directory: Path, name: str, one: Invented, host: dict[str, Any]) -> None:
    """Its directory."""
    directory.mkdir()
    inputs = {key: {"path": "x", "sha256": one.input_sha256.get(key, "0" * 64)} for key in one.inputs}
    request = {"schema": "kassay.request/2", "stage": name, "params": {}, "inputs": inputs}
    digest.write_json(directory / paths.REQUEST, request)
    lines = [line if isinstance(line, str) else line.to_json() for line in one.records]
    records = directory / paths.RECORDS
    records.write_text("\n".join(lines) + (one.end if lines else ""), encoding="utf-8")
    if one.word is None:
        return
    digest.write_json(directory / paths.RECEIPT, {"host": host if one.measures else None, "code": {}})
    left = Artifact(file=records.name, sha256=digest.of_file(records), bytes=records.stat().st_size)
    Outcome(
        stage=name, run=directory.parents[1].name, word=one.word, reason="" if one.word == "passed" else "so it was",  # type: ignore[arg-type]
        metrics=dict(one.metrics), artifacts={"records": left}, started_at="2026-11-30T00:00:00.000Z", duration_s=1.0,
        attempt=1, grant=None,
    ).save(directory)  # fmt: skip


def gate(**changed: Any) -> GateRecord:
    """A gate that passes."""
    body: dict[str, Any] = {
        "model": "robust", "gate": "keys", "endpoint": "retrieval", "statistic": "gross loss rate",
        "method": "Clopper-Pearson", "decides": "upper", "control": "native", "candidate": "k16v8-f", "n": 400,
        "items_sha256": "items", "estimate": 0.0, "lower": 0.0, "upper": 0.0074, "alpha": 0.05, "margin": 0.02,
        "losses": 0, "gains": 0, "power": 0.9, "true_rate": 0.004, "native_floor": 0.9, "native_score": 1.0,
        "draws": None, "seed": None, "control_outcomes": {"correct": 400}, "candidate_outcomes": {"correct": 400},
        "remark": "", "unchanged": True, "verdict": "pass", "reason": "so it is",
    }  # fmt: skip
    return GateRecord(**{**body, **changed})
