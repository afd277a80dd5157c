"""The four answers, at the edges of rounding intervals, over boxes, and for every kind of printed value."""

from fractions import Fraction
from typing import Any

import pytest

from kassay.published import CONSISTENT, CONTRADICTED, EQUAL
from kassay.published.consistency import MOST_ROUNDED, Told, consistency, number, rounding_interval, shown
from kassay.stats import InvalidData


def answer(printed: Any, derivation: Any, exact: dict[str, Any] | None = None, **rounded: Any) -> str:
    """The answer alone."""
    return consistency(printed, derivation, exact=exact or {}, rounded=rounded).answer


def less(a: Fraction, b: Fraction) -> Fraction:
    """a - b."""
    return a - b


def give(value: Any) -> Any:
    """The input itself."""
    return value


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("0.41", "0.405", "0.415"),
        ("-1.17", "-1.175", "-1.165"),
        ("35e3", "34500", "35500"),
        ("7", "6.5", "7.5"),
        ("5.0", "4.95", "5.05"),
        ("+0.033", "0.0325", "0.0335"),
    ],
)
def test_a_decimal_stands_for_what_rounds_to_it(text: str, low: str, high: str) -> None:
    assert rounding_interval(text) == (Fraction(low), Fraction(high))


def test_a_quotient_stands_for_itself() -> None:
    assert rounding_interval("0.025/12") == (Fraction(1, 480), Fraction(1, 480)) and number("2/3") == Fraction(2, 3)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-Infinity", "1,319", "1.0x", "1/0", "a/b", "1/2/3", "NaN"])
def test_a_text_that_is_no_decimal_is_invalid(text: str) -> None:
    with pytest.raises(InvalidData):
        rounding_interval(text)


@pytest.mark.parametrize("printed", ["0.257812", "0.257813"])
def test_both_roundings_of_an_exact_tie_are_equal(printed: str) -> None:
    assert answer(printed, lambda: Fraction("0.2578125")) == EQUAL


@pytest.mark.parametrize("printed", ["0.257811", "0.257814"])
def test_one_place_further_is_contradicted(printed: str) -> None:
    assert answer(printed, lambda: Fraction("0.2578125")) == CONTRADICTED


def test_the_three_answers_of_one_difference() -> None:
    """77.458 - 77.360 = 0.098, and 0.097 to 0.099 by rounding, so 0.0965 to 0.0995 would print."""
    given = {"a": "77.458", "b": "77.360"}
    assert answer("0.098", less, **given) == EQUAL
    for printed in ("0.097", "0.099"):
        found = consistency(printed, less, exact={}, rounded=given)
        assert (found.answer, found.lowest, found.highest) == (CONSISTENT, (Fraction("0.097"),), (Fraction("0.099"),))
    for printed in ("0.096", "0.100", "0.1000", "-0.098"):
        assert answer(printed, less, **given) == CONTRADICTED


def test_ranges_that_touch_in_a_point_are_contradicted() -> None:
    """Inputs 1.5 to 2.5 and the printed 3 (2.5 to 3.5) share the tie alone."""
    assert answer("3", give, value="2") == CONTRADICTED
    assert answer("3.0", lambda value: value + Fraction("0.5"), value="2") == CONSISTENT


def test_without_rounded_inputs_nothing_is_consistent() -> None:
    assert answer("0.099", less, {"a": Fraction("77.458"), "b": Fraction("77.360")}) == CONTRADICTED


def test_a_whole_number_is_exact() -> None:
    assert answer(17, lambda: 17) == EQUAL and answer(17, lambda: Fraction(17)) == EQUAL
    assert answer(17, lambda: Fraction("17.0001")) == CONTRADICTED


def test_an_exact_quotient_within_the_range_is_consistent() -> None:
    assert answer("2/3", give, value="0.67") == CONSISTENT
    assert answer("2/3", give, value="0.7") == CONSISTENT
    assert answer("2/3", give, value="0.68") == CONTRADICTED


def test_claims_and_words() -> None:
    def reaches(value: Fraction) -> bool:
        return value >= Fraction("1.2")

    assert answer(True, reaches, value="1.3") == EQUAL
    assert answer(True, reaches, value="1.2") == EQUAL
    assert answer(False, reaches, value="1.2") == CONSISTENT
    assert answer(True, reaches, value="1.19") == CONTRADICTED
    assert answer("pass", lambda value: "pass" if value < 1 else "fails", value="1.0") == CONSISTENT
    assert answer("fails", lambda: "pass") == CONTRADICTED


def test_a_list_holds_member_by_member() -> None:
    def both(values: tuple[Fraction, ...]) -> tuple[Fraction, Fraction]:
        return min(values), max(values)

    assert answer(["0.8", "1.2"], both, values=["1.2", "0.8"]) == EQUAL
    assert answer(["0.84", "1.2"], both, values=["1.2", "0.8"]) == CONSISTENT
    assert answer(["0.84", "1.3"], both, values=["1.2", "0.8"]) == CONTRADICTED


def test_words_found_beside_a_value_are_kept() -> None:
    found = consistency("1.0", lambda: Told(Fraction(1), "beside"), exact={}, rounded={})
    assert (found.answer, found.words, found.derived) == (EQUAL, "beside", 1)


@pytest.mark.parametrize(
    ("printed", "derived"),
    [(True, 1), (1, True), ("1.0", True), ("pass", Fraction(1)), ("1.0", float("nan")), (["1.0"], Fraction(1))],
)
def test_values_of_another_kind_are_invalid(printed: Any, derived: Any) -> None:
    with pytest.raises(InvalidData):
        answer(printed, lambda: derived)


@pytest.mark.parametrize("derived", [(Fraction(1),), (Fraction(1), Fraction(2), Fraction(3))])
def test_a_list_of_another_length_is_invalid(derived: Any) -> None:
    with pytest.raises(InvalidData):
        answer(["1.0", "2.0"], lambda: derived)


def test_a_box_of_too_many_sides_is_an_error_and_no_guess() -> None:
    with pytest.raises(InvalidData, match="rounded inputs"):
        answer("9.0", lambda values: sum(values), values=["1.0"] * (MOST_ROUNDED + 1))


def test_values_are_shown_plainly() -> None:
    assert shown((Fraction(1, 3), 2.5, True, "word", 7)) == "0.3333333333, 2.5, holds, word, 7"
    assert shown(Fraction(388352)) == "388352" and shown([]) == "none"
