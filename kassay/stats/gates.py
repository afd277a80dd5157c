"""What does one gate say? Two one-sided bounds at one level, compared with the margin that was planned.

A gate bounds a loss from above or a net change from below. With `upper` deciding (losses):
    pass            upper bound <= margin
    fails           lower bound at the same alpha > margin: the violation is established
    unestablished   neither; the bound misses the margin, which is no proof of harm
With `lower` deciding (net change, whose margin is at most 0) it is the mirror: lower >= margin passes, upper < margin
fails. And whichever decides:
    ineligible      the control's own score is below the planned floor: there is nothing to preserve
The bounds are those of kassay.stats.answer_gates and kassay.stats.loss_gates; several gates make a certificate
(kassay.stats.certificate). No alpha is split here: the plan states the level of each gate.
"""

from dataclasses import dataclass
from typing import Literal

from kassay.stats import InvalidData, Sidedness, require_finite

GROSS_LOSS = "gross loss rate"
NET_CHANGE = "net change"
RELATIVE_NLL = "relative mean nll"
NLL_DIFFERENCE = "mean nll difference"
OF_ANSWERS = (GROSS_LOSS, NET_CHANGE)
OF_LOSSES = (RELATIVE_NLL, NLL_DIFFERENCE)
DECIDES: dict[str, Literal["upper", "lower"]] = {
    GROSS_LOSS: "upper",
    NET_CHANGE: "lower",
    RELATIVE_NLL: "upper",
    NLL_DIFFERENCE: "upper",
}


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """One gate with every number behind its verdict; construction recomputes the verdict from them."""

    gate: str  # its name in the plan
    endpoint: str  # the plan's endpoint
    statistic: str  # one of OF_ANSWERS or OF_LOSSES
    method: str  # how the bounds were computed
    sidedness: Sidedness  # always `one-sided`: each bound at alpha
    decides: Literal["upper", "lower"]  # the bound that is compared with the margin for a pass
    control: str  # arm compared with
    candidate: str  # arm under test
    n: int  # paired items, all that were planned
    items_sha256: str  # digest over the identifiers and digests of those items
    estimate: float  # the statistic on these items, a share; nats for a difference of prediction loss
    lower: float  # one-sided lower bound, in the estimate's unit
    upper: float  # one-sided upper bound
    alpha: float  # level of each bound
    margin: float  # largest upper bound, or least lower bound, that passes
    losses: int | None  # right under the control, wrong under the candidate; None for prediction loss
    gains: int | None  # the reverse, never cancelling losses; None for prediction loss
    power: float | None  # probability of a pass at `true_rate`; None for prediction loss, or where none is stated
    true_rate: float | None  # rate supposed true for the power: of losses, and of gains too for a net change
    native_floor: float | None  # least score of the control; None without a floor
    native_score: float | None  # share that the control answered; None for prediction loss
    draws: int | None  # bootstrap resamples; None for a bound without resampling
    seed: int | None  # seed of PCG64; None for a bound without resampling
    control_outcomes: dict[str, int] | None  # answers of the control by how they ended; None for prediction loss
    candidate_outcomes: dict[str, int] | None  # those of the candidate
    remark: str  # what a reader must know beside the verdict: that the arms were cut off unequally; empty for nothing
    unchanged: bool  # no item's value differs between the arms, as when the intervention never ran
    verdict: str  # `pass`, `fails`, `unestablished` or `ineligible`
    reason: str  # what decided, in words

    def __post_init__(self) -> None:
        outcomes = (self.control_outcomes, self.candidate_outcomes)
        counted, drawn = (self.losses, self.gains, self.native_score, *outcomes), (self.draws, self.seed)
        present, absent = (counted, drawn) if self.statistic in OF_ANSWERS else (drawn, counted)
        if None in present or any(value is not None for value in absent):
            raise InvalidData(f"gate `{self.gate}` holds fields of another statistic: this is a bug")
        if (self.power is None) != (self.true_rate is None) or (drawn == present and self.power is not None):
            raise InvalidData(f"gate `{self.gate}` states a power without its rate: this is a bug")
        if DECIDES.get(self.statistic) != self.decides:
            raise InvalidData(f"gate `{self.gate}` of `{self.statistic}` is decided by `{self.decides}`: this is a bug")
        decided = gate_verdict(
            self.decides, self.lower, self.upper, self.margin, floor=self.native_floor, score=self.native_score
        )
        if (self.verdict, self.reason) != decided:
            raise InvalidData(f"gate `{self.gate}` says `{self.verdict}`, its numbers `{decided[0]}`: this is a bug")


def cut_off(control: dict[str, int], candidate: dict[str, int]) -> str:
    """The remark of a gate whose arms were cut off unequally often: a length limit may be what it measures."""
    was, now = control["truncated"], candidate["truncated"]
    return "" if was == now else f"cut off are {was} answers of the control and {now} of the candidate"


def gate_verdict(
    decides: Literal["upper", "lower"],
    lower: float,
    upper: float,
    margin: float,
    *,
    floor: float | None,
    score: float | None,
) -> tuple[str, str]:
    """The verdict of one gate and what decided it; raises InvalidData for a number that is not finite."""
    for name, value in (("lower", lower), ("upper", upper), ("margin", margin)):
        require_finite(value, name)
    if not lower <= upper:
        raise InvalidData(f"the lower bound {lower} is above the upper bound {upper}: this is a bug")
    if floor is not None and (score is None or not score >= floor):
        return "ineligible", f"the control scores {score}, below its floor of {floor}"
    if decides == "lower":
        if lower >= margin:
            return "pass", f"the lower bound {lower} is at least the margin {margin}"
        if upper < margin:
            return "fails", f"the upper bound {upper} is below the margin {margin}"
    elif upper <= margin:
        return "pass", f"the upper bound {upper} is at most the margin {margin}"
    elif lower > margin:
        return "fails", f"the lower bound {lower} is above the margin {margin}"
    return "unestablished", f"the margin {margin} lies between the bounds {lower} and {upper}"
