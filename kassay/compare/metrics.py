"""The numbers and verdict words of a run by name, one dictionary for comparisons and baselines.

A name is `<kind> <what identifies the record>: <field>` for what was concluded (`gate robust k16v8-f native retrieval:
upper`), and `<stage>: <metric>` for what a stage's outcome says. A value is measured or absent: None comes with the
reason, and a number that was not finite when it was written is absent, never compared.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.audit.files import Run, load
from kassay.compare.subject import FOUNDATIONS, bound_to_host
from kassay.entry import Stage
from kassay.errors import RecordError
from kassay.record import read_lines

Value = float | int | str | bool | None
# Kind -> the fields that identify a record of it, and the fields that it concludes.
CONCLUDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gate": (("model", "candidate", "control", "gate"), ("estimate", "lower", "upper", "verdict")),
    "case_gate": (("model", "gate"), ("passed", "verdict")),
    "certificate": (("model", "candidate", "control", "objective"), ("verdict",)),
    "qualification": (("model", "candidate", "objective"), ("verdict",)),
    "direct": (("family", "model", "comparison", "endpoint"), ("estimate", "holm_p", "different")),
    "contrast": (("model", "contrast"), ("median", "holm_p", "verdict")),
    "guard": (("model", "guard"), ("median", "seen")),
    "matrix_row": (("workload", "model", "comparison"), ("median", "holm_p", "verdict")),
    "composition": (("load", "model", "batch", "context_tokens", "combined"), ("median", "interval_class")),
    "acceptance": (
        ("model", "recipe", "context_tokens", "batch", "draft_tokens"),
        ("acceptance", "tokens_per_pass", "other_requests"),
    ),
    "vllm_ratio": (("arm", "control", "endpoint", "batch"), ("median", "sign_p")),
    "saturation": (("model", "recipe", "context_tokens"), ("ceiling_per_s", "half_batch", "state")),
    "fusion_verdict": (("candidate", "baseline"), ("median", "verdict")),
    "fusion_claim": (("claim",), ("agreeing", "against", "verdict")),
    "memory_gate": (("model", "gate", "recipe"), ("observed", "verdict")),
    "serving_gate": (("arm", "load"), ("failed", "empty", "verdict")),
    "serving_contrast": (("contrast", "load", "quantity"), ("median", "holm_p", "verdict")),
    "answer_counts": (("model", "recipe", "task"), ("correct", "truncated")),
    "probe_finding": (("model", "probe", "arm", "quantity"), ("value", "label")),
    "figure-answer": (("figure",), ("answer",)),
    "device": (("name", "index"), ("copy_gb_per_s",)),
}
RATIOS = {
    "contrast": "ratios",
    "matrix_row": "ratios",
    "serving_contrast": "ratios",
    "composition": "rhos",
    "guard": "ratios",
    "vllm_ratio": "ratios",
}
NONFINITE = "nonfinite"  # how the reason of a number begins that was not finite
CENTRE = "median"  # the field that those lie behind
UNITS = {"_per_s": "1/s", "_s": "s", "_bytes": "bytes", "_tokens": "tokens", "_ms": "ms"}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One value of a run, or why there is none."""

    name: str
    value: Value
    absent: str  # why there is no value; empty if there is one
    unit: str  # by the field's name; empty for a share, a count or a word
    stage: str
    host_bound: bool  # whether it holds for the host only on which it was measured
    ratios: list[float] | None  # within-block ratios behind it, in block order; None: there are none


def metrics_of(run_dir: Path) -> dict[str, Metric]:
    """Every metric of a run, by name. Raises RunError for no run, RecordError for a bad line."""
    run = load(run_dir.resolve())
    bound = set(bound_to_host(run))
    found: dict[str, Metric] = {}
    for stage in run.plan.stages:
        if stage.after_all:
            continue
        for made in (*of_outcome(run, stage, stage.name in bound), *of_records(run, stage, stage.name in bound)):
            if made.name in found:
                raise RecordError(f"{run.directory.name}: two records say `{made.name}`")
            found[made.name] = made
    return found


def of_outcome(run: Run, stage: Stage, bound: bool) -> Iterator[Metric]:
    """What the outcome says: its word, and its small named results."""
    ended = run.outcomes[stage.name]
    why = run.open(stage) if ended is None else ""
    yield Metric(
        name=f"{stage.name}: outcome", value=None if ended is None else ended.word, absent=why, unit="",
        stage=stage.name, host_bound=False, ratios=None,
    )  # fmt: skip
    if ended is None or run.open(stage) or stage.program in FOUNDATIONS:
        return  # what was frozen and built are pins, of a subject
    lost = lost_of(json.loads((run.folder(stage.name) / paths.OUTCOME).read_bytes()))
    for name, value in ended.metrics.items():
        if isinstance(value, list | dict):
            continue  # what belongs together stands in records
        why = f"{NONFINITE}: {lost[f'metrics.{name}']}" if f"metrics.{name}" in lost else "it is null in the outcome"
        yield Metric(
            name=f"{stage.name}: {name}", value=value, absent="" if value is not None else why,
            unit="", stage=stage.name, host_bound=bound, ratios=None,
        )  # fmt: skip


def of_records(run: Run, stage: Stage, bound: bool) -> Iterator[Metric]:
    """What the records of a stage that left a result conclude."""
    place = run.folder(stage.name) / paths.RECORDS
    if run.open(stage) or not place.exists():
        return
    for body in read_lines(place):
        kind = str(body["schema"]).rpartition("/")[0].removeprefix("kassay.")
        if kind in CONCLUDED:
            yield from concluded(kind, body, stage.name, bound)


def concluded(kind: str, body: dict[str, Any], stage: str, bound: bool) -> Iterator[Metric]:
    """The fields of one record."""
    keys, fields = CONCLUDED[kind]
    told = " ".join(str(body.get(key)) for key in keys)
    lost = lost_of(body)
    for field in fields:
        value = body.get(field)
        ratios = body.get(RATIOS[kind]) if kind in RATIOS and field == CENTRE else None
        yield Metric(
            name=f"{kind} {told}: {field}", value=value, absent=why_absent(field, value, lost, body),
            unit=unit_of(field), stage=stage, host_bound=bound, ratios=ratios,
        )  # fmt: skip


def lost_of(body: dict[str, Any]) -> dict[str, str]:
    """Field -> what it was, of those that were not finite when they were written."""
    return {name.rpartition(": ")[0]: name.rpartition(": ")[2] for name in body.get("nonfinite", [])}


def why_absent(field: str, value: Value, lost: dict[str, str], body: dict[str, Any]) -> str:
    """Why a field has no value; empty if it has one."""
    if value is not None:
        return ""
    if field in lost:
        return f"{NONFINITE}: {lost[field]}"
    return str(body.get("reason") or "not measured") if field in body else "the record lacks the field"


def unit_of(field: str) -> str:
    """The unit that a field's name ends in."""
    return next((unit for end, unit in UNITS.items() if field.endswith(end)), "")
