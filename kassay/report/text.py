"""report.md: the whole report as tables and sentences."""

from collections.abc import Sequence
from typing import Any

from kassay.kinds.composition import CompositionRecord
from kassay.kinds.matrix import MatrixRow
from kassay.kinds.serving import ServingCheck, ServingContrast
from kassay.kinds.speculation import AcceptanceRecord
from kassay.kinds.verdict import ContrastRecord, GateRecord, SaturationRecord
from kassay.report import serving_rows as serving
from kassay.report.acceptance import ACCEPTED, DRAFTED, acceptance_row, timed_rows
from kassay.report.answers import COUNTED, count_rows, published_rows
from kassay.report.certified import QUALIFIED, amount, limit_of, power_of, qualification_rows
from kassay.report.closing import REPORT_HTML
from kassay.report.comparisons import DIRECT, direct_rows, matrix_header, matrix_row
from kassay.report.composition import COMPOSED, composition_row
from kassay.report.conditions import FAULTS, GUARDS, blocks_of, fault_rows, guard_rows
from kassay.report.evidence import Report
from kassay.report.findings import chosen_settings, findings, verdict_line, verdicts
from kassay.report.fusion_words import CLAIMS, SPEED_UPS, claim_rows, speed_up_rows
from kassay.report.unrun import UNRUN, unrun_rows
from kassay.report.words import (
    ABSENT,
    exit_meaning,
    fixed,
    frozen_words,
    number,
    one_line,
    percent,
    probability,
    seconds,
    title,
)
from kassay.report.worker import BESIDE, FOUND, finding_rows, ratio_rows


