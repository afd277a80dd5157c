"""Is one arm faster than another, judged within blocks that hold one fresh-process cell of every arm?

Ratio of a block = rate(candidate) / rate(control) inside that block, higher is better; the effect is the
*median of the ratios*, never a ratio of medians. A gain is confirmed when the candidate's quality
certificate passes, the one-sided exact sign test over the blocks (ties are non-wins and stay in n) has a
Holm-adjusted p <= alpha over the planned family, and the median reaches the screen. The screen is a
threshold on a point estimate, not a confidence bound; the interval is descriptive. Orders are the plan's
(kassay.stats.orders). Which blocks count is the answer of rules frozen before (kassay.validity); where fewer do
than the plan needs, the family is invalidated. A guard is descriptive whatever it shows. Nothing is timed here,
and no missing cell is ever filled: unequal counts make the block design invalid.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kassay.stats import InvalidData, require_finite
from kassay.stats.bootstrap import MedianInterval, median_interval
from kassay.stats.exact import SignTest, sign_test
from kassay.stats.multiplicity import HolmComparison, HolmFamily, holm
from kassay.stats.orders import Order, require_design

CERTIFICATES = ("pass", "fails", "unestablished", "ineligible")  # the verdicts of kassay.stats.certificate
INVALIDATED = "invalidated"  # fewer blocks count than the plan needs
VERDICTS_MEASURED = ("gain confirmed", "no confirmed gain", "descriptive", "ineligible", INVALIDATED)
VERDICTS_UNMEASURED = ("not run", "ineligible", INVALIDATED)


@dataclass(frozen=True, kw_only=True)
class BlockCell:
    """The rate of one arm in one block, from one fresh process."""

    block: int  # index into the planned orders, from 0
    position: int  # place of the cell in its block, from 0
    arm: str  # name of the arm
    rate_per_s: float  # work completed per second, above 0


@dataclass(frozen=True, kw_only=True)
class BlockSummary:
    """What the blocks of one contrast say, before any decision."""

    method: str  # always `median of within-block ratios`
    ratios: tuple[float, ...]  # candidate over control in each block, in block order
    median: float  # median of the ratios
    interval: MedianInterval  # two-sided, descriptive
    ties: int  # blocks whose ratio is exactly 1, counted as non-wins
    sign: SignTest  # one-sided exact test that the candidate wins more often than not


@dataclass(frozen=True, kw_only=True)
class PlannedContrast:
    """One planned comparison with what was measured for it; an unqualified candidate cannot gain."""

    contrast: str  # its name in the family
    candidate: str  # arm in the numerator
    control: str  # arm in the denominator
    certificate: str  # the candidate's quality verdict: `pass` qualifies, anything else does not
    ratios: tuple[float, ...] | None  # within-block ratios; None: not measured
    reason: str  # why it was not measured or does not qualify; empty when it is measured and qualifies

    def __post_init__(self) -> None:
        if self.certificate not in CERTIFICATES:
            raise InvalidData(
                f"the certificate of `{self.contrast}` is `{self.certificate!r}`, "
                f"allowed are {', '.join(f'`{word}`' for word in CERTIFICATES)}"
            )
        if (self.ratios is None or self.certificate != "pass") and not self.reason:
            raise InvalidData(f"`{self.contrast}` is not measured or not qualified, and `reason` is empty")


@dataclass(frozen=True, kw_only=True)
class ContrastVerdict:
    """The decision on one planned comparison."""

    contrast: str  # its name in the family
    candidate: str  # arm in the numerator
    control: str  # arm in the denominator
    summary: BlockSummary | None  # None exactly when nothing was measured
    holm_p: float  # adjusted over the planned family; 1 for a contrast not measured or not qualified
    holm_p_exact: str  # the same as an exact fraction
    family_size: int  # planned comparisons
    alpha: float  # family-wise level, one-sided
    screen_ratio: float  # smallest median that counts as a gain
    verdict: str  # `gain confirmed`, `no confirmed gain`, `not run`, `descriptive`, `ineligible` or `invalidated`
    reason: str  # what decided, in words

    def __post_init__(self) -> None:
        if self.verdict not in (VERDICTS_UNMEASURED if self.summary is None else VERDICTS_MEASURED):
            raise InvalidData(f"`{self.contrast}` is `{self.verdict}` with summary {self.summary}: this is a bug")
        median = 0.0 if self.summary is None else self.summary.median
        holds = self.holm_p <= self.alpha and median >= self.screen_ratio
        if self.verdict == "gain confirmed" and not holds:
            raise InvalidData(f"`{self.contrast}` is a gain against its own numbers: this is a bug")

    def figures(self) -> dict[str, Any]:
        """Its numbers by the names that every record of a comparison has; null where nothing was measured."""
        summary = self.summary
        return {
            "ratios": None if summary is None else list(summary.ratios),
            "median": None if summary is None else summary.median,
            "lower": None if summary is None else summary.interval.lower,
            "upper": None if summary is None else summary.interval.upper,
            "wins": None if summary is None else summary.sign.wins,
            "p": None if summary is None else summary.sign.p,
            "holm_p": self.holm_p,
            "family_size": self.family_size,
            "alpha": self.alpha,
            "screen_ratio": self.screen_ratio,
        }


def block_ratios(
    cells: Sequence[BlockCell], *, orders: Sequence[Order], candidate: str, control: str
) -> tuple[float, ...]:
    """The within-block ratios candidate / control, in block order.

    Raises InvalidData unless the cells are the planned ones (`require_design`), with a finite rate above 0 each.
    """
    require_design([(cell.block, cell.position, cell.arm) for cell in cells], orders)
    rates = {}
    for cell in cells:
        require_finite(cell.rate_per_s, f"rate_per_s of arm {cell.arm} in block {cell.block}")
        if not cell.rate_per_s > 0:
            raise InvalidData(
                f"`rate_per_s` of arm `{cell.arm}` in block {cell.block} is {cell.rate_per_s}, allowed: > 0"
            )
        rates[cell.block, cell.arm] = cell.rate_per_s
    for arm in (candidate, control):
        if not orders or arm not in orders[0]:
            raise InvalidData(f"arm `{arm}` is in no planned block")
    return tuple(rates[block, candidate] / rates[block, control] for block in range(len(orders)))


def block_summary(ratios: Sequence[float], *, interval_alpha: float) -> BlockSummary:
    """Median, interval and sign test of within-block ratios, two or more above 0 (else InvalidData)."""
    interval = median_interval(ratios, alpha=interval_alpha)
    if not min(ratios) > 0:
        raise InvalidData(f"a ratio is {min(ratios)}, allowed is above 0")
    return BlockSummary(
        method="median of within-block ratios",
        ratios=tuple(ratios),
        median=statistics.median(ratios),
        interval=interval,
        ties=sum(ratio == 1 for ratio in ratios),
        sign=sign_test(sum(ratio > 1 for ratio in ratios), len(ratios)),
    )


def guard_median(ratios: Sequence[float]) -> float | None:
    """The median of a guard's within-block ratios, None of none.

    It is looked at and never tested: three blocks cannot reject chance, and no gate reads it.
    """
    return statistics.median(ratios) if ratios else None


def contrast_verdicts(
    family: Sequence[PlannedContrast],
    *,
    planned_blocks: int,
    alpha: float,
    interval_alpha: float,
    screen_ratio: float,
    invalid: str = "",
    least_blocks: int | None = None,
) -> tuple[ContrastVerdict, ...]:
    """The verdicts of the whole planned family, in its order.

    `planned_blocks` is the number of ratios of each; where blocks were invalidated by rule, those that count. If these
    are fewer than the plan needs, `invalid` says so, and no comparison has another verdict than that.
    Where comparisons have blocks of their own, `least_blocks` is the fewest that the plan needs of each.
    Holm runs over every planned contrast; one that was not measured or whose candidate does not qualify
    keeps p = 1. Raises InvalidData for a repeated name and for another number of blocks than planned.
    """
    require_finite(screen_ratio, "screen_ratio")
    names = [planned.contrast for planned in family]
    if len(set(names)) != len(names):
        raise InvalidData(f"the family {names} names a contrast twice")
    summaries = [_summary(planned, planned_blocks, least_blocks, interval_alpha) for planned in family]
    p_values = {
        planned.contrast: Fraction(summary.sign.p_exact)
        if summary is not None and planned.certificate == "pass" and not invalid
        else None
        for planned, summary in zip(family, summaries, strict=True)
    }
    adjusted = holm(p_values, alpha=alpha, sidedness="one-sided")
    return tuple(
        _verdict(planned, summary, comparison, adjusted, screen_ratio, invalid)
        for planned, summary, comparison in zip(family, summaries, adjusted.comparisons, strict=True)
    )


def _summary(
    planned: PlannedContrast, planned_blocks: int, least_blocks: int | None, interval_alpha: float
) -> BlockSummary | None:
    """The summary of a measured contrast, None for one not measured."""
    if planned.ratios is None:
        return None
    least = planned_blocks if least_blocks is None else min(least_blocks, planned_blocks)
    if not least <= len(planned.ratios) <= planned_blocks:
        raise InvalidData(
            f"`{planned.contrast}` has {len(planned.ratios)} blocks, allowed are the {planned_blocks} planned"
        )
    return block_summary(planned.ratios, interval_alpha=interval_alpha)


def _verdict(
    planned: PlannedContrast,
    summary: BlockSummary | None,
    comparison: HolmComparison,
    family: HolmFamily,
    screen_ratio: float,
    invalid: str,
) -> ContrastVerdict:
    """The record of one decision."""
    decided = _decision(planned, summary, comparison.rejected, screen_ratio)
    verdict, reason = (INVALIDATED, invalid) if invalid else decided
    return ContrastVerdict(
        contrast=planned.contrast,
        candidate=planned.candidate,
        control=planned.control,
        summary=summary,
        holm_p=comparison.adjusted_p,
        holm_p_exact=comparison.adjusted_p_exact,
        family_size=family.size,
        alpha=family.alpha,
        screen_ratio=screen_ratio,
        verdict=verdict,
        reason=reason,
    )


def _decision(
    planned: PlannedContrast, summary: BlockSummary | None, rejected: bool, screen_ratio: float
) -> tuple[str, str]:
    """The verdict on one contrast and what decided it."""
    if planned.certificate == "ineligible":
        return "ineligible", planned.reason
    if summary is None:
        return "not run", planned.reason
    if planned.certificate != "pass":
        return "descriptive", planned.reason
    missed = []
    if not rejected:
        missed.append("the adjusted sign test does not reject chance")
    if not summary.median >= screen_ratio:
        missed.append(f"the median misses the screen of {screen_ratio}")
    return ("no confirmed gain", "; ".join(missed)) if missed else ("gain confirmed", "all conditions hold")
