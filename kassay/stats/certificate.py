"""Does a candidate preserve what its control does? From per-item values to gates and a certificate.

A gate bounds one loss at one one-sided alpha and compares it with its planned margin, in three ways:
    pass            upper bound <= margin
    fails           lower bound at the same alpha > margin: the violation is established
    unestablished   neither; the bound misses the margin, which is no proof of harm
    ineligible      the control's own score is below the planned floor: there is nothing to preserve
Endpoints of answers are bounded exactly (kassay.stats.exact) on gross losses over *all* paired items;
prediction loss by the paired document bootstrap of mean(candidate) / mean(control) - 1
(kassay.stats.bootstrap).

Margins, levels, counts, seeds and draws are the plan's and have no defaults. Data that are not exactly the
planned ones raise InvalidData: no verdict exists for them. Every document weighs the same, so documents of
one endpoint should have equally many targets. No alpha is split here: the plan states the level of each
gate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kassay.stats import InvalidData, Sidedness, require_count, require_finite, require_level
from kassay.stats.bootstrap import relative_mean_bounds
from kassay.stats.exact import binomial_lower, binomial_upper, gate_power
from kassay.stats.paired import (
    ArmAnswers,
    ArmLosses,
    paired_counts,
    paired_items,
    require_different,
    select_arm,
)

GROSS_LOSS = "gross loss rate"
RELATIVE_NLL = "relative mean nll"


@dataclass(frozen=True, kw_only=True)
class GrossLossPlan:
    """The planned gate of one endpoint of answers."""

    endpoint: str  # `retrieval`, `arithmetic`
    control: str  # arm whose right answers must be kept
    candidate: str  # arm under test
    planned_n: int  # items, all of which must be there
    margin: float  # largest admissible upper bound of the gross loss rate, a share
    alpha: float  # one-sided level of either bound
    true_rate: float  # loss rate at which the gate's power is stated, a share
    native_floor: float | None  # least share that the control must answer; None: the endpoint has no floor

    def __post_init__(self) -> None:
        require_different(self.control, self.candidate)
        require_count(self.planned_n, "planned_n", least=1)
        for name in ("margin", "alpha") + (() if self.native_floor is None else ("native_floor",)):
            require_level(getattr(self, name), name)


@dataclass(frozen=True, kw_only=True)
class RelativeLossPlan:
    """The planned gate of one endpoint of prediction loss."""

    endpoint: str  # `nll`
    control: str  # arm compared with
    candidate: str  # arm under test
    planned_n: int  # documents, all of which must be there
    margin: float  # largest admissible upper bound of the relative mean loss, a share
    alpha: float  # one-sided level of either bound
    draws: int  # bootstrap resamples
    seed: int  # seed of numpy's PCG64

    def __post_init__(self) -> None:
        require_different(self.control, self.candidate)
        require_count(self.planned_n, "planned_n", least=2)
        require_count(self.draws, "draws", least=1)
        require_count(self.seed, "seed", least=0)
        require_level(self.margin, "margin")
        require_level(self.alpha, "alpha")


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One gate with every number behind its verdict; construction recomputes the verdict from them."""

    endpoint: str  # the plan's endpoint
    statistic: str  # GROSS_LOSS or RELATIVE_NLL
    method: str  # how the bounds were computed
    sidedness: Sidedness  # always `one-sided`: each bound at alpha
    control: str  # arm compared with
    candidate: str  # arm under test
    n: int  # paired items, all that were planned
    items_sha256: str  # digest over the identifiers and digests of those items
    estimate: float  # the statistic on these items, a share
    lower: float  # one-sided lower bound
    upper: float  # one-sided upper bound
    alpha: float  # level of each bound
    margin: float  # largest admissible upper bound
    losses: int | None  # right under the control, wrong under the candidate; None for prediction loss
    gains: int | None  # the reverse, never cancelling losses; None for prediction loss
    power: float | None  # probability of a pass at `true_rate`; None for prediction loss
    true_rate: float | None  # loss rate supposed true for the power; None for prediction loss
    native_floor: float | None  # least score of the control; None without a floor
    native_score: float | None  # share that the control answered; None for prediction loss
    draws: int | None  # bootstrap resamples; None for an exact bound
    seed: int | None  # seed of PCG64; None for an exact bound
    unchanged: bool  # no item's value differs between the arms, as when the intervention never ran
    verdict: str  # `pass`, `fails`, `unestablished` or `ineligible`
    reason: str  # what decided, in words

    def __post_init__(self) -> None:
        counted = (self.losses, self.gains, self.power, self.true_rate, self.native_score)
        drawn = (self.draws, self.seed)
        present, absent = (counted, drawn) if self.statistic == GROSS_LOSS else (drawn, counted)
        if None in present or any(value is not None for value in absent):
            raise InvalidData(f"gate `{self.endpoint}` holds fields of another statistic: this is a bug")
        decided = _gate_verdict(self.lower, self.upper, self.margin, self.native_floor, self.native_score)
        if (self.verdict, self.reason) != decided:
            raise InvalidData(
                f"gate `{self.endpoint}` says `{self.verdict}`, its numbers `{decided[0]}`: this is a bug"
            )


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """The gates of one candidate against one control, all that were planned."""

    control: str  # arm compared with
    candidate: str  # arm under test
    gates: tuple[GateResult, ...]  # in the plan's order
    verdict: str  # `pass`, `fails`, `unestablished` or `ineligible`
    failed_gates: tuple[str, ...]  # endpoints whose violation is established
    open_gates: tuple[str, ...]  # endpoints that are unestablished or ineligible

    def __post_init__(self) -> None:
        decided = _certificate_verdict(self.gates)
        if (self.verdict, self.failed_gates, self.open_gates) != decided:
            raise InvalidData(f"the certificate of `{self.candidate}` differs from its gates: this is a bug")


