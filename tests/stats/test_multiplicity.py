"""Holm over a fixed family, against published values and against its definition."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kassay.stats import InvalidData
from kassay.stats.exact import sign_test
from kassay.stats.multiplicity import holm


def adjusted(planned: dict[str, float | Fraction | None]) -> list[float]:
    """The adjusted p-values, in the plan's order."""
    return [row.adjusted_p for row in holm(planned, alpha=0.05, sidedness="one-sided").comparisons]


def test_two_perfect_contrasts_of_ten_blocks_are_the_published_pair() -> None:
    family = holm({"native": Fraction(1, 1024), "compact": Fraction(1, 1024)}, alpha=0.05, sidedness="one-sided")
    assert [row.adjusted_p_exact for row in family.comparisons] == ["1/512", "1/512"]
    assert all(row.rejected for row in family.comparisons)


def test_the_published_family_of_24_keeps_its_missing_comparisons() -> None:
    planned: dict[str, float | Fraction | None] = {f"model-{index}": None for index in range(24)}
    planned["model-0"] = Fraction(sign_test(9, 10).p_exact)
    planned["model-5"] = Fraction(1)
    family = holm(planned, alpha=0.05, sidedness="one-sided")
    assert family.size == 24
    assert f"{family.comparisons[0].adjusted_p:.6f}" == "0.257812"
    assert [row.adjusted_p for row in family.comparisons[1:]] == [1.0] * 23
    assert not any(row.rejected for row in family.comparisons)


@pytest.mark.parametrize(
    ("blocks", "family", "wins"),
    [
        (3, 1, None),
        (7, 1, 7),
        (7, 3, 7),
        (7, 24, None),
        (10, 1, 9),
        (10, 2, 9),
        (10, 3, 9),
        (10, 24, 10),
        (12, 1, 10),
        (12, 2, 10),
        (12, 3, 11),
        (12, 24, 12),
    ],
)
def test_wins_that_the_smallest_p_of_a_family_needs(blocks: int, family: int, wins: int | None) -> None:
    rest: dict[str, float | Fraction | None] = {str(index): None for index in range(1, family)}
    rejected = [
        count
        for count in range(blocks + 1)
        if holm({"0": sign_test(count, blocks).p, **rest}, alpha=0.05, sidedness="one-sided").comparisons[0].rejected
    ]
    assert (min(rejected) if rejected else None) == wins


def test_step_down_with_a_running_maximum() -> None:
    """Holm 1979: 4 x .01, 3 x .02 = .06 carried over 2 x .025 = .05, then 1 x .04 below it."""
    got = adjusted({"a": 0.025, "b": 0.01, "c": 0.04, "d": 0.02})
    assert all(math.isclose(x, y) for x, y in zip(got, [0.06, 0.04, 0.06, 0.06], strict=True))


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=12))
def test_adjusting_never_lowers_a_p_and_keeps_the_order(p_values: list[float | None]) -> None:
    got = adjusted({str(index): p for index, p in enumerate(p_values)})
    filled = [1.0 if p is None else p for p in p_values]
    assert all(raw <= adj <= 1 for raw, adj in zip(filled, got, strict=True))
    assert [adj for _, adj in sorted(zip(filled, got, strict=True))] == sorted(got)


@pytest.mark.parametrize("p", [math.nan, -0.1, 1.1, True, "0.5", math.inf])
def test_a_p_that_is_none_of_0_to_1_is_invalid(p: float) -> None:
    with pytest.raises(InvalidData):
        adjusted({"a": 0.01, "b": p})


def test_an_empty_family_is_invalid() -> None:
    with pytest.raises(InvalidData, match="empty"):
        adjusted({})
