"""Exact bounds and tests against published and derived vectors, their definitions and simulation."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc

from kassay.stats import InvalidData
from kassay.stats.exact import (
    binomial_lower,
    binomial_upper,
    gate_power,
    largest_losses,
    mcnemar_test,
    sign_test,
    smallest_n,
)

# (losses, n, percent): the seeds' printed one-sided 95 % bounds, at their three decimals
PRINTED_UPPER_PERCENT = [
    (0, 100, 2.951),
    (1, 100, 4.656),
    (2, 100, 6.162),
    (7, 100, 12.746),
    (0, 1319, 0.227),
    (3, 1319, 0.587),
    (11, 1319, 1.377),
    (17, 1319, 1.927),
    (20, 1319, 2.196),
    (22, 1319, 2.373),
    (42, 1319, 4.099),
    (129, 1319, 11.231),
]

# derived vectors, ten digits
DERIVED_UPPER_PERCENT = [
    (0, 200, 1.486703923),
    (1, 200, 2.349847043),
    (129, 200, 70.12577378),
    (1, 1319, 0.35914612),
    (7, 1319, 0.99450206),
]

# two-sided 95 % intervals: Newcombe 1998 (Stat Med 17:857) and Fagerland, four decimals
TWO_SIDED = [
    (15, 148, 0.0578, 0.1617),
    (0, 20, 0.0, 0.1684),
    (1, 29, 0.0009, 0.1776),
    (13, 16, 0.5435, 0.9595),
]


@pytest.mark.parametrize(("losses", "n", "percent"), PRINTED_UPPER_PERCENT)
def test_upper_bound_prints_as_published(losses: int, n: int, percent: float) -> None:
    assert f"{100 * binomial_upper(losses, n, alpha=0.05).bound:.3f}" == f"{percent:.3f}"


@pytest.mark.parametrize(("losses", "n", "percent"), DERIVED_UPPER_PERCENT)
def test_upper_bound_matches_the_derived_vectors(losses: int, n: int, percent: float) -> None:
    digits = len(str(percent).split(".")[1])
    assert abs(100 * binomial_upper(losses, n, alpha=0.05).bound - percent) < 0.51 * 10**-digits


@pytest.mark.parametrize(("events", "n", "lower", "upper"), TWO_SIDED)
def test_two_sided_intervals_spend_half_of_alpha_on_each_end(events: int, n: int, lower: float, upper: float) -> None:
    assert round(binomial_lower(events, n, alpha=0.025).bound, 4) == lower
    assert round(binomial_upper(events, n, alpha=0.025).bound, 4) == upper


def test_edges_at_tiny_alpha_and_at_all_or_no_events() -> None:
    cases = [  # two-sided alpha halved, from the bug case O24
        (binomial_upper(0, 25, alpha=0.025).bound, 0.13718517153071254),
        (binomial_lower(25, 25, alpha=0.025).bound, 0.86281482846928746),
        (binomial_upper(0, 200, alpha=0.025).bound, 0.018275340355136245),
        (binomial_upper(0, 800, alpha=0.5e-6).bound, 0.01797235782862502),
        (binomial_upper(0, 600, alpha=0.001 / 601).bound, 0.021933143012455874),
    ]
    for got, right in cases:
        assert math.isclose(got, right, rel_tol=1e-13)
    assert binomial_upper(5, 5, alpha=0.05).bound == 1
    assert binomial_lower(0, 5, alpha=0.05).bound == 0


def test_thirteen_of_thirteen_leave_a_lower_bound_far_below_one() -> None:
    assert f"{100 * binomial_lower(13, 13, alpha=0.05).bound:.1f}" == "79.4"


@pytest.mark.parametrize("alpha", [0.05, 0.00625, 1e-9])
def test_bounds_solve_their_defining_tail(alpha: float) -> None:
    for events, n in [(1, 10), (3, 100), (17, 1319), (500, 1000), (990, 1000)]:
        upper = binomial_upper(events, n, alpha=alpha).bound
        lower = binomial_lower(events, n, alpha=alpha).bound
        assert math.isclose(bdtr(events, n, upper), alpha, rel_tol=1e-7)
        assert math.isclose(bdtrc(events - 1, n, lower), alpha, rel_tol=1e-7)


@pytest.mark.parametrize(
    ("margin", "n", "alpha", "most"),
    [
        (0.05, 100, 0.05, 1),
        (0.05, 100, 0.025, 0),
        (0.05, 100, 0.00625, 0),
        (0.05, 100, 0.025 / 12, None),
        (0.05, 200, 0.05, 4),
        (0.05, 200, 0.025, 3),
        (0.05, 200, 0.00625, 2),
        (0.05, 200, 0.025 / 12, 1),
        (0.02, 1319, 0.05, 17),
        (0.02, 1319, 0.025, 16),
        (0.02, 1319, 0.00625, 14),
        (0.02, 1319, 0.025 / 12, 12),
    ],
)
def test_largest_admissible_losses(margin: float, n: int, alpha: float, most: int | None) -> None:
    assert largest_losses(n, margin=margin, alpha=alpha) == most


@pytest.mark.parametrize(("losses", "n"), [(0, 59), (1, 93), (4, 181)])
def test_smallest_n_is_the_first_that_admits_the_losses(losses: int, n: int) -> None:
    assert smallest_n(losses, margin=0.05, alpha=0.05) == n
    assert binomial_upper(losses, n, alpha=0.05).bound <= 0.05 < binomial_upper(losses, n - 1, alpha=0.05).bound


@pytest.mark.parametrize(("true_rate", "power"), [(0.005, 0.997), (0.0106, 0.57), (0.015, 0.11)])
def test_power_of_the_published_preservation_gate(true_rate: float, power: float) -> None:
    got = gate_power(1319, margin=0.02, alpha=0.00625, true_rate=true_rate)
    digits = len(str(power).split(".")[1])
    assert got.largest_losses == 14
    assert round(got.power, digits) == power


def test_power_is_zero_when_no_count_passes_and_one_without_losses() -> None:
    assert gate_power(100, margin=0.05, alpha=0.025 / 12, true_rate=0.0).power == 0
    assert gate_power(100, margin=0.05, alpha=0.05, true_rate=0.0).power == 1


def test_a_gate_at_its_margin_passes_at_most_alpha() -> None:
    for n in (60, 100, 500, 1319):
        assert gate_power(n, margin=0.05, alpha=0.05, true_rate=0.05).power <= 0.05


@pytest.mark.parametrize(
    ("wins", "n", "p"),
    [(0, 3, "1"), (3, 3, "1/8"), (7, 7, "1/128"), (9, 10, "11/1024"), (10, 10, "1/1024"), (5, 10, "319/512")],
)
def test_sign_test_is_exact(wins: int, n: int, p: str) -> None:
    assert sign_test(wins, n).p_exact == p


@pytest.mark.parametrize(
    ("gains", "losses", "p"),
    [
        (0, 0, "1"),
        (1, 1, "1"),
        (5, 5, "1"),
        (0, 1, "1"),
        (0, 5, "1/16"),
        (0, 6, "1/32"),
        (1, 9, "11/512"),
        (3, 12, "9/256"),
        (10, 25, "71613631/4294967296"),
    ],
)
def test_mcnemar_is_exact_and_capped(gains: int, losses: int, p: str) -> None:
    assert mcnemar_test(gains=gains, losses=losses).p_exact == p
    assert mcnemar_test(gains=losses, losses=gains).p_exact == p


@pytest.mark.parametrize(
    ("gains", "losses", "p"),
    [(17, 20, 0.7428293587290682), (94, 129, 0.02258426705756913), (6, 16, 0.052478790283203125)],
)
def test_mcnemar_derived_vectors(gains: int, losses: int, p: float) -> None:
    assert math.isclose(mcnemar_test(gains=gains, losses=losses).p, p, rel_tol=1e-14)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.3])
def test_bounds_cover_in_simulation(rate: float) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    events = rng.binomial(100, rate, size=4000)
    uppers = {int(x): binomial_upper(int(x), 100, alpha=0.05).bound for x in np.unique(events)}
    lowers = {int(x): binomial_lower(int(x), 100, alpha=0.05).bound for x in np.unique(events)}
    noise = 3 * math.sqrt(0.05 * 0.95 / 4000)
    assert np.mean([uppers[int(x)] < rate for x in events]) < 0.05 + noise
    assert np.mean([lowers[int(x)] > rate for x in events]) < 0.05 + noise


@pytest.mark.parametrize("alpha", [0, 1, float("nan"), True, "0.05"])
def test_a_level_outside_0_to_1_is_invalid(alpha: float) -> None:
    with pytest.raises(InvalidData, match="alpha"):
        binomial_upper(1, 10, alpha=alpha)


@pytest.mark.parametrize(("events", "n"), [(0, 0), (-1, 5), (6, 5), (1.0, 5), (True, 5), (1, 5.0)])
def test_counts_that_are_no_counts_are_invalid(events: int, n: int) -> None:
    with pytest.raises(InvalidData):
        binomial_upper(events, n, alpha=0.05)
    with pytest.raises(InvalidData):
        sign_test(events, n)


def test_importing_the_statistics_brings_in_only_numpy_scipy_and_the_errors() -> None:
    script = (
        "import sys, pkgutil, importlib, kassay.stats\n"
        "names = [module.name for module in pkgutil.iter_modules(kassay.stats.__path__)]\n"
        "for name in names: importlib.import_module('kassay.stats.' + name)\n"
        "own = {m for m in sys.modules if m.startswith('kassay.') and not m.startswith('kassay.stats')}\n"
        "assert own <= {'kassay.errors'}, own\n"
        "assert not {'torch', 'scipy.stats', 'pandas', 'statsmodels'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_gates_do_not_import_the_optimizer() -> None:
    imports = "import sys, kassay.stats.certificate, kassay.stats.blocks"
    script = f"{imports}; assert 'scipy.optimize' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