def gross_loss_gate(arms: Mapping[str, ArmAnswers], *, plan: GrossLossPlan) -> GateResult:
    """The gate of one endpoint of answers, from every answer of the planned arms.

    Raises InvalidData unless both arms hold exactly the planned number of items, the same ones with the
    same digests.
    """
    control, candidate = select_arm(arms, plan.control), select_arm(arms, plan.candidate)
    items = paired_items(control, candidate, planned_n=plan.planned_n)
    counts = paired_counts(control.correct(items.item_ids), candidate.correct(items.item_ids))
    power = gate_power(counts.n, margin=plan.margin, alpha=plan.alpha, true_rate=plan.true_rate)
    lower = binomial_lower(counts.losses, counts.n, alpha=plan.alpha)
    upper = binomial_upper(counts.losses, counts.n, alpha=plan.alpha)
    native_score = (counts.both_correct + counts.losses) / counts.n
    verdict, reason = _gate_verdict(lower.bound, upper.bound, plan.margin, plan.native_floor, native_score)
    return GateResult(
        endpoint=plan.endpoint,
        statistic=GROSS_LOSS,
        method=upper.method,
        sidedness=upper.sidedness,
        control=plan.control,
        candidate=plan.candidate,
        n=counts.n,
        items_sha256=items.items_sha256,
        estimate=upper.estimate,
        lower=lower.bound,
        upper=upper.bound,
        alpha=plan.alpha,
        margin=plan.margin,
        losses=counts.losses,
        gains=counts.gains,
        power=power.power,
        true_rate=plan.true_rate,
        native_floor=plan.native_floor,
        native_score=native_score,
        draws=None,
        seed=None,
        unchanged=counts.losses == counts.gains == 0,
        verdict=verdict,
        reason=reason,
    )


