"""rho of four arms: closed values, classes, pairing within blocks, and every corruption."""

import itertools
import statistics
from typing import Any

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.composition import ROLES, class_of, composition, rho


def planted(value: float, blocks: int = 8, noise: float = 0.01, seed: int = 1) -> dict[str, list[float]]:
    """Rates of four arms with that rho, a host that drifts by a factor of 3 over the blocks, and own noise."""
    rng = np.random.Generator(np.random.PCG64(seed))
    drift = np.linspace(1.0, 3.0, blocks)
    levels = {"plain": 100.0, "quantized": 120.0, "speculative": 250.0, "combined": 100 * 1.2 * 2.5 * value}
    return {role: list(level * drift * np.exp(rng.normal(0, noise, blocks))) for role, level in levels.items()}


def test_rho_is_one_where_speed_ups_multiply() -> None:
    assert rho(plain=2.0, quantized=3.0, speculative=8.0, combined=12.0) == 1.0
    assert rho(plain=74.52, quantized=77.07, speculative=339.19, combined=157.13) == pytest.approx(0.4479, abs=5e-5)


@pytest.mark.parametrize(
    ("value", "point", "said"),
    [
        (0.62, "sub-multiplicative", "sub-multiplicative"),
        (1.95, "super-multiplicative", "super-multiplicative"),
        (0.995, "sub-multiplicative", "undecided"),
    ],
)
def test_classes_follow_the_planted_rho_through_a_drifting_host(value: float, point: str, said: str) -> None:
    made = composition(planted(value, noise=0.02), alpha=0.05)
    assert (made.point_class, made.interval_class) == (point, said)
    assert made.interval.lower <= made.median <= made.interval.upper
    assert made.blocks == 8 and made.below + made.above == 8


def test_the_median_is_of_the_blocks_and_not_a_ratio_of_medians() -> None:
    rates = {
        "plain": [1.0, 10.0, 100.0],
        "quantized": [2.0, 10.0, 100.0],
        "speculative": [1.0, 30.0, 100.0],
        "combined": [2.0, 15.0, 400.0],
    }
    made = composition(rates, alpha=0.05)
    assert made.rhos == (1.0, 0.5, 4.0) and made.median == 1.0
    middle = {role: statistics.median(values) for role, values in rates.items()}
    assert rho(**middle) == 0.5
    assert (made.below, made.above, made.interval_class) == (1, 1, "undecided")
    assert (made.interval.lower, made.interval.upper) == (0.5, 4.0), "of three blocks the interval is the range"


def test_the_interval_is_the_enumeration_of_every_resample() -> None:
    made = composition(planted(0.97, blocks=5, noise=0.05), alpha=0.1)
    medians = sorted(statistics.median(each) for each in itertools.product(made.rhos, repeat=5))
    reached = [medians[int(np.ceil(level * len(medians))) - 1] for level in (0.05, 0.95)]
    assert [made.interval.lower, made.interval.upper] == reached


def test_intervals_hold_the_planted_rho_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(60):
        interval = composition(planted(0.8, blocks=10, noise=0.03, seed=seed), alpha=0.05).interval
        held += interval.lower <= 0.8 <= interval.upper
    assert 50 <= held <= 60


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        (0.5, 0.999, "sub-multiplicative"),
        (0.5, 1.0, "undecided"),
        (1.0, 1.5, "undecided"),
        (1.001, 1.5, "super-multiplicative"),
        (1.0, 1.0, "multiplicative"),
        (float("nan"), float("nan"), "undecided"),
        (float("nan"), 0.9, "sub-multiplicative"),
    ],
)
def test_a_class_needs_the_whole_interval(lower: float, upper: float, name: str) -> None:
    assert class_of(lower, upper) == name


def corrupted() -> list[dict[str, Any]]:
    """Every way in which rates must not give a rho."""
    good = planted(0.8)
    broken: list[dict[str, Any]] = [{role: good[role] for role in ROLES if role != left} for left in ROLES]
    broken += [good | {role: good[role][1:]} for role in ROLES]
    broken += [good | {role: [bad, *good[role][1:]]} for role in ROLES for bad in (0.0, -1.0, float("nan"))]
    broken += [good | {"plain": [float("inf"), *good["plain"][1:]]}, good | {"other": good["plain"]}]
    return [*broken, {role: values[:1] for role, values in good.items()}, {role: [] for role in ROLES}]


@pytest.mark.parametrize("rates", corrupted())
def test_corrupted_rates_are_invalid(rates: dict[str, list[float]]) -> None:
    with pytest.raises(InvalidData):
        composition(rates, alpha=0.05)


def test_swapped_arms_give_another_answer() -> None:
    """Plain and combined stand on one side of rho and may be swapped; an accelerated arm and either may not."""
    rates = planted(0.62)
    right = composition(rates, alpha=0.05).median
    for one, other in (("plain", "quantized"), ("combined", "speculative")):
        swapped = rates | {one: rates[other], other: rates[one]}
        assert composition(swapped, alpha=0.05).median != pytest.approx(right, rel=0.1)
