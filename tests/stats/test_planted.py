"""A planted slowdown of 3 % is confirmed and none is not, over 40 seeded repetitions of each."""

import pytest

from benchmarks.planted import SLOWDOWN, TOKENS, UNITS_PER_TOKEN, cell_units, counted


def test_the_counter_counts_the_planted_work() -> None:
    assert cell_units(0.0) == TOKENS * UNITS_PER_TOKEN
    assert cell_units(SLOWDOWN) == round(1.03 * TOKENS * UNITS_PER_TOKEN)


@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_the_planted_slowdown_is_confirmed_and_the_null_is_not(noise: float) -> None:
    made = counted(noise)
    assert made.planted >= 36 and made.null <= 2, made


def test_on_a_host_with_5_percent_of_noise_the_same_study_cannot_tell() -> None:
    """The test above is not true of any noise: the study's size and the host's noise belong together."""
    made = counted(0.05)
    assert made.planted < 36 and made.null <= 2, made