def relative_nll_gate(arms: Mapping[str, ArmLosses], *, plan: RelativeLossPlan) -> GateResult:
    """The gate of one endpoint of prediction loss, from the loss of every document under the planned arms.

    Raises InvalidData unless both arms hold exactly the planned documents and the control's losses are
    above 0.
    """
    control, candidate = select_arm(arms, plan.control), select_arm(arms, plan.candidate)
    items = paired_items(control, candidate, planned_n=plan.planned_n)
    losses = control.losses(items.item_ids), candidate.losses(items.item_ids)
    rng = np.random.Generator(np.random.PCG64(plan.seed))
    bounds = relative_mean_bounds(*losses, alpha=plan.alpha, draws=plan.draws, rng=rng)
    verdict, reason = _gate_verdict(bounds.lower, bounds.upper, plan.margin, None, None)
    return GateResult(
        endpoint=plan.endpoint,
        statistic=RELATIVE_NLL,
        method=bounds.method,
        sidedness=bounds.sidedness,
        control=plan.control,
        candidate=plan.candidate,
        n=bounds.n,
        items_sha256=items.items_sha256,
        estimate=bounds.estimate,
        lower=bounds.lower,
        upper=bounds.upper,
        alpha=plan.alpha,
        margin=plan.margin,
        losses=None,
        gains=None,
        power=None,
        true_rate=None,
        native_floor=None,
        native_score=None,
        draws=plan.draws,
        seed=plan.seed,
        unchanged=bool(np.array_equal(*losses)),
        verdict=verdict,
        reason=reason,
    )


def certificate(
    gates: Sequence[GateResult], *, control: str, candidate: str, planned_endpoints: Sequence[str]
) -> Certificate:
    """The certificate over every planned gate of one candidate against one control.

    Raises InvalidData unless the gates are exactly the planned endpoints, once each, of these two arms.
    """
    if not planned_endpoints or [gate.endpoint for gate in gates] != list(planned_endpoints):
        raise InvalidData(
            f"the gates of `{candidate}` are {[gate.endpoint for gate in gates]}, "
            f"allowed are the planned {list(planned_endpoints)} in their order, at least one"
        )
    if len(set(planned_endpoints)) != len(planned_endpoints):
        raise InvalidData(f"the planned endpoints {list(planned_endpoints)} name one twice")
    for gate in gates:
        if (gate.control, gate.candidate) != (control, candidate):
            raise InvalidData(
                f"gate `{gate.endpoint}` compares `{gate.candidate}` with `{gate.control}`, "
                f"allowed: `{candidate}` with `{control}`"
            )
    verdict, failed, unsettled = _certificate_verdict(gates)
    return Certificate(
        control=control,
        candidate=candidate,
        gates=tuple(gates),
        verdict=verdict,
        failed_gates=failed,
        open_gates=unsettled,
    )


def _gate_verdict(
    lower: float, upper: float, margin: float, floor: float | None, score: float | None
) -> tuple[str, str]:
    """The verdict of one gate and what decided it; raises InvalidData for a number that is not finite."""
    for name, value in (("lower", lower), ("upper", upper), ("margin", margin)):
        require_finite(value, name)
    if not lower <= upper:
        raise InvalidData(f"the lower bound {lower} is above the upper bound {upper}: this is a bug")
    if floor is not None and (score is None or not score >= floor):
        return "ineligible", f"the control scores {score}, below its floor of {floor}"
    if upper <= margin:
        return "pass", f"the upper bound {upper} is at most the margin {margin}"
    if lower > margin:
        return "fails", f"the lower bound {lower} is above the margin {margin}"
    return "unestablished", f"the margin {margin} lies between the bounds {lower} and {upper}"


def _certificate_verdict(gates: Sequence[GateResult]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The verdict over gates, the endpoints that fail, and those that are open."""
    failed = tuple(gate.endpoint for gate in gates if gate.verdict == "fails")
    unsettled = tuple(gate.endpoint for gate in gates if gate.verdict in ("unestablished", "ineligible"))
    if failed:
        return "fails", failed, unsettled
    if any(gate.verdict == "ineligible" for gate in gates):
        return "ineligible", failed, unsettled
    if gates and all(gate.verdict == "pass" for gate in gates):
        return "pass", failed, unsettled
    return "unestablished", failed, unsettled
