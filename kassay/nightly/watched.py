"""What of a run is watched from night to night, and by which rule where nobody has written another.

Values and names are those of kassay.compare.metrics. Watched is what was concluded and what the stages' outcomes say,
not what repeats it: bounds and p values follow from the estimates and ratios that are watched, and a verdict on time
turns with the noise where its ratio, judged by its pairs, does not. What slows all arms alike shows in no ratio: the
median rate of each arm in timed cells and the largest of each sweep are watched beside them, for gross losses. A value
that is absent is not watched, so that it is `missing` where the baseline has it. One that was not finite is watched
without a value: nobody may overlook it.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path

from kassay.compare import metrics
from kassay.kinds.matrix import MatrixRow
from kassay.kinds.timing import TIMED as TIMED_LOAD
from kassay.kinds.timing import BlockRecord, TimingCell
from kassay.kinds.verdict import ContrastRecord, GateRecord, GuardRecord, SaturationRecord
from kassay.nightly.rule import BYTES, COMPUTED, EQUAL, MEDIAN, PAIRED, RATE, TIMED, WORD, Rule, Value, of_gate
from kassay.report.evidence import load_report

# Kind of record -> its fields that repeat, or turn with the noise of, what is watched.
REPEATED: dict[str, tuple[str, ...]] = {
    "gate": ("lower", "upper"),
    "direct": ("holm_p",),
    "contrast": ("holm_p", "verdict"),
    "matrix_row": ("holm_p", "verdict"),
    "serving_contrast": ("holm_p", "verdict"),
    "composition": ("median", "interval_class"),  # it has no better
    "guard": ("median", "seen"),  # its study lets it decide nothing
    "saturation": ("ceiling_per_s", "half_batch", "state"),
}
NOT_FINITE = ("not finite", "nonfinite")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One watched value."""

    value: Value | None  # None: it was not finite
    pairs: dict[int, float] | None  # block -> ratio within it, of the blocks that count; None: it has no raw pairs
    rule: Rule


def watched(run_dir: Path) -> dict[str, Metric]:
    """Every watched value of a run by name. Raises RunError if it is no run directory, RecordError for a bad line."""
    gates, blocks = gate_rules(run_dir), counted_blocks(run_dir)
    found = {}
    for name, one in metrics.metrics_of(run_dir).items():
        kind, field = name.partition(" ")[0], name.rpartition(": ")[2]
        if field in REPEATED.get(kind, ()) or (one.value is None and not one.absent.startswith(NOT_FINITE)):
            continue
        if one.host_bound and isinstance(one.value, str | bool) and one.ratios is None and kind.endswith(":"):
            continue  # a word that an outcome says of what was timed
        pairs = None
        if one.ratios is not None and one.value is not None:
            pairs = dict(zip(blocks.get(name, range(len(one.ratios))), one.ratios, strict=True))
        found[name] = Metric(value=one.value, pairs=pairs, rule=gates.get(name) or usual(one))
    return found | rates(run_dir)


def usual(one: metrics.Metric) -> Rule:
    """The rule of a metric that nobody has written another for."""
    if one.ratios is not None:
        return PAIRED
    if isinstance(one.value, str | bool):
        return WORD
    if one.host_bound and "bytes" in one.name:
        return BYTES
    if isinstance(one.value, int):
        return EQUAL
    return TIMED if one.host_bound else COMPUTED


def counted_blocks(run_dir: Path) -> dict[str, list[int]]:
    """Which blocks ratios are of: one that an interruption or other work invalidated has none."""
    made = load_report(run_dir, ("contrast",)).of(ContrastRecord)
    found = {f"contrast {one.model} {one.contrast}: median": one.valid_blocks for one in made}
    matrix = load_report(run_dir, ("matrix",))
    counted: dict[tuple[str, str], list[int]] = {}
    for block in matrix.of(BlockRecord):
        counted.setdefault((block.load, block.model), []).extend([block.block] if block.valid else [])
    for row in matrix.of(MatrixRow):
        if (blocks := counted.get((row.workload, row.model))) is not None:
            found[f"matrix_row {row.workload} {row.model} {row.comparison}: median"] = blocks
    return found


def rates(run_dir: Path) -> dict[str, Metric]:
    """Tokens per second of each arm under each load: the median over its timed cells, the largest of its sweep."""
    report = load_report(run_dir, ("timing", "saturation", "contrast"))
    guards = {guard.guard for guard in report.of(GuardRecord)}
    cells: dict[str, list[float]] = {}
    for cell in report.of(TimingCell):
        if not cell.pilot and cell.load not in guards:
            under = "" if cell.load == TIMED_LOAD else f"{cell.load} "
            cells.setdefault(f"timed {under}{cell.model} {cell.recipe}: median_per_s", []).append(cell.rate_per_s())
    found = {name: statistics.median(values) for name, values in cells.items()}
    for fit in report.of(SaturationRecord):
        found[f"sweep {fit.model} {fit.recipe} {fit.context_tokens}: largest_per_s"] = max(fit.rates_per_s)
    return {name: Metric(value=value, pairs=None, rule=RATE) for name, value in found.items()}


def gate_rules(run_dir: Path) -> dict[str, Rule]:
    """The rule of each gate's estimate, by its frozen margin."""
    made = load_report(run_dir, ("certify",)).of(GateRecord)
    return {
        f"gate {one.model} {one.candidate} {one.control} {one.gate}: estimate": of_gate(one.margin, one.decides)
        for one in made
    }


def settled(found: dict[str, Metric], alpha: float) -> dict[str, Metric]:
    """The same, judged by the median where no sign test over so few blocks could reach `alpha` within its family."""
    family = sum(one.pairs is not None for one in found.values())
    return {
        name: Metric(value=one.value, pairs=one.pairs, rule=MEDIAN)
        if one.pairs is not None and family * 0.5 ** len(one.pairs) > alpha
        else one
        for name, one in found.items()
    }
