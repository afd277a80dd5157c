"""Gates on prediction loss: how far does the mean over documents rise, relatively or in nats?

    relative     mean(candidate) / mean(control) - 1
    difference   mean(candidate) - mean(control), nats; at most ln 1.01 means a perplexity ratio of at most 1.01
Both are bounded by the paired document bootstrap (kassay.stats.bootstrap). At a mean of 2 nats a relative margin of 1 %
is twice the difference of ln 1.01: they are two gates and none stands for the other.

Margins, levels, counts, seeds and draws are the plan's and have no defaults. Every document weighs the same, so the
documents of one endpoint should have equally many targets. Data that are not the planned ones raise InvalidData. No
power is stated: it would need the spread over documents, which no plan knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kassay.stats import require_count, require_level
from kassay.stats.bootstrap import BootstrapBounds, mean_difference_bounds, relative_mean_bounds
from kassay.stats.gates import DECIDES, NLL_DIFFERENCE, RELATIVE_NLL, GateResult, gate_verdict
from kassay.stats.paired import ArmLosses, losses_of, require_different

BOUNDS_OF = {RELATIVE_NLL: relative_mean_bounds, NLL_DIFFERENCE: mean_difference_bounds}


@dataclass(frozen=True, kw_only=True)
class LossPlan:
    """The planned gate of one endpoint of prediction loss."""

    gate: str  # its name in the study
    endpoint: str  # `nll`
    control: str  # arm compared with
    candidate: str  # arm under test
    planned_n: int  # documents, all of which must be there
    margin: float  # largest admissible upper bound: a share, or nats
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


def relative_nll_gate(arms: Mapping[str, ArmLosses], *, plan: LossPlan) -> GateResult:
    """The gate of the relative rise, from the loss of every document under the planned arms.

    Raises InvalidData unless both arms hold exactly the planned documents and the control's losses are
    above 0.
    """
    return loss_gate(arms, plan, RELATIVE_NLL)


def nll_difference_gate(arms: Mapping[str, ArmLosses], *, plan: LossPlan) -> GateResult:
    """The gate of the rise in nats; raises InvalidData unless both arms hold exactly the planned documents."""
    return loss_gate(arms, plan, NLL_DIFFERENCE)


def loss_gate(arms: Mapping[str, ArmLosses], plan: LossPlan, statistic: str) -> GateResult:
    """The result of a gate on prediction loss."""
    items, losses = losses_of(arms, control=plan.control, candidate=plan.candidate, planned_n=plan.planned_n)
    rng = np.random.Generator(np.random.PCG64(plan.seed))
    bounds: BootstrapBounds = BOUNDS_OF[statistic](*losses, alpha=plan.alpha, draws=plan.draws, rng=rng)
    decides = DECIDES[statistic]
    verdict, reason = gate_verdict(decides, bounds.lower, bounds.upper, plan.margin, floor=None, score=None)
    return GateResult(
        gate=plan.gate,
        endpoint=plan.endpoint,
        statistic=statistic,
        method=bounds.method,
        sidedness=bounds.sidedness,
        decides=decides,
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
        control_outcomes=None,
        candidate_outcomes=None,
        remark="",
        unchanged=bool(np.array_equal(*losses)),
        verdict=verdict,
        reason=reason,
    )
