"""What fused INT4 attention gains over 16-bit baselines, and which quantity the gain follows."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import absent, as_long, given_only, one_of, ordered, rule, together
from kassay.record import Record, doc


def is_interval(ends: list[float | None] | None) -> bool:
    """Whether two ends are in order; null ones are open."""
    if ends is None:
        return True
    return len(ends) == 2 and (None in ends or not ends[1] < ends[0])  # type: ignore[operator]


def counts_say(claim: Any) -> str:
    """The verdict of a claim's counts."""
    pairs = len(claim.pairs)
    return "holds" if claim.agreeing == pairs else "fails" if claim.against == pairs else "unsettled"


@dataclass(frozen=True, kw_only=True)
class FusionCell(Record):
    """One arm at one head layout, batch and context: every timed round."""

    schema: ClassVar[str] = "kassay.fusion_cell/1"

    query_heads: int = doc("Query heads.")
    kv_heads: int = doc("KV heads.")
    head_dim: int = doc("Head dim.")
    page_tokens: int = doc("Tokens of a page; torch's arm reads contiguous tokens.")
    batch: int = doc("Sequences, all of one length.")
    context_tokens: int = doc("Cached tokens of each sequence.")
    arm: str = doc("What was timed: one of the arms of kassay.kernels.fusion.")
    splits: int | None = doc("Splits of a sequence that were launched; null where torch decides.")
    programs: int | None = doc("Programs of the attention kernel in one launch; null where torch decides.")
    tile: str = doc("Tokens of a step, warps and stages of a program, as `64x4x3`; empty for torch.")
    call_bytes: int = doc("Bytes of keys, values and scales that a call must move, a copy that it makes included.")
    calls: int = doc("Calls of the captured graph; each reads pages of its own as far as the pool reaches.")
    rounds_us: list[float] | None = doc(
        "Time of a call in each round in microseconds, the first round left out; null where it did not run."
    )
    error: float | None = doc(
        "Relative error of one sequence's output against float64 on the stored operands; null for torch's arm, and "
        "where it did not run."
    )
    failed: str = doc("Why it did not run, empty if it did.")

    combinations = (
        given_only("failed", ("",), "rounds_us"),
        absent("rounds_us", (None,), "error"),
        together("splits", "programs", "tile"),
    )


@dataclass(frozen=True, kw_only=True)
class FusionFit(Record):
    """One explanation of one speed-up: a Hill curve of one quantity, over all layouts, batches and contexts."""

    schema: ClassVar[str] = "kassay.fusion_fit/1"

    candidate: str = doc("Arm whose time divides.")
    baseline: str = doc("Arm whose time is divided.")
    covariate: str = doc("The quantity that the speed-up is taken to follow.")
    ceiling_rule: str = doc(
        "`one ceiling`, or `share of the byte limit`: the ceiling in units of each layout's own limit."
    )
    n: int = doc("Cells.")
    clusters: int = doc("Head layouts.")
    residual_space: str = doc("Always `log`: ln ratio - ln fit.")
    ceiling: float = doc("Fitted ceiling of the speed-up, or of its share of the byte limit.")
    half: float = doc("Value of the covariate at half the ceiling.")
    gamma: float = doc("Fitted Hill exponent.")
    status: str = doc("`converged`, or why the fit failed.")
    linear_ceiling: float = doc("Ceiling by linear residuals, shown beside it.")
    linear_half: float = doc("Half value by linear residuals.")
    ceiling_ends: list[float] | None = doc(
        "Layout-clustered bootstrap interval of the ceiling; null where none was asked for."
    )
    half_ends: list[float] | None = doc("The same of the half value.")
    gamma_ends: list[float] | None = doc("The same of gamma.")
    draws: int | None = doc("Resamples of whole layouts; null likewise.")
    failed_draws: int | None = doc("Resamples whose fit failed; they widen the interval.")
    r2: float | None = doc("Of logarithms; it decides nothing.")
    rms_log_residual: float = doc("Root mean square of ln(measured/fitted).")
    left_out_rms: float = doc("The same over layouts that the fit did not see, each left out once.")
    aicc: float = doc("AIC with its small-sample correction, rows taken as independent.")
    reached: float = doc("Fitted value at the largest covariate over the ceiling.")
    best: bool = doc("Whether it has the least AICc of all explanations of this speed-up.")
    flags: list[str] = doc("What limits the fit.")

    combinations = (
        one_of("ceiling_rule", ("one ceiling", "share of the byte limit")),
        one_of("residual_space", ("log",)),
        together("ceiling_ends", "half_ends", "gamma_ends", "draws", "failed_draws"),
        rule(
            "`ceiling_ends`, `half_ends` and `gamma_ends` are a lower end and an upper one that is not below it",
            lambda fit: all(map(is_interval, (fit.ceiling_ends, fit.half_ends, fit.gamma_ends))),
        ),
        ordered("failed_draws", "draws"),
        ordered("clusters", "n"),
    )


