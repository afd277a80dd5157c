"""The FP32 summation bound: its published value, and sums that a machine really rounded."""

from fractions import Fraction

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.summation import FP32_BITS, summation_bound, within_summation_bound


def test_the_bound_of_the_published_rows() -> None:
    made = summation_bound(128, bits=FP32_BITS)
    assert made.gamma_exact == "1/131071" and f"{made.gamma:.2e}" == "7.63e-06"


@pytest.mark.parametrize("n", [1, 2, 128, 4096])
def test_it_is_the_formula(n: int) -> None:
    u = Fraction(1, 2**24)
    assert Fraction(summation_bound(n, bits=24).gamma_exact) == n * u / (1 - n * u)


@pytest.mark.parametrize("n", [2, 128, 4096])
def test_it_holds_for_sums_in_fp32(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        terms = rng.gamma(2.0, size=n).astype(np.float32)
        total = np.float32(0)
        for term in terms:
            total = np.float32(total + term)
        assert within_summation_bound(float(total), [float(term) for term in terms], bits=24)


def test_an_error_beyond_it_is_noticed() -> None:
    terms = [1.0] * 128
    gamma = summation_bound(128, bits=24).gamma
    assert within_summation_bound(128 * (1 + 0.999 * gamma), terms, bits=24)
    assert not within_summation_bound(128 * (1 + 1.001 * gamma), terms, bits=24)


@pytest.mark.parametrize(("n", "bits"), [(0, 24), (2**24, 24), (1.0, 24), (5, 0)])
def test_sums_without_a_bound_are_invalid(n: int, bits: int) -> None:
    with pytest.raises(InvalidData):
        summation_bound(n, bits=bits)
