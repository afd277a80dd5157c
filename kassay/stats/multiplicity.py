"""Which of a fixed family of comparisons survive when all that were planned are counted?

Formula: order the p-values, p(1) <= ... <= p(m); adjusted p(i) = max over j <= i of min(1, (m - j + 1)
p(j)). Source: Holm 1979 (Scand J Statist 6:65). The family is the plan's: a comparison that was planned and
not run enters with p = 1 and keeps its place in m, and a NaN is an error, never a gap. Exact fractions stay
exact. It does not choose the family, and it does no other correction.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from kassay.stats import InvalidData, Sidedness, require_level


@dataclass(frozen=True, kw_only=True)
class HolmComparison:
    """One planned comparison in its family."""

    comparison: str  # its name in the plan
    p: float | None  # raw p-value, 0 to 1; None: planned and not run, counted as 1
    adjusted_p: float  # Holm-adjusted p-value, 0 to 1
    adjusted_p_exact: str  # the same as an exact fraction, such as `1/512`
    rejected: bool  # adjusted p <= alpha, decided on the fraction


@dataclass(frozen=True, kw_only=True)
class HolmFamily:
    """A family of planned comparisons, adjusted together."""

    method: str  # always `holm`
    sidedness: Sidedness  # that of the p-values that went in
    alpha: float  # family-wise level
    size: int  # planned comparisons, those not run included
    comparisons: tuple[HolmComparison, ...]  # in the plan's order


def holm(planned: Mapping[str, Fraction | float | None], *, alpha: float, sidedness: Sidedness) -> HolmFamily:
    """Adjust the p-values of the planned comparisons; raises InvalidData for none and for a NaN."""
    require_level(alpha, "alpha")
    if not planned:
        raise InvalidData("the family of comparisons is empty, allowed is at least one planned comparison")
    exact = {name: _fraction(name, p) for name, p in planned.items()}
    adjusted: dict[str, Fraction] = {}
    running = Fraction(0)
    for rank, name in enumerate(sorted(exact, key=lambda key: exact[key])):
        running = max(running, min(Fraction(1), (len(exact) - rank) * exact[name]))
        adjusted[name] = running
    comparisons = tuple(
        HolmComparison(
            comparison=name,
            p=None if p is None else float(p),
            adjusted_p=float(adjusted[name]),
            adjusted_p_exact=str(adjusted[name]),
            rejected=adjusted[name] <= Fraction(alpha),
        )
        for name, p in planned.items()
    )
    return HolmFamily(method="holm", sidedness=sidedness, alpha=alpha, size=len(planned), comparisons=comparisons)


def _fraction(name: str, p: Fraction | float | None) -> Fraction:
    """The exact value of a p-value, 1 where the comparison was not run."""
    if p is None:
        return Fraction(1)
    if isinstance(p, bool) or not isinstance(p, int | float | Fraction) or math.isnan(p) or not 0 <= p <= 1:
        raise InvalidData(f"the p-value of `{name}` is `{p!r}`, allowed is 0 to 1, or None for a comparison not run")
    return Fraction(p)
