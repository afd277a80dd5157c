"""Rank correlation against scipy, its exact p by brute force, and what few items can show at all."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from kassay.stats import InvalidData
from kassay.stats.ranks import spearman, spearman_p


@pytest.mark.parametrize(
    ("rho", "n", "p"), [(0.2, 13, "0.51"), (0.2, 14, "0.49"), (0.89, 3, "0.30"), (0.29, 6, "0.58")]
)
def test_p_of_the_published_correlations(rho: float, n: int, p: str) -> None:
    assert f"{spearman_p(rho, n):.2f}" == p == f"{spearman_p(-rho, n):.2f}"


def test_twenty_eight_items_are_the_most_that_leave_a_weak_correlation_weak() -> None:
    assert spearman_p(0.2, 28) > 0.3 > spearman_p(0.2, 29)


@pytest.mark.parametrize("n", [9, 13, 40])
def test_larger_samples_agree_with_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    first, second = rng.integers(0, 6, size=n).astype(float), rng.normal(size=n)
    made, told = spearman(list(first), list(second)), scipy.stats.spearmanr(first, second)
    assert made.rho == pytest.approx(told.statistic, abs=1e-12) and made.p == pytest.approx(told.pvalue, abs=1e-12)
    assert made.method == "spearman, t approximation" and made.p_exact is None


@pytest.mark.parametrize("second", [[1, 2, 3, 5, 4], [3, 1, 2, 2, 5], [5, 5, 1, 1, 1]])
def test_the_exact_p_counts_all_pairings(second: list[float]) -> None:
    first = [1.0, 2.0, 2.0, 4.0, 9.0]
    made = spearman(first, second)
    reference = abs(scipy.stats.spearmanr(first, second).statistic)
    pairings = [abs(scipy.stats.spearmanr(first, order).statistic) for order in itertools.permutations(second)]
    assert made.p == pytest.approx(np.mean([rho >= reference - 1e-12 for rho in pairings]))
    assert made.rho == pytest.approx(scipy.stats.spearmanr(first, second).statistic)
    assert made.method == "spearman, all pairings" and made.sidedness == "two-sided"


def test_three_items_cannot_show_anything() -> None:
    made = spearman([1, 2, 3], [10, 20, 30])
    assert (made.rho, made.p_exact, made.smallest_p) == (1.0, "1/3", 1 / 3)


def test_the_exact_p_keeps_its_size() -> None:
    rng = np.random.default_rng(3)
    ps = [spearman(list(range(6)), list(rng.permutation(6).astype(float))).p for _ in range(2000)]
    share = np.mean(np.array(ps) <= 0.05)
    assert share <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize(
    ("first", "second"),
    [([1, 2], [1, 2]), ([1, 2, 3], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [1, float("nan"), 3])],
)
def test_columns_without_a_correlation_are_invalid(first: list[float], second: list[float]) -> None:
    with pytest.raises(InvalidData):
        spearman(first, second)


@pytest.mark.parametrize(("rho", "n"), [(float("nan"), 9), (1.1, 9), (0.1, 2)])
def test_a_correlation_that_is_none_is_invalid(rho: float, n: int) -> None:
    with pytest.raises(InvalidData):
        spearman_p(rho, n)