@dataclass(frozen=True, kw_only=True)
class FusionVerdict(Record):
    """Which quantity one speed-up follows."""

    schema: ClassVar[str] = "kassay.fusion_verdict/1"

    candidate: str = doc("Arm whose time divides.")
    baseline: str = doc("Arm whose time is divided.")
    n: int = doc("Cells.")
    lowest: float = doc("Least speed-up of a cell.")
    median: float = doc("Median speed-up over cells.")
    highest: float = doc("Largest speed-up of a cell.")
    above_limit: int = doc("Cells above the byte limit: there the baseline is no match for the memory.")
    covariate: str = doc("The quantity that it follows by least AICc.")
    left_out_covariate: str = doc("The quantity with the least error on layouts that were left out.")
    gain_over_batch: float = doc(
        "AICc of `batch` less that of the best explanation, the ceiling rule of each its best."
    )
    layouts: list[str] = doc("Head layouts, `<query heads>/<KV heads>`.")
    half_batches: list[float | None] = doc("Half-batch of each layout alone; null where that fit failed.")
    half_spread: float | None = doc("Largest half-batch over the least; null where fewer than two are known.")
    half_spread_query_heads: float | None = doc("The same of half-batch times query heads.")
    half_spread_kv_heads: float | None = doc("The same of half-batch times KV heads.")
    verdict: str = doc("`follows`, `closest`, `unsettled` or `flat`.")
    reason: str = doc("The verdict in words with its numbers.")

    combinations = (
        one_of("verdict", ("follows", "closest", "unsettled", "flat")),
        ordered("lowest", "median", "highest"),
        ordered("above_limit", "n"),
        as_long("layouts", "half_batches"),
        together("half_spread", "half_spread_query_heads", "half_spread_kv_heads"),
        rule(
            "`half_spread` is there exactly where two of `half_batches` are",
            lambda made: (made.half_spread is None) == (sum(half is not None for half in made.half_batches) < 2),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FusionClaim(Record):
    """One claim on the old law, judged over several speed-ups."""

    schema: ClassVar[str] = "kassay.fusion_claim/1"

    claim: str = doc("What is claimed.")
    pairs: list[str] = doc("Speed-ups that it is judged on, `<candidate> over <baseline>`.")
    agreeing: int = doc("Of them, those that bear it out.")
    against: int = doc("Of them, those that contradict it; the others do not tell.")
    verdict: str = doc("`holds` if all bear it out, `fails` if all contradict it, else `unsettled`.")
    reason: str = doc("The numbers behind it.")

    combinations = (
        one_of("verdict", ("holds", "fails", "unsettled")),
        rule(
            "`agreeing` and `against` add up to no more than `pairs`",
            lambda claim: claim.agreeing + claim.against <= len(claim.pairs),
        ),
        rule(
            "`verdict` is `holds` where all `pairs` are `agreeing`, `fails` where all are `against`, else `unsettled`",
            lambda claim: claim.verdict == counts_say(claim),
        ),
    )
