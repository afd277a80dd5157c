"""What was concluded: gates, certificates, timing contrasts and saturation fits, each with the numbers behind it."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class GateRecord(Record):
    """One gate of one candidate against its control on one model."""

    schema: ClassVar[str] = "kassay.gate/1"

    model: str = doc("Name of the model.")
    endpoint: str = doc("`retrieval`, `arithmetic` or `nll`.")
    statistic: str = doc("What the estimate is.")
    method: str = doc("How the bounds were computed.")
    control: str = doc("Recipe compared against.")
    candidate: str = doc("Recipe that was judged.")
    n: int = doc("Paired items, all planned ones.")
    items_sha256: str = doc("Digest over the ids and digests of the paired items.")
    estimate: float = doc("Point estimate, a fraction.")
    lower: float = doc("One-sided lower bound at alpha, a fraction.")
    upper: float = doc("One-sided upper bound at alpha, a fraction.")
    alpha: float = doc("Error probability of each bound.")
    margin: float = doc("Largest upper bound that passes, frozen in the study.")
    losses: int | None = doc("Items that the control got right and the candidate wrong; null for nll.")
    gains: int | None = doc("Items that the control got wrong and the candidate right; null for nll.")
    power: float | None = doc("Probability that the gate passes at the study's stated true rate; null for nll.")
    true_rate: float | None = doc("The true loss rate that the power was computed at; null for nll.")
    native_floor: float | None = doc("Least share of items that the control must answer; null for nll.")
    native_score: float | None = doc("Share of items that the control answered; null for nll.")
    unchanged: bool = doc("Whether candidate and control agree everywhere.")
    verdict: str = doc("`pass`, `fails`, `unestablished` or `ineligible`.")
    reason: str = doc("The verdict in words with its numbers.")


@dataclass(frozen=True, kw_only=True)
class CertificateRecord(Record):
    """All gates of one candidate against one control on one model, and what the study expected."""

    schema: ClassVar[str] = "kassay.certificate/1"

    study: str = doc("Name of the study.")
    model: str = doc("Name of the model.")
    control: str = doc("Recipe compared against.")
    candidate: str = doc("Recipe that was judged.")
    verdict: str = doc("`pass`, `fails`, `unestablished` or `ineligible`; computed without the expectation.")
    failed_gates: list[str] = doc("Endpoints whose violation is established.")
    open_gates: list[str] = doc("Endpoints whose bound misses the margin without an established violation.")
    expected: str | None = doc("Verdict that the study expects of a reproduction, null where it states none.")
    as_expected: bool | None = doc("Whether the verdict is the expected one, null where none is stated.")


@dataclass(frozen=True, kw_only=True)
class ContrastRecord(Record):
    """One timing comparison of the predeclared family."""

    schema: ClassVar[str] = "kassay.contrast/1"

    contrast: str = doc("Name of the comparison.")
    candidate: str = doc("Recipe in the ratio's numerator (its rate).")
    control: str = doc("Recipe in the ratio's denominator (its rate).")
    ratios: list[float] | None = doc("Within-block rate ratios in block order, null if not measured.")
    median: float | None = doc("Median of the ratios.")
    lower: float | None = doc("Lower end of the exact bootstrap interval of the median, two-sided 95 %, descriptive.")
    upper: float | None = doc("Upper end of the same interval.")
    wins: int | None = doc("Blocks whose ratio is above 1; ties are no wins and stay in n.")
    p: float | None = doc("One-sided exact sign test.")
    holm_p: float = doc("Holm-adjusted p over the whole family; comparisons that were not measured keep 1.")
    family_size: int = doc("Planned comparisons.")
    alpha: float = doc("Level of the family.")
    screen_ratio: float = doc("Least median ratio of a gain.")
    certificate: str = doc("Verdict of the candidate's quality certificate on this model.")
    verdict: str = doc("`gain confirmed`, `no confirmed gain`, `descriptive`, `ineligible` or `not run`.")
    reason: str = doc("The verdict in words.")


@dataclass(frozen=True, kw_only=True)
class SaturationRecord(Record):
    """The Hill fit of one sweep and whether its ceiling may be believed."""

    schema: ClassVar[str] = "kassay.saturation/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    context_tokens: int = doc("Context of the sweep in tokens.")
    batches: list[int] = doc("Measured batches.")
    rates_per_s: list[float] = doc("Median decode rate at each batch in tokens per second over all sequences.")
    ceiling_per_s: float = doc("Fitted ceiling S_max in tokens per second (log residuals).")
    ceiling_lower_per_s: float | None = doc("Lower end of its 95 % profile interval, null if open.")
    ceiling_upper_per_s: float | None = doc("Upper end of its 95 % profile interval, null if open.")
    half_batch: float = doc("Fitted batch at half the ceiling.")
    gamma: float = doc("Fitted Hill exponent.")
    gamma_fixed: bool = doc("Whether gamma was held at 1 because there are fewer than six points.")
    reached: float = doc("Fitted rate at the largest batch over the ceiling.")
    rms_log_residual: float = doc("Root mean square of ln(measured/fitted).")
    flags: list[str] = doc("What a reader must know before believing the fit.")
    state: str = doc("`usable`, `ceiling_extrapolated`, `shape_misfit` or `not_identifiable`.")
    statement: str = doc("What may be said of the ceiling, in words.")
