"""How far may a sum that a machine rounded after every addition lie from the exact one?

    |computed - exact| <= gamma_n sum |x_i|,   gamma_n = n u / (1 - n u),   u = 2^-24 for FP32

for any order of the additions, as long as n u < 1. With terms of one sign the bound is relative to the sum, and so to a
mean whose division by n is exact. Source: Higham 2002 (Accuracy and Stability of Numerical Algorithms), section 4.2.
The bound is no estimate: it holds for every input without overflow, and it says nothing of how far a sum is from it.
"""

from dataclasses import dataclass
from fractions import Fraction

from kassay.stats import InvalidData, Sidedness, require_count

FP32_BITS = 24  # the unit roundoff of FP32 is 2^-24


@dataclass(frozen=True, kw_only=True)
class SummationBound:
    """The rounding bound of a sum; it holds always, so it has no alpha."""

    method: str  # always `gamma_n`
    sidedness: Sidedness  # always `two-sided`: the sum may be off in either direction
    n: int  # terms
    bits: int  # the unit roundoff is 2^-bits
    gamma: float  # largest error over the sum of absolute values
    gamma_exact: str  # the same as an exact fraction, such as `1/131071`


def summation_bound(n: int, *, bits: int) -> SummationBound:
    """gamma_n of `n` terms at a unit roundoff of 2^-`bits`; raises InvalidData unless n >= 1 and n u < 1."""
    require_count(n, "n", least=1)
    require_count(bits, "bits", least=1)
    if not n < 2**bits:
        raise InvalidData(f"`n` is {n}, allowed is below 2^{bits}: no bound holds for more terms")
    gamma = Fraction(n, 2**bits - n)
    return SummationBound(
        method="gamma_n", sidedness="two-sided", n=n, bits=bits, gamma=float(gamma), gamma_exact=str(gamma)
    )


def within_summation_bound(computed: float, terms: list[float], *, bits: int) -> bool:
    """Whether a computed sum lies within gamma_n of the exact one of finite `terms`, decided in fractions."""
    exact = [Fraction(term) for term in terms]
    bound = Fraction(summation_bound(len(terms), bits=bits).gamma_exact) * sum(abs(term) for term in exact)
    return abs(Fraction(computed) - sum(exact)) <= bound
