"""Gates on answers: what did the candidate lose of what the control answers, and what is left when gains count too?

    gross loss   losses / n, bounded exactly (kassay.stats.exact); gains never cancel losses
    net change   (gains - losses) / n, bounded by Tango's score interval (kassay.stats.paired), approximately
n is *all* paired items, errors and truncations included. The power beside a gate is the probability that it passes at
the true rate that the plan states: for a gross loss that rate of losses; for a net change that rate of losses and of as
many gains, so that truly nothing changes (kassay.stats.net).

Margins, levels and counts are the plan's and have no defaults. Data that are not exactly the planned ones raise
InvalidData: no verdict exists for them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kassay.stats import InvalidData, Sidedness, require_count, require_finite, require_level
from kassay.stats.exact import binomial_lower, binomial_upper, gate_power
from kassay.stats.gates import DECIDES, GROSS_LOSS, NET_CHANGE, GateResult, cut_off, gate_verdict
from kassay.stats.paired import (
    ArmAnswers,
    PairedCounts,
    PairedItems,
    answers_of,
    require_different,
    tango_bounds,
)


@dataclass(frozen=True, kw_only=True)
class AnswerGatePlan:
    """What both gates on answers are planned with."""

    gate: str  # its name in the study
    endpoint: str  # `retrieval`, `arithmetic`
    control: str  # arm whose right answers must be kept
    candidate: str  # arm under test
    planned_n: int  # items, all of which must be there
    margin: float  # a share; what it limits is the gate's
    alpha: float  # one-sided level of either bound
    true_rate: float | None  # rate at which the gate's power is stated, a share; None: no power is stated
    native_floor: float | None  # least share that the control must answer; None: the endpoint has no floor

    def __post_init__(self) -> None:
        require_different(self.control, self.candidate)
        require_count(self.planned_n, "planned_n", least=1)
        for name in ("alpha",) + (() if self.native_floor is None else ("native_floor",)):
            require_level(getattr(self, name), name)


@dataclass(frozen=True, kw_only=True)
class GrossLossPlan(AnswerGatePlan):
    """The planned gate of gross losses; the margin is the largest admissible upper bound."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_level(self.margin, "margin")


@dataclass(frozen=True, kw_only=True)
class NetChangePlan(AnswerGatePlan):
    """The planned gate of the net change; the margin is the least admissible lower bound, at most 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_finite(self.margin, "margin")
        if not -1 < self.margin <= 0:
            raise InvalidData(f"`margin` is {self.margin}, allowed is above -1 and at most 0")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a gate's statistic is on the data."""

    method: str
    sidedness: Sidedness
    estimate: float
    lower: float
    upper: float
    power: float | None


def gross_loss_gate(arms: Mapping[str, ArmAnswers], *, plan: GrossLossPlan) -> GateResult:
    """The gate of gross losses at one endpoint, from every answer of the planned arms.

    Raises InvalidData unless both arms hold exactly the planned number of items, the same ones with the
    same digests.
    """
    items, counts = answers_of(arms, control=plan.control, candidate=plan.candidate, planned_n=plan.planned_n)
    ended = (arms[plan.control].counts(), arms[plan.candidate].counts())
    lower = binomial_lower(counts.losses, counts.n, alpha=plan.alpha)
    upper = binomial_upper(counts.losses, counts.n, alpha=plan.alpha)
    power = None
    if plan.true_rate is not None:
        power = gate_power(counts.n, margin=plan.margin, alpha=plan.alpha, true_rate=plan.true_rate).power
    bounds = Bounds(
        method=upper.method,
        sidedness=upper.sidedness,
        estimate=upper.estimate,
        lower=lower.bound,
        upper=upper.bound,
        power=power,
    )
    return answer_gate(plan, GROSS_LOSS, items, counts, ended, bounds)


def net_change_gate(arms: Mapping[str, ArmAnswers], *, plan: NetChangePlan) -> GateResult:
    """The gate of the net change at one endpoint, from every answer of the planned arms; raises as gross_loss_gate."""
    items, counts = answers_of(arms, control=plan.control, candidate=plan.candidate, planned_n=plan.planned_n)
    ended = (arms[plan.control].counts(), arms[plan.candidate].counts())
    made = tango_bounds(gains=counts.gains, losses=counts.losses, n=counts.n, alpha=plan.alpha, sidedness="one-sided")
    power = None
    if (rate := plan.true_rate) is not None:
        from kassay.stats.net import net_gate_power  # only where a power is stated

        power = net_gate_power(counts.n, margin=-plan.margin, alpha=plan.alpha, gain_rate=rate, loss_rate=rate).power
    bounds = Bounds(
        method=made.method,
        sidedness=made.sidedness,
        estimate=made.estimate,
        lower=made.lower,
        upper=made.upper,
        power=power,
    )
    return answer_gate(plan, NET_CHANGE, items, counts, ended, bounds)


def answer_gate(
    plan: AnswerGatePlan,
    statistic: str,
    items: PairedItems,
    counts: PairedCounts,
    ended: tuple[dict[str, int], dict[str, int]],
    bounds: Bounds,
) -> GateResult:
    """The result of a gate on answers; `ended` counts how those of control and candidate ended."""
    decides: Literal["upper", "lower"] = DECIDES[statistic]
    native_score = (counts.both_correct + counts.losses) / counts.n
    verdict, reason = gate_verdict(
        decides, bounds.lower, bounds.upper, plan.margin, floor=plan.native_floor, score=native_score
    )
    return GateResult(
        gate=plan.gate,
        endpoint=plan.endpoint,
        statistic=statistic,
        decides=decides,
        control=plan.control,
        candidate=plan.candidate,
        n=counts.n,
        items_sha256=items.items_sha256,
        **vars(bounds),
        alpha=plan.alpha,
        margin=plan.margin,
        losses=counts.losses,
        gains=counts.gains,
        true_rate=plan.true_rate,
        native_floor=plan.native_floor,
        native_score=native_score,
        draws=None,
        seed=None,
        control_outcomes=ended[0],
        candidate_outcomes=ended[1],
        remark=cut_off(*ended),
        unchanged=counts.losses == counts.gains == 0,
        verdict=verdict,
        reason=reason,
    )
