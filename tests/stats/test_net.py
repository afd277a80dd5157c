"""Power of the net gate and counts from a printed bound, against all tables solved one by one, and simulation."""

from itertools import pairwise
from math import comb

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.net import fewest_gains, net_gate_power, recover_counts, tango_score
from kassay.stats.paired import tango_bounds


def lower(gains: int, losses: int, n: int, alpha: float) -> float:
    """The lower bound, solved."""
    return tango_bounds(gains=gains, losses=losses, n=n, alpha=alpha, sidedness="one-sided").lower


def score(gains: int, losses: int, n: int, difference: float) -> float:
    """The score of one table."""
    return float(tango_score(np.array([gains]), np.array([losses]), n, difference)[0])


def test_the_score_of_the_article() -> None:
    """Tango 1998, section 6.1: one loss among 44 pairs, Z(-0.1) = 1.709."""
    assert f"{score(0, 1, 44, -0.1):.3f}" == "1.709"


def test_the_score_at_no_difference_is_mcnemars() -> None:
    assert score(17, 20, 1319, 0.0) == pytest.approx(-3 / 37**0.5, rel=1e-12)
    assert score(0, 0, 10, 0.0) == 0.0


def test_the_score_is_z_at_the_solved_bound() -> None:
    for gains, losses, n in ((3, 7, 1319), (19, 17, 1319), (12, 2, 50), (0, 0, 30), (5, 0, 40)):
        made = tango_bounds(gains=gains, losses=losses, n=n, alpha=0.05, sidedness="one-sided")
        assert score(gains, losses, n, made.lower) == pytest.approx(made.z, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "margin", "alpha"), [(23, 0.1, 0.05), (40, 0.05, 0.2), (17, 0.02, 0.05), (30, 0.4, 0.01)]
)
def test_the_fewest_gains_are_those_of_bounds_solved_one_by_one(n: int, margin: float, alpha: float) -> None:
    fewest = fewest_gains(n, difference=-margin, alpha=alpha, strictly=False)
    for losses in range(n + 1):
        passing = [gains for gains in range(n - losses + 1) if lower(gains, losses, n, alpha) >= -margin]
        assert passing == list(range(int(fewest[losses]), n - losses + 1))


@pytest.mark.parametrize(("gain_rate", "loss_rate"), [(0.0, 0.0), (0.05, 0.05), (0.0, 0.1), (0.3, 0.02), (0.02, 0.0)])
def test_power_is_the_sum_over_all_tables(gain_rate: float, loss_rate: float) -> None:
    n, margin, alpha = 25, 0.1, 0.1
    chance = 0.0
    for losses in range(n + 1):
        for gains in range(n - losses + 1):
            if lower(gains, losses, n, alpha) >= -margin:
                ways = comb(n, losses) * comb(n - losses, gains)
                same = (1 - gain_rate - loss_rate) ** (n - losses - gains)
                chance += ways * loss_rate**losses * gain_rate**gains * same
    made = net_gate_power(n, margin=margin, alpha=alpha, gain_rate=gain_rate, loss_rate=loss_rate)
    assert made.power == pytest.approx(chance, abs=1e-12)


@pytest.mark.parametrize(("rate", "power"), [(0.005, "0.71"), (0.0106, "0.41"), (0.015, "0.30")])
def test_power_of_the_worker_gate_without_a_change(rate: float, power: str) -> None:
    made = net_gate_power(1319, margin=0.01, alpha=0.00625, gain_rate=rate, loss_rate=rate)
    assert f"{made.power:.2f}" == power and made.sidedness == "one-sided"


@pytest.mark.parametrize(
    ("alpha", "least", "most"), [(0.00625, 0.0026, 0.0062), (0.025 / 12, 0.0001, 0.0021), (0.05, 0.040, 0.0502)]
)
def test_size_of_the_gate_at_its_margin(alpha: float, least: float, most: float) -> None:
    """At a true difference of -1 point: below alpha where gains are rare, never far above."""
    for gain_rate in (0.001, 0.005, 0.01, 0.05, 0.1):
        size = net_gate_power(1319, margin=0.01, alpha=alpha, gain_rate=gain_rate, loss_rate=gain_rate + 0.01).power
        assert least <= size <= most * 1.01


def test_power_agrees_with_simulation() -> None:
    n, margin, alpha, draws = 200, 0.05, 0.05, 4000
    rng = np.random.default_rng(7)
    tables = rng.multinomial(n, [0.04, 0.06, 0.9], size=draws)
    passed = np.mean([lower(int(gains), int(losses), n, alpha) >= -margin for gains, losses, _ in tables])
    power = net_gate_power(n, margin=margin, alpha=alpha, gain_rate=0.04, loss_rate=0.06).power
    assert abs(passed - power) < 4 * (power * (1 - power) / draws) ** 0.5


def test_power_rises_with_the_gains() -> None:
    made = [
        net_gate_power(1319, margin=0.01, alpha=0.05, gain_rate=g, loss_rate=0.01).power for g in (0, 0.005, 0.01, 0.02)
    ]
    assert all(before < after for before, after in pairwise(made))


def test_the_two_published_bounds_are_recovered() -> None:
    first = recover_counts(1319, alpha=0.00625, low=-0.0111315, high=-0.0111305)
    second = recover_counts(1319, alpha=0.00625, low=-0.0106305, high=-0.0106295)
    assert first.tables == ((3, 7),)
    assert second.tables == ((19, 17), (218, 182), (658, 584))


def test_recovered_tables_are_all_that_give_the_bound() -> None:
    n, alpha, low, high = 60, 0.05, -0.09, -0.08
    every = {(g, c) for c in range(n + 1) for g in range(n - c + 1) if low <= lower(g, c, n, alpha) <= high}
    found = recover_counts(n, alpha=alpha, low=low, high=high).tables
    assert set(found) == every and len(found) == len(every) > 0
    assert [sum(table) for table in found] == sorted(sum(table) for table in found)


def test_a_bound_that_no_counts_give_recovers_none() -> None:
    assert recover_counts(1319, alpha=0.00625, low=-0.0000001, high=-0.00000005).tables == ()


@pytest.mark.parametrize(
    ("gain_rate", "loss_rate"), [(float("nan"), 0.1), (0.1, float("nan")), (-0.1, 0.1), (0.6, 0.4), (1.0, 0.0)]
)
def test_rates_that_are_no_rates_are_invalid(gain_rate: float, loss_rate: float) -> None:
    with pytest.raises(InvalidData):
        net_gate_power(100, margin=0.01, alpha=0.05, gain_rate=gain_rate, loss_rate=loss_rate)


def test_levels_and_intervals_that_are_none_are_invalid() -> None:
    with pytest.raises(InvalidData):
        net_gate_power(100, margin=0.0, alpha=0.05, gain_rate=0.1, loss_rate=0.1)
    with pytest.raises(InvalidData):
        recover_counts(100, alpha=float("nan"), low=-0.1, high=-0.1)
    with pytest.raises(InvalidData):
        recover_counts(100, alpha=0.05, low=-0.1, high=-0.2)
    with pytest.raises(InvalidData):
        tango_score(np.array([1]), np.array([1]), 10, 1.0)
