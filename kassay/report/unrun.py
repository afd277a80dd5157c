"""Planned rows without a result, each with its reason; a report shows what was not run as it shows what was.

Rows come from the study and from the parameters of the planned stages, results from records alone: a stage that passed
but left a planned row out is found as well. Sections of one stage (direct comparisons, matrix, serving, probes, printed
figures) say in their own place why they are empty.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kassay.kinds.memory import MemoryPart
from kassay.kinds.oracle import OracleCase
from kassay.kinds.probe import ProbeArm
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GateRecord, SaturationRecord
from kassay.report.certified import planned_rows, row_of
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, prose, section, table, tag
from kassay.report.model import NOT_RUN, RunView
from kassay.report.words import counted, listed, one_line, title

VOID = (NOT_RUN, "invalidated")  # verdicts of a record in which nothing was concluded
UNRUN = ["what", "row", "result", "reason"]


@dataclass(frozen=True, kw_only=True)
class PlannedRow:
    """Something that was planned, and why it has no result."""

    kind: str  # what it is, singular
    row: str
    reason: str  # empty where there is a result
    word: str  # `not run`, or what its record says of it, where nothing was concluded


def planned_results(report: Report) -> list[PlannedRow]:
    """Every planned row of the run, in the order of its sections."""
    asked = {stage.program for stage in report.run.stages}
    made: list[PlannedRow] = []
    if "certify" in asked:
        made += [*certificates(report), *gates(report)]
    made += of_recipes(report, "oracle", "oracle", {(case.model, case.recipe) for case in report.of(OracleCase)})
    if "contrast" in asked:
        made += comparisons(report)
    if "saturation" in asked:
        made += sweeps(report)
    made += of_recipes(report, "memory", "cache size", {(part.model, part.recipe) for part in report.of(MemoryPart)})
    return made


def why(run: RunView, program: str, model: str = "") -> str:
    """Why a program, or its stage of one model, left no result."""
    for stage in run.program(program):
        if model and stage.params.get("model") == model and stage.word != "passed":
            return f"{stage.name}: {stage.word}{f' ({stage.reason})' if stage.reason else ''}"
    return run.why_absent(program)


def certificates(report: Report) -> Iterable[PlannedRow]:
    """Every planned candidate on every model."""
    there = {(row_of(report, made), made.model) for made in report.of(CertificateRecord)}
    for name in planned_rows(report.run):
        for model in report.run.models:
            reason = "" if (name, model) in there else why(report.run, "certify")
            yield PlannedRow(
                kind="certificate", row=f"{title(name)} on {one_line(model, 60)}", reason=reason, word=NOT_RUN
            )


def gates(report: Report) -> Iterable[PlannedRow]:
    """Every gate of an objective, for every planned pair on every model."""
    certified = report.run.study.get("certificates")
    objectives = certified.get("objectives", {}) if isinstance(certified, dict) else {}
    names = list(dict.fromkeys(name for own in objectives.values() for name in own))
    there = {(gate.model, gate.candidate, gate.control, gate.gate) for gate in report.of(GateRecord)}
    for candidate, control in dict.fromkeys(planned_rows(report.run).values()):
        for model in report.run.models:
            for name in names:
                reason = "" if (model, candidate, control, name) in there else why(report.run, "certify")
                row = f"{one_line(name, 60)}: {title(candidate)} against {title(control)} on {one_line(model, 60)}"
                yield PlannedRow(kind="gate", row=row, reason=reason, word=NOT_RUN)


def comparisons(report: Report) -> Iterable[PlannedRow]:
    """Every comparison of the timed family; one that is itself recorded as not run or invalidated keeps its reason."""
    study = report.run.study
    pairs, timing = study.get("comparisons", {}), study.get("timing", {})
    made = {(record.candidate, record.control): record for record in report.of(ContrastRecord)}
    for name in timing.get("family", []):
        pair = pairs.get(name, {})
        candidate, control = str(pair.get("candidate", name)), str(pair.get("control", report.run.control))
        record = made.get((candidate, control))
        row = f"{title(candidate)} against {title(control)}"
        if record is None:
            yield PlannedRow(kind="comparison", row=row, reason=why(report.run, "contrast"), word=NOT_RUN)
        elif record.verdict in VOID:
            yield PlannedRow(kind="comparison", row=row, reason=record.reason, word=one_line(record.verdict, 40))
        else:
            yield PlannedRow(kind="comparison", row=row, reason="", word=NOT_RUN)


def sweeps(report: Report) -> Iterable[PlannedRow]:
    """Every swept recipe at every context."""
    plan = report.run.study.get("sweep", {})
    there = {(fit.recipe, fit.context_tokens) for fit in report.of(SaturationRecord)}
    for tokens in plan.get("contexts_tokens", []):
        for recipe in plan.get("arms", []):
            reason = "" if (recipe, tokens) in there else why(report.run, "saturation")
            yield PlannedRow(kind="sweep", row=f"{title(recipe)} at {tokens:,} tokens", reason=reason, word=NOT_RUN)


def of_recipes(report: Report, program: str, kind: str, there: set[tuple[str, str]]) -> Iterable[PlannedRow]:
    """Every recipe that a stage of one model was asked for; one that the model cannot have says why."""
    arms = [arm for arm in report.of(ProbeArm) if not arm.eligible and arm.layer is None]
    refused = {(arm.model, arm.recipe): ("ineligible", arm.reason) for arm in arms}
    for stage in report.run.program(program):
        model = str(stage.params.get("model", ""))
        for recipe in stage.params.get("recipes", []):
            word, reason = refused.get((model, recipe), (NOT_RUN, why(report.run, program, model)))
            reason = "" if (model, recipe) in there else reason
            yield PlannedRow(
                kind=f"{kind} row", row=f"{title(recipe)} on {one_line(model, 60)}", reason=reason, word=word
            )


def coverage_line(report: Report) -> str:
    """How many of the planned rows have a result, by kind; empty where nothing of the kind was planned."""
    rows = planned_results(report)
    if not rows:
        return ""
    kinds = dict.fromkeys(row.kind for row in rows)
    lacking = [row for row in rows if row.reason]
    if not lacking:
        return f"Every planned row has a result: {listed([of_kind(kind, rows) for kind in kinds])}."
    said = [
        f"{sum(row.kind == kind for row in lacking)} of {of_kind(kind, rows)}"
        for kind in dict.fromkeys(row.kind for row in lacking)
    ]
    return f"{len(lacking):,} of {counted(len(rows), 'planned row')} without a result: {listed(said)}."


def of_kind(kind: str, rows: list[PlannedRow]) -> str:
    """`12 certificates`."""
    return counted(sum(row.kind == kind for row in rows), kind)


def unrun_rows(report: Report) -> list[list[str]]:
    """Every planned row without a result, as text."""
    return [[row.kind, row.row, row.word, one_line(row.reason)] for row in planned_results(report) if row.reason]


def unrun_section(report: Report) -> Markup | None:
    """Every planned row without a result, with its reason; none where all have one."""
    rows = [
        [cell(kind), tag("th", row, scope="row"), cell(tag("span", word, class_="word")), cell(prose(why), kind="free")]
        for kind, row, word, why in unrun_rows(report)
    ]
    if not rows:
        return None
    caption = "Planned before the run, and without a result; none of it is counted as a pass."
    heading = "Planned, without a result"
    return section("not-run", heading, tag("p", coverage_line(report)), table(caption, UNRUN, rows))
