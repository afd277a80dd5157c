"""Bootstrap bounds against the frozen stream, the exact median against the published tables, and coverage."""

import itertools
import math
import statistics
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from kassay.stats import Floats, InvalidData
from kassay.stats import bootstrap as module
from kassay.stats.bootstrap import (
    centered_test,
    mean_difference_bounds,
    median_distribution,
    median_interval,
    relative_mean_bounds,
    resampled_means,
)

SEED = 20261020
# within-block ratios of the eight-model matrix, as printed
QWEN3: tuple[float, ...] = (
    0.9935141,
    1.0046516,
    1.0002696,
    1.0014335,
    1.0058214,
    1.0016846,
    1.0039351,
    1.0036023,
    1.0068204,
    1.0015314,
)
PHI4: tuple[float, ...] = (
    0.9736099,
    0.9712515,
    0.9746203,
    0.9733828,
    0.9734810,
    0.9757707,
    0.9715308,
    0.9759696,
    0.9730844,
    0.9755253,
)


def canonical_pair() -> tuple[Floats, Floats]:
    """The 64 canonical documents of the derived vectors: control and candidate, nats."""
    i = np.arange(64)
    control = 2 + (29 * i % 64) / 64
    return control, control + ((37 * i % 64) - 31.5) / 3150 + 0.001


def test_the_stream_starts_as_frozen() -> None:
    first = np.random.default_rng(SEED).integers(0, 64, size=(1, 64))[0, :8]
    assert first.tolist() == [54, 55, 7, 8, 29, 55, 46, 23]


@pytest.mark.parametrize(
    ("level", "difference", "relative"),
    [
        (0.95, 0.002200396825396826, 0.0008848117569659752),
        (0.99375, 0.0028402777777777775, 0.0011385896614577301),
        (0.9979166666666667, 0.0031180555555555553, 0.0012516509800268125),
    ],
)
def test_upper_bounds_match_the_derived_vectors(level: float, difference: float, relative: float) -> None:
    control, candidate = canonical_pair()
    draw = {"alpha": 1 - level, "draws": 100_000}
    bounds = mean_difference_bounds(control, candidate, rng=np.random.default_rng(SEED), **draw)  # type: ignore[arg-type]
    ratio = relative_mean_bounds(control, candidate, rng=np.random.default_rng(SEED), **draw)  # type: ignore[arg-type]
    assert abs(bounds.upper - difference) < 1e-14
    assert abs(ratio.upper - relative) < 1e-14
    assert abs(ratio.estimate - 0.0004012539184954367) < 1e-15
    assert (bounds.n, bounds.draws, bounds.bit_generator) == (64, 100_000, "PCG64")


def test_both_ends_and_the_centered_test_match_the_derived_vectors() -> None:
    control, candidate = canonical_pair()
    rng = np.random.default_rng(SEED)
    bounds = mean_difference_bounds(control, candidate, alpha=0.05, draws=100_000, rng=rng)
    assert abs(bounds.lower - -0.00021527777777777778) < 1e-14
    test = centered_test(control, candidate, draws=100_000, rng=np.random.default_rng(SEED))
    assert test.p == 0.17354826451735483
    assert test.extreme_draws / test.draws == 0.17354


@pytest.mark.parametrize("cells", [64, 1000, 10**9])
def test_the_stream_does_not_depend_on_the_chunk(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values_DK = np.stack(canonical_pair(), axis=1)
    reference = resampled_means(values_DK, draws=500, rng=np.random.default_rng(1))
    monkeypatch.setattr(module, "CHUNK_CELLS", cells)
    assert (resampled_means(values_DK, draws=500, rng=np.random.default_rng(1)) == reference).all()


def test_arms_are_resampled_jointly() -> None:
    control = np.linspace(1, 9, 30)
    bounds = relative_mean_bounds(control, 1.02 * control, alpha=0.05, draws=200, rng=np.random.default_rng(3))
    assert math.isclose(bounds.lower, 0.02, rel_tol=1e-12)
    assert math.isclose(bounds.upper, 0.02, rel_tol=1e-12)


def test_constant_values_are_marked_degenerate() -> None:
    ones = np.ones(10)
    rng = np.random.default_rng(4)
    bounds = mean_difference_bounds(ones, ones + 1, alpha=0.05, draws=100, rng=rng)
    assert (bounds.lower, bounds.upper, bounds.degenerate) == (1, 1, True)
    interval = median_interval([1.0] * 10, alpha=0.05)
    assert (interval.lower, interval.upper, interval.degenerate) == (1, 1, True)


def test_bounds_cover_in_simulation() -> None:
    """One-sided 95 % bounds of 64 skewed documents miss between 3 and 8 % of 600 worlds at either end."""
    rng = np.random.Generator(np.random.PCG64(5))
    above = below = 0
    for _ in range(600):
        control = rng.gamma(9.0, 0.25, size=64)
        candidate = control * 1.005 + rng.normal(0, 0.02, size=64)
        bounds = relative_mean_bounds(control, candidate, alpha=0.05, draws=1000, rng=rng)
        above += not bounds.upper >= 0.005
        below += not bounds.lower <= 0.005
    assert 18 <= above <= 48
    assert 18 <= below <= 48


def test_centered_test_keeps_its_size_in_simulation() -> None:
    rng = np.random.Generator(np.random.PCG64(6))
    small = 0
    for _ in range(500):
        control = rng.normal(2, 0.1, size=40)
        p = centered_test(control, control + rng.normal(0, 0.01, size=40), draws=500, rng=rng).p
        small += p <= 0.05
    assert 10 <= small <= 42


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_median_distribution_equals_brute_force(n: int) -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0][:n]
    counted = Counter(statistics.median(sample) for sample in itertools.product(values, repeat=n))
    assert median_distribution(values) == {value: Fraction(k, n**n) for value, k in counted.items()}


