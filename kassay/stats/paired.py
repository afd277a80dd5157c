"""What did the candidate lose and gain on the very items that the control answered?

Gross loss = items right under the control and wrong under the candidate; gains are the reverse and never
cancel losses. The denominator is every paired item: an error, a truncation or an answer that cannot be read
is a wrong answer and stays in. Items are paired by identifier and digest, never by position.

Net difference d = p(gain) - p(loss), bounded by inverting Tango's score statistic
    T(d) = (b - c - n d) / sqrt(n (2 q + d (1 - d))),   b gains, c losses, n all pairs
    q    = (sqrt(B^2 - 8 n C) - B) / (4 n),  B = (2 n - b + c) d - (b + c),  C = -c d (1 - d)
with q the restricted estimate of P(loss) at d; the lower end solves T = z, the upper T = -z. Source: Tango
1998 (Stat Med 17:891), section 3. The bounds are approximate in coverage; gross losses have exact ones in
kassay.stats.exact. Nothing here decides a verdict.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from kassay.stats import Bools, Floats, InvalidData, Sidedness, require_finite, require_level, require_part

OUTCOMES = ("correct", "wrong", "unreadable", "truncated", "error")  # all but the first count as wrong


@dataclass(frozen=True, kw_only=True)
class ArmAnswers:
    """Every answer of one arm on one endpoint, checked on construction (InvalidData)."""

    arm: str  # name of the arm in the plan
    item_ids: tuple[str, ...]  # unique identifiers, in any order
    digests: tuple[str, ...]  # digest of each item's content
    outcomes: tuple[str, ...]  # one of OUTCOMES each; `truncated` is a cut-off answer without a right label

    def __post_init__(self) -> None:
        _check_items(self.arm, self.item_ids, self.digests, self.outcomes)
        for item_id, outcome in zip(self.item_ids, self.outcomes, strict=True):
            if outcome not in OUTCOMES:
                raise InvalidData(
                    f"the outcome of item `{item_id}` in arm `{self.arm}` is `{outcome!r}`, "
                    f"allowed are {', '.join(f'`{word}`' for word in OUTCOMES)}"
                )

    def correct(self, order: Sequence[str]) -> Bools:
        """Whether each item of `order` was answered correctly, shape (items,)."""
        outcome_of = dict(zip(self.item_ids, self.outcomes, strict=True))
        return np.array([outcome_of[item_id] == "correct" for item_id in order], dtype=np.bool_)

    def counts(self) -> dict[str, int]:
        """How many answers ended in each of OUTCOMES; together all items."""
        return {word: self.outcomes.count(word) for word in OUTCOMES}


@dataclass(frozen=True, kw_only=True)
class ArmLosses:
    """The prediction loss of one arm on every document, checked on construction (InvalidData)."""

    arm: str  # name of the arm in the plan
    item_ids: tuple[str, ...]  # unique identifiers of the documents, in any order
    digests: tuple[str, ...]  # digest of each document's tokens
    nll_nats: tuple[float, ...]  # mean negative log-likelihood per target token, nats, finite, at least 0

    def __post_init__(self) -> None:
        _check_items(self.arm, self.item_ids, self.digests, self.nll_nats)
        for item_id, nll_nats in zip(self.item_ids, self.nll_nats, strict=True):
            require_finite(nll_nats, f"nll_nats of document {item_id} in arm {self.arm}")
            if nll_nats < 0:
                raise InvalidData(
                    f"`nll_nats` of document `{item_id}` in arm `{self.arm}` is {nll_nats}, allowed: >= 0"
                )

    def losses(self, order: Sequence[str]) -> Floats:
        """The loss of each document of `order`, nats per target token, shape (documents,)."""
        nll_of = dict(zip(self.item_ids, self.nll_nats, strict=True))
        return np.array([nll_of[item_id] for item_id in order], dtype=np.float64)


def _check_items(arm: str, item_ids: Sequence[str], digests: Sequence[str], values: Sequence[object]) -> None:
    """Raise InvalidData unless the arm has items, one digest and one value each, and no item twice."""
    if not item_ids:
        raise InvalidData(f"arm `{arm}` has no items: no data is not a pass")
    if not len(item_ids) == len(digests) == len(values):
        raise InvalidData(
            f"arm `{arm}` has {len(item_ids)} identifiers, {len(digests)} digests and {len(values)} values, "
            "allowed is one of each per item"
        )
    if len(set(item_ids)) != len(item_ids):
        twice = sorted({item_id for item_id in item_ids if item_ids.count(item_id) > 1})
        raise InvalidData(f"arm `{arm}` holds {_some(twice)} more than once")
    if not all(item_ids) or not all(digests):
        raise InvalidData(f"arm `{arm}` has an item with an empty identifier or digest")


def _some(item_ids: Sequence[str]) -> str:
    """The first few identifiers of a list, for a message."""
    shown = ", ".join(f"`{item_id}`" for item_id in item_ids[:5])
    return shown if len(item_ids) <= 5 else f"{shown} and {len(item_ids) - 5} more"


Arm = TypeVar("Arm", ArmAnswers, ArmLosses)


@dataclass(frozen=True, kw_only=True)
class PairedItems:
    """The items that two arms share, which are all items of both."""

    item_ids: tuple[str, ...]  # sorted, so that no record order changes a resampling stream
    items_sha256: str  # digest over the identifiers and digests of all items


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """The two-by-two table of paired answers."""

    method: str  # always `paired counts`
    n: int  # all pairs
    losses: int  # right under the control, wrong under the candidate
    gains: int  # wrong under the control, right under the candidate
    both_correct: int  # right under both
    both_wrong: int  # wrong under both


@dataclass(frozen=True, kw_only=True)
class TangoBounds:
    """Score bounds of the paired difference p(gain) - p(loss)."""

    method: str  # always `tango score`
    sidedness: Sidedness  # one-sided: each end alone misses with probability alpha; two-sided: both together
    gains: int  # discordant pairs in the candidate's favour
    losses: int  # discordant pairs in the control's favour
    n: int  # all pairs
    alpha: float  # level
    z: float  # normal quantile of that level and sidedness
    estimate: float  # (gains - losses) / n, a share
    lower: float  # lower end, -1 to 1
    upper: float  # upper end, -1 to 1


def require_different(control: str, candidate: str) -> None:
    """Raise InvalidData when an arm would be compared with itself, which always passes."""
    if control == candidate:
        raise InvalidData(f"the control and the candidate are both `{control}`, allowed are two different arms")


def select_arm(arms: Mapping[str, Arm], name: str) -> Arm:
    """The arm of that name; raises InvalidData when it is missing or when its records name another arm."""
    if name not in arms:
        raise InvalidData(f"arm `{name}` is missing, the data hold {_some(sorted(arms)) or 'no arm'}")
    if arms[name].arm != name:
        raise InvalidData(f"the records under arm `{name}` are those of arm `{arms[name].arm}`")
    return arms[name]


def answers_of(
    arms: Mapping[str, ArmAnswers], *, control: str, candidate: str, planned_n: int
) -> tuple[PairedItems, PairedCounts]:
    """The common items of two arms and their two-by-two table; raises InvalidData as `paired_items`."""
    one, other = select_arm(arms, control), select_arm(arms, candidate)
    items = paired_items(one, other, planned_n=planned_n)
    return items, paired_counts(one.correct(items.item_ids), other.correct(items.item_ids))


def losses_of(
    arms: Mapping[str, ArmLosses], *, control: str, candidate: str, planned_n: int
) -> tuple[PairedItems, tuple[Floats, Floats]]:
    """The common documents of two arms and the losses of both in their order; raises InvalidData as `paired_items`."""
    one, other = select_arm(arms, control), select_arm(arms, candidate)
    items = paired_items(one, other, planned_n=planned_n)
    return items, (one.losses(items.item_ids), other.losses(items.item_ids))


def paired_items(control: Arm, candidate: Arm, *, planned_n: int) -> PairedItems:
    """The common items of two arms; raises InvalidData when they differ in more than order or in number."""
    first = dict(zip(control.item_ids, control.digests, strict=True))
    second = dict(zip(candidate.item_ids, candidate.digests, strict=True))
    for here, there, arm in ((first, second, candidate.arm), (second, first, control.arm)):
        missing = sorted(here.keys() - there.keys())
        if missing:
            raise InvalidData(f"arm `{arm}` lacks {_some(missing)}, which its partner holds")
    differing = sorted(item_id for item_id in first if first[item_id] != second[item_id])
    if differing:
        raise InvalidData(f"arms `{control.arm}` and `{candidate.arm}` saw different content under {_some(differing)}")
    if len(first) != planned_n:
        raise InvalidData(f"arms `{control.arm}` and `{candidate.arm}` hold {len(first)} items, allowed: {planned_n}")
    item_ids = tuple(sorted(first))
    lines = "".join(f"{item_id}\t{first[item_id]}\n" for item_id in item_ids)
    return PairedItems(item_ids=item_ids, items_sha256=hashlib.sha256(lines.encode()).hexdigest())


def paired_counts(control: Bools, candidate: Bools) -> PairedCounts:
    """Losses and gains of two bool arrays of equal shape (items,), paired by position.

    Raises InvalidData for another dtype (a float array may hold NaN for a missing answer), shape or no items.
    """
    for name, correct in (("control", control), ("candidate", candidate)):
        if correct.dtype != np.bool_ or correct.ndim != 1 or correct.size == 0:
            raise InvalidData(f"`{name}` has dtype {correct.dtype} and shape {correct.shape}, allowed: bool, one axis")
    if control.shape != candidate.shape:
        raise InvalidData(f"`control` has {control.size} items and `candidate` {candidate.size}, allowed: equal")
    return PairedCounts(
        method="paired counts",
        n=int(control.size),
        losses=int(np.count_nonzero(control & ~candidate)),
        gains=int(np.count_nonzero(~control & candidate)),
        both_correct=int(np.count_nonzero(control & candidate)),
        both_wrong=int(np.count_nonzero(~control & ~candidate)),
    )


def tango_bounds(*, gains: int, losses: int, n: int, alpha: float, sidedness: Sidedness) -> TangoBounds:
    """Score bounds of (gains - losses) / n; raises InvalidData unless 0 <= gains + losses <= n, n >= 1."""
    require_part(gains, n, "gains")
    require_part(losses, n, "losses")
    require_part(gains + losses, n, "gains + losses")
    require_level(alpha, "alpha")
    if sidedness not in ("one-sided", "two-sided"):
        raise InvalidData(f"`sidedness` is `{sidedness!r}`, allowed are `one-sided`, `two-sided`")
    z = -NormalDist().inv_cdf(alpha if sidedness == "one-sided" else alpha / 2)
    return TangoBounds(
        method="tango score",
        sidedness=sidedness,
        gains=gains,
        losses=losses,
        n=n,
        alpha=alpha,
        z=z,
        estimate=(gains - losses) / n,
        lower=-_tango_upper(losses, gains, n, z),  # exchanging the arms mirrors the interval
        upper=_tango_upper(gains, losses, n, z),
    )


def _tango_upper(b: int, c: int, n: int, z: float) -> float:
    """The d above (b - c) / n at which T(d) = -z, for b gains and c losses of n; closed forms at the edges.

    Solved as n d - (b - c) = z sqrt(V(d)), which has no division where the variance V vanishes.
    """
    from scipy.optimize import brentq  # 0.4 s of import that only this bound needs

    if b == n:
        return 1.0
    if c == n:
        return (z * z - n) / (z * z + n)
    if b == c == 0:
        return z * z / (n + z * z)

    def excess(d: float) -> float:
        big_b = (2 * n - b + c) * d - (b + c)
        big_c = -c * d * (1 - d)
        root = math.sqrt(max(0.0, big_b * big_b - 8 * n * big_c))
        q = -2 * big_c / (root + big_b) if big_b > 0 else (root - big_b) / (4 * n)  # the form that keeps digits
        return n * d - (b - c) - z * math.sqrt(max(0.0, n * (2 * q + d * (1 - d))))

    return float(brentq(excess, (b - c) / n, 1.0, xtol=1e-15, rtol=1e-14))
