"""Do two speed-ups multiply? Four arms, each alone and both together, within the same blocks.

    S_x = rate(x) / rate(plain)         rho = S_combined / (S_quantized S_speculative)
                                            = rate(combined) rate(plain) / (rate(quantized) rate(speculative))

rho below 1 is sub-multiplicative, above 1 super-multiplicative. It is taken within each block, where the host's drift
is common to all four, and its median over blocks is the effect: never a ratio of medians. The interval is the exact
bootstrap distribution of that median (kassay.stats.bootstrap), so it needs no seed. A class is stated when the whole
interval lies on one side of 1; when it does not, the data do not tell, which is not the same as `multiplicative`. With
three blocks the interval is their range. Descriptive: no family, no gain, and nothing about another batch or context.

Eighteen public cells that were measured twice differ by factors of 0.56 to 3.18 in rho between the runs: blocks of
one run tell of that run only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kassay.stats import InvalidData, require_finite
from kassay.stats.bootstrap import MedianInterval, median_interval

ROLES = ("plain", "quantized", "speculative", "combined")

Class = Literal["sub-multiplicative", "super-multiplicative", "undecided", "multiplicative"]


@dataclass(frozen=True, kw_only=True)
class Composition:
    """What the blocks say of one pair of accelerations."""

    method: str  # always `median of within-block rho`
    blocks: int  # blocks, each with all four arms
    speedups: dict[str, tuple[float, ...]]  # role -> rate over the plain arm's, in each block
    rhos: tuple[float, ...]  # in each block
    median: float  # of the rhos
    interval: MedianInterval  # two-sided, descriptive
    below: int  # blocks whose rho is below 1
    above: int  # blocks whose rho is above 1; the rest are exactly 1
    point_class: Class  # by the median alone
    interval_class: Class  # by the whole interval: what may be said


def rho(*, plain: float, quantized: float, speculative: float, combined: float) -> float:
    """rho of four rates in one unit; raises InvalidData unless all are finite and above 0."""
    for name, rate in zip(ROLES, (plain, quantized, speculative, combined), strict=True):
        require_finite(rate, f"rate of the {name} arm")
        if not rate > 0:
            raise InvalidData(f"the rate of the {name} arm is {rate}, allowed is above 0")
    return (combined / plain) / ((quantized / plain) * (speculative / plain))


def composition(rates: Mapping[str, Sequence[float]], *, alpha: float) -> Composition:
    """The answer from the rates of each role in each block, in the same order of blocks.

    Raises InvalidData unless the roles are exactly ROLES with the same number of blocks, two or more: a missing cell
    breaks the pairing, and means of unequal counts are no remedy.
    """
    if set(rates) != set(ROLES):
        raise InvalidData(f"the arms have the roles {sorted(rates)}, allowed are {list(ROLES)}, each once")
    counts = {role: len(rates[role]) for role in ROLES}
    if len(set(counts.values())) != 1:
        raise InvalidData(f"the arms have {counts} blocks, allowed is the same number of each")
    blocks = [dict(zip(ROLES, cells, strict=True)) for cells in zip(*(rates[role] for role in ROLES), strict=True)]
    rhos = tuple(rho(**block) for block in blocks)
    interval = median_interval(rhos, alpha=alpha)
    return Composition(
        method="median of within-block rho",
        blocks=len(blocks),
        speedups={role: tuple(block[role] / block["plain"] for block in blocks) for role in ROLES[1:]},
        rhos=rhos,
        median=interval.estimate,
        interval=interval,
        below=sum(each < 1 for each in rhos),
        above=sum(each > 1 for each in rhos),
        point_class=class_of(interval.estimate, interval.estimate),
        interval_class=class_of(interval.lower, interval.upper),
    )


def class_of(lower: float, upper: float) -> Class:
    """The class that a whole interval lies in; NaN lies in none."""
    if upper < 1:
        return "sub-multiplicative"
    if lower > 1:
        return "super-multiplicative"
    return "multiplicative" if lower == upper == 1 else "undecided"
