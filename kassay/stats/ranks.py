"""Do two quantities rise together, and could so few items show it at all?

    rho = correlation of the midranks;   exact p = share of the n! pairings with |rho| at least as large
    t approximation: t = rho sqrt((n - 2) / (1 - rho^2)) on n - 2 degrees of freedom, two-sided

Source: Spearman 1904 (Am J Psychol 15:72). The smallest p of n items without ties is 2 / n!: three items cannot go
below 1/3, whatever they show, so it stands beside every p. Up to LARGEST_EXACT items all pairings are counted, which
needs no distribution and holds with ties; beyond, the approximation is used and named. A large p is no evidence of
independence.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.special import stdtr

from kassay.stats import InvalidData, Sidedness, require_count, require_finite

LARGEST_EXACT = 8  # 40,320 pairings: milliseconds


@dataclass(frozen=True, kw_only=True)
class SpearmanTest:
    """Two-sided test that two rankings of the same items are unrelated."""

    method: str  # `spearman, all pairings` or `spearman, t approximation`
    sidedness: Sidedness  # always `two-sided`
    n: int  # items
    rho: float  # rank correlation, -1 to 1
    p: float  # two-sided
    p_exact: str | None  # the same as an exact fraction; None for the approximation
    smallest_p: float  # that n items without ties can reach: 2 / n!


def spearman(first: Sequence[float], second: Sequence[float]) -> SpearmanTest:
    """Rank correlation of two columns, paired by position, with its p.

    Raises InvalidData for fewer than three items, unequal lengths, a value that is not finite, or a constant column,
    which has no correlation.
    """
    n = len(first)
    require_count(n, "the number of items", least=3)
    if len(second) != n:
        raise InvalidData(f"the columns hold {n} and {len(second)} items, allowed are as many")
    ranks = [_doubled_midranks(column) for column in (first, second)]
    centred = [n * rank - rank.sum() for rank in ranks]  # whole numbers: ties of rho are exact
    scale = [int(column @ column) for column in centred]
    if 0 in scale:
        raise InvalidData("all values of a column are equal, allowed are two or more different ones")
    product = int(centred[0] @ centred[1])
    rho = max(-1.0, min(1.0, product / math.sqrt(scale[0] * scale[1])))
    exact = _pairings_as_far(centred[0], centred[1], abs(product)) if n <= LARGEST_EXACT else None
    return SpearmanTest(
        method="spearman, t approximation" if exact is None else "spearman, all pairings",
        sidedness="two-sided",
        n=n,
        rho=rho,
        p=spearman_p(rho, n) if exact is None else float(exact),
        p_exact=None if exact is None else str(exact),
        smallest_p=2 / math.factorial(n),
    )


def spearman_p(rho: float, n: int) -> float:
    """Two-sided p of a rank correlation of `n` items in the t approximation; 0 at |rho| = 1.

    Raises InvalidData for fewer than three items and for a correlation outside -1 to 1.
    """
    require_count(n, "n", least=3)
    require_finite(rho, "rho")
    if not abs(rho) <= 1 + 1e-12:
        raise InvalidData(f"`rho` is {rho}, allowed is -1 to 1")
    rest = 1 - min(1.0, rho * rho)
    return 0.0 if rest == 0 else 2 * float(stdtr(n - 2, -abs(rho) * math.sqrt((n - 2) / rest)))


def _doubled_midranks(column: Sequence[float]) -> "np.typing.NDArray[np.int64]":
    """Twice the midrank of each value, so that a tie is a whole number, shape (items,)."""
    for value in column:
        require_finite(value, "a value to be ranked")
    values = np.array(column, dtype=np.float64)
    below = (values[:, np.newaxis] > values).sum(axis=1)
    among = (values[:, np.newaxis] == values).sum(axis=1)
    return np.asarray(2 * below + among + 1, dtype=np.int64)


def _pairings_as_far(
    first: "np.typing.NDArray[np.int64]", second: "np.typing.NDArray[np.int64]", product: int
) -> Fraction:
    """The share of all pairings whose product is at least as far from zero, by enumeration."""
    orders = np.array(list(itertools.permutations(range(len(first)))), dtype=np.int64)
    far = int(np.count_nonzero(np.abs(second[orders] @ first) >= product))
    return Fraction(far, len(orders))
