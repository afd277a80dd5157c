"""How far could a mean over documents, or a median over blocks, move if others had been drawn?

Documents are resampled with replacement and *jointly*: both arms keep their pairing in every draw.
    mean difference   mean(candidate) - mean(control)
    relative mean     mean(candidate) / mean(control) - 1
    bounds            the alpha and 1 - alpha quantiles of the draws, linear between order statistics
    centered test     p = (1 + draws with |mean*(d - mean d)| >= |mean d|) / (1 + draws)
    median of blocks  the quantiles of the exact bootstrap distribution, without draws and without a seed
Sources: Efron and Tibshirani 1993, chapters 13 and 16; the median's distribution follows from counting the
n^n samples.

Stream: `rng.integers(0, n, size=(rows, n))`, row after row; it does not depend on how many rows a chunk
holds, so a seed and a bit generator name reproduce a bound bit for bit. Percentile bounds of few documents
cover less than they say, the more so the smaller alpha and the more skewed the changes: simulated, the upper end
at 95 % holds 94 % with 64 symmetric changes and 91 % with exponential ones, 93 % and 87 % with 16
(docs/findings/2026-11-29-bounds.md). Values are in the caller's unit; a relative mean has none.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kassay.stats import Floats, InvalidData, Sidedness, require_count, require_finite, require_level

CHUNK_CELLS = 1 << 18  # documents x draws gathered at once: 2 MiB of indices, as fast as one shot and flat in memory


@dataclass(frozen=True, kw_only=True)
class BootstrapBounds:
    """Percentile bounds of a paired statistic over documents."""

    method: str  # always `paired document bootstrap, percentile, linear quantiles`
    statistic: str  # `mean difference` or `relative mean`
    sidedness: Sidedness  # always `one-sided`: each end alone is missed with probability alpha, approximately
    n: int  # documents
    alpha: float  # level of each end
    draws: int  # resamples
    bit_generator: str  # name of numpy's bit generator that was drawn from
    estimate: float  # the statistic on all documents
    lower: float  # alpha quantile of the draws
    upper: float  # 1 - alpha quantile of the draws
    degenerate: bool  # every draw gave the same value: the data hold no spread to resample


@dataclass(frozen=True, kw_only=True)
class CenteredTest:
    """Two-sided bootstrap test that a mean difference is zero."""

    method: str  # always `centered paired bootstrap`
    sidedness: Sidedness  # always `two-sided`
    n: int  # documents
    draws: int  # resamples
    bit_generator: str  # name of numpy's bit generator that was drawn from
    estimate: float  # mean difference
    extreme_draws: int  # draws at least as far from zero as the estimate
    p: float  # (1 + extreme_draws) / (1 + draws); the plain share is extreme_draws / draws


@dataclass(frozen=True, kw_only=True)
class MedianInterval:
    """Interval of a median from its exact bootstrap distribution; descriptive, not adjusted for anything."""

    method: str  # always `exact bootstrap distribution of the median`
    sidedness: Sidedness  # always `two-sided`
    n: int  # blocks
    alpha: float  # probability outside the interval, half on each side
    estimate: float  # median of the blocks
    lower: float  # smallest value whose distribution function reaches alpha / 2
    upper: float  # smallest value whose distribution function reaches 1 - alpha / 2
    degenerate: bool  # all blocks are equal


def resampled_means(values_DK: Floats, *, draws: int, rng: np.random.Generator) -> Floats:
    """Means of `draws` joint resamples, shape (draws, K), of float64 values of shape (documents, K).

    Raises InvalidData for fewer than two documents (one has no interval) and for a value that is not finite.
    """
    require_count(draws, "draws", least=1)
    if values_DK.ndim != 2 or values_DK.shape[0] < 2:
        raise InvalidData(f"the values have shape {values_DK.shape}, allowed is (documents, columns), documents >= 2")
    if values_DK.dtype != np.float64 or not np.isfinite(values_DK).all():
        raise InvalidData(f"the values are {values_DK.dtype} or hold a NaN or an infinity, allowed: finite float64")
    documents, columns = values_DK.shape
    means = np.empty((draws, columns))
    rows = max(1, CHUNK_CELLS // documents)
    for start in range(0, draws, rows):
        stop = min(start + rows, draws)
        chosen = rng.integers(0, documents, size=(stop - start, documents))
        for column in range(columns):
            means[start:stop, column] = np.take(values_DK[:, column], chosen).mean(axis=1)
    return means


def mean_difference_bounds(
    control: Floats, candidate: Floats, *, alpha: float, draws: int, rng: np.random.Generator
) -> BootstrapBounds:
    """Bounds of mean(candidate) - mean(control), arrays of shape (documents,) paired by position."""
    difference = _columns(control, candidate)[:, 1:] - _columns(control, candidate)[:, :1]
    sample = resampled_means(difference, draws=draws, rng=rng)[:, 0]
    return _bounds("mean difference", float(difference.mean()), sample, len(control), alpha, rng)


def relative_mean_bounds(
    control: Floats, candidate: Floats, *, alpha: float, draws: int, rng: np.random.Generator
) -> BootstrapBounds:
    """Bounds of mean(candidate) / mean(control) - 1, arrays of shape (documents,) paired by position.

    Raises InvalidData unless every control value is positive: the ratio of a resample could otherwise
    change its sign.
    """
    pair = _columns(control, candidate)
    if not (control > 0).all():
        raise InvalidData("the control holds a value that is not positive, allowed for a relative mean: above 0")
    means = resampled_means(pair, draws=draws, rng=rng)
    estimate = float(candidate.mean() / control.mean() - 1)
    return _bounds("relative mean", estimate, means[:, 1] / means[:, 0] - 1, len(control), alpha, rng)


def _columns(control: Floats, candidate: Floats) -> Floats:
    """The two arms as columns, shape (documents, 2)."""
    if control.ndim != 1 or control.shape != candidate.shape:
        raise InvalidData(f"the arms have shapes {control.shape} and {candidate.shape}, allowed: one equal axis")
    return np.stack([control, candidate], axis=1)


def _bounds(
    statistic: str, estimate: float, sample: Floats, n: int, alpha: float, rng: np.random.Generator
) -> BootstrapBounds:
    """The record of a resampled statistic."""
    require_level(alpha, "alpha")
    lower, upper = np.quantile(sample, [alpha, 1 - alpha], method="linear")
    return BootstrapBounds(
        method="paired document bootstrap, percentile, linear quantiles",
        statistic=statistic,
        sidedness="one-sided",
        n=n,
        alpha=alpha,
        draws=len(sample),
        bit_generator=type(rng.bit_generator).__name__,
        estimate=estimate,
        lower=float(lower),
        upper=float(upper),
        degenerate=bool(sample.min() == sample.max()),
    )


def centered_test(control: Floats, candidate: Floats, *, draws: int, rng: np.random.Generator) -> CenteredTest:
    """Test that the mean of candidate - control is zero; arrays of shape (documents,) paired by position."""
    pair = _columns(control, candidate)
    difference = pair[:, 1:] - pair[:, :1]
    estimate = float(difference.mean())
    sample = resampled_means(difference - estimate, draws=draws, rng=rng)[:, 0]
    extreme = int(np.count_nonzero(np.abs(sample) >= abs(estimate)))
    return CenteredTest(
        method="centered paired bootstrap",
        sidedness="two-sided",
        n=len(control),
        draws=draws,
        bit_generator=type(rng.bit_generator).__name__,
        estimate=estimate,
        extreme_draws=extreme,
        p=(1 + extreme) / (1 + draws),
    )


def median_distribution(values: Sequence[float]) -> dict[float, Fraction]:
    """Exact bootstrap distribution of the median: each attainable value, ascending, with its probability.

    With n values sorted, k = n // 2 and an even n, the k-th and (k+1)-th of a resample are the i-th < j-th
    value in C(n, k) (i^k - (i-1)^k) ((n-j+1)^k - (n-j)^k) of n^n resamples, and both the i-th in the
    multinomial sum over the numbers drawn below and above it; an odd n has the second sum alone. Raises
    InvalidData for n < 2 or a non-finite value.
    """
    for value in values:
        require_finite(value, "a block's value")
    n, ranked = len(values), sorted(values)
    require_count(n, "the number of blocks", least=2)
    k = n // 2
    below_most = k - 1 if n % 2 == 0 else k  # of the draws, at most so many lie below (and as many above) the median
    weights: dict[float, int] = {}
    for i in range(1, n + 1):
        both = sum(
            math.comb(n, low) * (i - 1) ** low * math.comb(n - low, high) * (n - i) ** high
            for low in range(below_most + 1)
            for high in range(below_most + 1)
        )
        weights[ranked[i - 1]] = weights.get(ranked[i - 1], 0) + both
        for j in range(i + 1, n + 1) if n % 2 == 0 else ():
            middle = statistics.median((ranked[i - 1], ranked[j - 1]))
            ways = (i**k - (i - 1) ** k) * ((n - j + 1) ** k - (n - j) ** k)
            weights[middle] = weights.get(middle, 0) + math.comb(n, k) * ways
    return {value: Fraction(weight, n**n) for value, weight in sorted(weights.items())}


def median_interval(values: Sequence[float], *, alpha: float) -> MedianInterval:
    """Two-sided interval of the median of `values`, one per block; raises InvalidData for fewer than two."""
    require_level(alpha, "alpha")
    distribution = median_distribution(values)
    return MedianInterval(
        method="exact bootstrap distribution of the median",
        sidedness="two-sided",
        n=len(values),
        alpha=alpha,
        estimate=statistics.median(values),
        lower=_quantile(distribution, Fraction(alpha) / 2),
        upper=_quantile(distribution, 1 - Fraction(alpha) / 2),
        degenerate=len(distribution) == 1,
    )


def _quantile(distribution: dict[float, Fraction], level: Fraction) -> float:
    """The smallest value whose distribution function is at least `level`."""
    reached = Fraction(0)
    for value, probability in distribution.items():
        reached += probability
        if reached >= level:
            return value
    raise InvalidData(f"the distribution of a median sums to {reached}, allowed is 1: this is a bug")
