"""What follows from a saturation curve, from a number format, from FP32 summation and from ranks.

S(B) / Smax = B^g / (Bh^g + B^g);  at g = 1 a batch f times as large gives f (Bh + B) / (Bh + f B) times S
"""

from fractions import Fraction

import numpy as np

from kassay.kv.float8 import E4M3FN
from kassay.stats.hill import hill_curve
from kassay.stats.ranks import spearman_p
from kassay.stats.summation import summation_bound


def ceiling_share_percent(batch: Fraction, half_batch: Fraction) -> Fraction:
    """Per cent of the ceiling that a batch reaches at exponent 1."""
    return 100 * Fraction(batch) / (Fraction(batch) + Fraction(half_batch))


def expanded_share_percent(share: Fraction, multiplier: Fraction) -> Fraction:
    """Per cent of the ceiling that a multiple of the batch at `share` of the ceiling reaches, at exponent 1."""
    batch = share / (1 - share)  # in units of the half batch
    return ceiling_share_percent(multiplier * batch, Fraction(1))


def throughput_gain_percent(share: Fraction, multiplier: Fraction) -> Fraction:
    """Per cent that a multiple of the batch at `share` of the ceiling adds, at exponent 1."""
    return expanded_share_percent(share, multiplier) / share - 100


def token_time_percent(share: Fraction, multiplier: Fraction) -> Fraction:
    """Per cent by which the time per output token of each request grows then."""
    return 100 * (multiplier / (1 + throughput_gain_percent(share, multiplier) / 100) - 1)


def marginal_gain_percent(share: Fraction, gamma: Fraction, batch_percent: Fraction) -> Fraction:
    """Per cent that a small growth of the batch adds, from the local elasticity."""
    return gamma * (1 - share) * batch_percent


def affine_step_is_hill(shared_cost: Fraction, sequence_cost: Fraction, batches: tuple[Fraction, ...]) -> bool:
    """Whether B / (a + b B) is the curve of exponent 1 with ceiling 1 / b and half batch a / b, exactly."""
    half_batch = shared_cost / sequence_cost
    return all(
        batch / (shared_cost + sequence_cost * batch) == batch / (half_batch + batch) / sequence_cost
        for batch in batches
    )


def reaches_share(batch: Fraction, half_batch: Fraction, gamma: Fraction, share: Fraction) -> bool:
    """Whether the curve reaches that share of its ceiling at a batch."""
    value = hill_curve(np.array([float(batch)]), ceiling=1.0, half_batch=float(half_batch), gamma=float(gamma))
    return float(value[0]) >= share


def reads_are_summed(contexts: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Whether G C + G (G - 1) / 2 is the sum of a context that grows by one token a step, at every pair."""
    return all(
        sum(context + step for step in range(number)) == number * context + number * (number - 1) // 2
        for context in contexts
        for number in steps
    )


def largest_e4m3fn() -> int:
    """The largest finite value of E4M3FN, from the codes of kassay.kv.float8."""
    return int(E4M3FN.largest)


def _summation_gamma(n: int, bits: int) -> Fraction:
    """gamma_n of a sum of n terms with so many bits behind the rounding unit's point."""
    return Fraction(summation_bound(n, bits=bits).gamma_exact)


def gamma_is_the_formula(n: int, bits: int) -> bool:
    """Whether that is n u / (1 - n u), exactly."""
    u = Fraction(1, 2**bits)
    return _summation_gamma(n, bits) == n * u / (1 - n * u)


def summation_admits(n: int, bits: int, limit: Fraction, excess: Fraction, least_mean: Fraction) -> bool:
    """Whether an error of limit + excess stays within gamma_n of every mean from `least_mean` on."""
    return limit + excess <= _summation_gamma(n, bits) * least_mean


def rank_correlation_is_weak(rho: Fraction, n: int, level: Fraction) -> bool:
    """Whether a Spearman correlation of n items has a two-sided p above a level, in the t approximation."""
    return spearman_p(float(rho), n) > level


def combined_speedup_classes(values: tuple[Fraction, ...]) -> tuple[str, ...]:
    """Below, at or above 1: whether joint speedups are less than, just or more than the product of the parts."""
    return tuple("sub" if value < 1 else "super" if value > 1 else "exact" for value in values)