def markdown(report: Report) -> str:
    """The whole report as Markdown: tables and sentences, no figure."""
    run = report.run
    code = run.exit_code
    ended = "Unfinished" if code is None else f"Exit code {code}"
    parts = [
        f"# {escaped(verdict_line(report))}",
        f"**{ended}**: {exit_meaning(code)}.",
        f"Run `{quoted(run.run)}`, profile `{quoted(run.profile)}`, plan `{quoted(run.plan_hash[:8])}`. "
        f"The page with figures is [{REPORT_HTML}]({REPORT_HTML}).",
        protocol_line(run.protocol),
        "\n".join(f"- **{found.topic}**: {escaped(found.text)}" for found in findings(report)),
        failures(report),
        grid("Planned, without a result", UNRUN, unrun_rows(report)),
        verdict_table(report),
        gate_table(report),
        grid("Qualifications", QUALIFIED, qualification_rows(report)),
        grid("Direct comparisons", ["endpoint", *DIRECT], direct_rows(report)),
        grid("Matrix", matrix_header(report), [matrix_row(record) for record in report.of(MatrixRow)]),
        grid("Check of the engine", FOUND, finding_rows(report)),
        contrast_table(report),
        grid("Ratios in the worker", BESIDE, ratio_rows(report)),
        grid("Composition", COMPOSED, [composition_row(record) for record in report.of(CompositionRecord)]),
        grid("Acceptance of drafts", ACCEPTED, [acceptance_row(one) for one in report.of(AcceptanceRecord)]),
        grid("Drafts of timed cells", DRAFTED, timed_rows(report)),
        fit_table(report),
        grid("Fused INT4: claims on the old law", CLAIMS, claim_rows(report)),
        grid("Fused INT4: speed-ups", SPEED_UPS, speed_up_rows(report)),
        serving_tables(report),
        figure_tables(report),
        stage_table(report),
        setting_table(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def protocol_line(protocol: dict[str, Any]) -> str:
    """The protocol of the run and the frozen one; nothing for a workflow without a study."""
    if not protocol:
        return ""
    own = f"Protocol `{quoted(protocol['name'])}`, `{quoted(protocol['sha256'])}`"
    return f"{own}; frozen: {escaped(frozen_words(protocol))}."


def escaped(value: object) -> str:
    """Text on one line without anything that Markdown or HTML would act on."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#&" else letter for letter in one_line(value, 600))


def quoted(value: object) -> str:
    """Text for a code span."""
    return one_line(value, 200).replace("`", "'")


def grid(heading: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A section with one table; none without rows."""
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *[[escaped(value) for value in row] for row in rows]]
    return f"## {heading}\n\n" + "\n".join("| " + " | ".join(str(value) for value in line) + " |" for line in lines)


def failures(report: Report) -> str:
    """Every stage that did not pass, with the last line of its log."""
    lines = [f"- records: {escaped(fault)}" for fault in report.faults]
    for stage in report.run.judged:
        if stage.word != "passed":
            told = stage.stderr_tail[-1] if stage.stderr_tail else ""
            last = f"; last line: {escaped(told)}" if told and told not in stage.reason else ""
            lines.append(f"- **{escaped(stage.name)}** {stage.word}: {escaped(stage.reason)}{last}")
        if stage.stale:
            lines.append(f"- **{escaped(stage.name)}** was kept on demand, stale: {escaped(stage.stale)}")
    return "## What did not pass\n\n" + "\n".join(lines) if lines else ""


def verdict_table(report: Report) -> str:
    """Recipes by models; nothing where no stage certifies."""
    if not report.run.program("certify"):
        return ""
    found = verdicts(report)
    models = list(dict.fromkeys(model for _, model in found))
    names = list(dict.fromkeys(name for name, _ in found))
    rows = [[title(name), *(found.get((name, model), ABSENT) for model in models)] for name in names]
    return grid("Verdicts", ["recipe", *map(escaped, models)], rows)


def gate_table(report: Report) -> str:
    """Every gate with its numbers and its power."""
    rows = [
        [
            gate.model,
            title(gate.candidate),
            title(gate.control),
            gate.gate,
            gate.n,
            ABSENT if gate.losses is None else f"{gate.losses} / {gate.gains}",
            amount(gate, gate.estimate),
            amount(gate, gate.lower),
            amount(gate, gate.upper),
            limit_of(gate),
            power_of(gate),
            f"{gate.verdict}; {gate.remark}" if gate.remark else gate.verdict,
        ]
        for gate in report.of(GateRecord)
    ]
    header = ["model", "recipe", "control", "gate", "n", "losses / gains", "estimate", "lower", "upper", "margin"]
    return grid("Gates", [*header, "power", "verdict"], rows)


def contrast_table(report: Report) -> str:
    """Every timing comparison."""
    rows = [
        [
            record.contrast,
            fixed(record.median, 4),
            ABSENT if record.lower is None else f"{fixed(record.lower, 4)} to {fixed(record.upper, 4)}",
            ABSENT if record.ratios is None else f"{record.wins} / {len(record.ratios)}",
            f"{len(record.valid_blocks)} of {record.blocks}",
            probability(record.holm_p),
            record.verdict,
        ]
        for record in report.of(ContrastRecord)
    ]
    header = ["comparison", "median ratio", "95 % interval", "wins / n", "blocks that count", "Holm p", "verdict"]
    parts = [
        grid("Timing", header, rows),
        grid("Blocks that do not count", FAULTS, fault_rows([one for one in blocks_of(report) if not one.valid])),
        grid("Guards, which decide nothing", GUARDS, guard_rows(report)),
    ]
    return "\n\n".join(part for part in parts if part)


def fit_table(report: Report) -> str:
    """Every saturation fit."""
    rows = [
        [
            f"{fit.context_tokens:,}",
            title(fit.recipe),
            fit.state,
            fit.statement,
            percent(fit.reached, 0),
            number(fit.half_batch),
        ]
        for fit in report.of(SaturationRecord)
    ]
    return grid("Saturation", ["context", "recipe", "state", "what may be said", "reached", "half batch"], rows)


def serving_tables(report: Report) -> str:
    """Loads with their failures, comparisons, what another tool said, and loads that are invalid."""
    loads = serving.counting(report)
    parts = [
        grid("Serving: loads, times in milliseconds", serving.LOADS, serving.load_rows(loads)),
        grid("Serving: comparisons", serving.CONTRASTS, serving.contrast_rows(report.of(ServingContrast))),
        grid("Serving: by another tool", serving.CHECKS, serving.check_rows(report.of(ServingCheck))),
        grid("Serving: loads that are invalid", serving.INVALID, serving.invalid_rows(loads)),
    ]
    return "\n\n".join(part for part in parts if part)


def figure_tables(report: Report) -> str:
    """Answers by study, and every printed figure."""
    header = ["study", "figure", "quantity", "printed", "derived", "inputs allow", "answer"]
    parts = [
        grid("Published figures by study", COUNTED, count_rows(report)),
        grid("Published figures", header, published_rows(report)),
    ]
    return "\n\n".join(part for part in parts if part)


def stage_table(report: Report) -> str:
    """Every stage."""
    rows = [
        [
            stage.name,
            stage.word,
            seconds(stage.duration_s),
            stage.origin,
        ]
        for stage in report.run.stages
    ]
    return grid("Stages", ["stage", "outcome", "time", "why"], rows)


def setting_table(report: Report) -> str:
    """Settings that are not defaults, and overrides; other members of a choice in one row."""
    chosen, others = chosen_settings(report.run)
    rows = [[name, setting["value"], setting["origin"], setting["where"]] for name, setting in sorted(chosen.items())]
    if others:
        rows.append([f"{len(others)} other members of these choices", "n", "", "report.json names them"])
    rows += [[override, "", "override", "SET"] for override in report.run.overrides]
    return grid("What was asked", ["setting", "value", "from", "place"], rows)