def test_median_distribution_handles_ties_as_brute_force_does() -> None:
    values = [3.0, 1.0, 3.0, 2.0]
    counted = Counter(statistics.median(sample) for sample in itertools.product(values, repeat=4))
    assert median_distribution(values) == {value: Fraction(k, 4**4) for value, k in counted.items()}


def test_median_distribution_agrees_with_draws_at_twelve_blocks() -> None:
    values = np.random.default_rng(7).normal(1, 0.01, size=12)
    draws = np.median(np.random.default_rng(8).choice(values, size=(100_000, 12)), axis=1)
    reached = Fraction(0)
    for value, probability in median_distribution(values.tolist()).items():
        reached += probability
        assert abs(float(reached) - np.mean(draws <= value + 1e-12)) < 0.008
    assert reached == 1


@pytest.mark.parametrize(
    ("ratios", "median", "lower", "upper"),
    [
        (QWEN3, "1.00264", "1.00090", "1.00488"),
        (PHI4, "0.97355", "0.97246", "0.97553"),
        ((1.0191417, 1.0193403, 1.0207322), "1.01934", "1.01914", "1.02073"),
        ((1.0221985, 1.0234999, 1.0211044), "1.02220", "1.02110", "1.02350"),
        ((0.9884363, 0.9883347, 0.9872666), "0.98833", "0.98727", "0.98844"),
    ],
)
def test_median_intervals_print_as_published(ratios: tuple[float, ...], median: str, lower: str, upper: str) -> None:
    interval = median_interval(ratios, alpha=0.05)
    assert f"{interval.estimate:.5f}" == median
    assert f"{interval.lower:.5f}" == lower
    assert f"{interval.upper:.5f}" == upper


@pytest.mark.parametrize(
    ("ratios", "value", "reached"),
    [
        (QWEN3, 1.00085155, 0.01966),
        (QWEN3, 1.0009005, 0.02672),
        (QWEN3, 1.00471185, 0.97336),
        (QWEN3, 1.00487825, 0.98041),
        (PHI4, 0.9724307, 0.01964),
        (PHI4, 0.9724568, 0.02669),
    ],
)
def test_median_distribution_function_at_the_published_atoms(
    ratios: tuple[float, ...], value: float, reached: float
) -> None:
    below = sum(p for atom, p in median_distribution(ratios).items() if atom <= value + 5e-8)
    assert round(float(below), 5) == reached


def test_three_blocks_give_the_range() -> None:
    assert median_distribution([1.0, 2.0, 3.0])[1.0] == Fraction(7, 27)


@pytest.mark.parametrize("values", [[1.0], [], [1.0, float("nan")], [1.0, float("inf")]])
def test_no_interval_of_fewer_than_two_or_non_finite_blocks(values: list[float]) -> None:
    with pytest.raises(InvalidData):
        median_interval(values, alpha=0.05)


@pytest.mark.parametrize(
    ("control", "candidate"),
    [
        ([1.0], [1.0]),
        ([1.0, 1.5], [1.0, math.nan]),
        ([1.0, 1.5], [1.0, math.inf]),
        ([1.0, 1.5], [1.0, 2.0, 3.0]),
        ([], []),
    ],
)
def test_broken_documents_are_invalid(control: list[float], candidate: list[float]) -> None:
    pair = np.array(control), np.array(candidate)
    with pytest.raises(InvalidData):
        mean_difference_bounds(*pair, alpha=0.05, draws=10, rng=np.random.default_rng(0))


def test_a_relative_mean_needs_positive_controls() -> None:
    with pytest.raises(InvalidData, match="not positive"):
        relative_mean_bounds(
            np.array([1.0, 0.0]), np.array([1.0, 1.0]), alpha=0.05, draws=9, rng=np.random.default_rng(0)
        )
