"""The benchmark of the statistics measures what it says: the same bound, seeded rows, and bars that a miss fails."""

import math

import numpy as np
import pytest

from benchmarks import bounds, coverage


def test_ours_and_scipys_bound_are_the_same_number() -> None:
    assert bounds.ours() == pytest.approx(bounds.scipys(batch=4096), rel=1e-12)


def test_peak_memory_stays_within_its_bar() -> None:
    assert bounds.peak_mib(bounds.ours) <= bounds.LARGEST_MIB


def test_a_number_beyond_its_bar_or_missing_is_told() -> None:
    good = dict.fromkeys(["bootstrap_s", "bootstrap_over_scipy", "bootstrap_over_scipy_batched"], 0.1)
    good |= {"bootstrap_peak_mib": 5.0, "tango_us": 30.0, "published_s": 0.1}
    assert bounds.missed(good) == []
    assert bounds.missed(good | {"tango_us": 100.1}) == ["tango_us is 100.1, allowed is 100"]
    assert len(bounds.missed(good | {"bootstrap_s": math.nan, "bootstrap_over_scipy": 1.2})) == 2


def test_a_row_depends_on_its_own_seed_alone() -> None:
    first = [row.misses for row in coverage.gross_loss_rows(300)]
    assert first == [row.misses for row in coverage.gross_loss_rows(300)] and sum(first) > 0
    assert coverage.simulated("a", "b", 0.05, 50, lambda rng: bool(rng.random() < 0.5)).misses not in (0, 50)


def test_an_exact_bound_misses_at_most_alpha_and_a_wrong_one_is_seen() -> None:
    for row in coverage.gross_loss_rows(2000):
        assert row.misses / row.replicas <= row.alpha + 4 * math.sqrt(row.alpha / row.replicas), row
    wrong = coverage.simulated("point", "n=100", 0.05, 2000, lambda rng: bool(rng.binomial(100, 0.05) / 100 < 0.05))
    assert wrong.misses / wrong.replicas > 0.2


def test_changes_have_the_mean_that_the_rows_call_true() -> None:
    rng = np.random.default_rng(1)
    for shape in ("normal", "gamma 4", "exponential"):
        control, candidate = coverage.documents_of(shape, 200_000, rng)
        assert (candidate - control).mean() == pytest.approx(coverage.CHANGE, abs=1e-4)
        assert control.mean() == pytest.approx(2.4, abs=3e-3)


def test_tables_of_size_and_power_hold_the_published_values() -> None:
    sizes = {row[0]: row for row in coverage.size_rows()}
    assert sizes["0.00625"][2] == "0.00263" and sizes["0.05000"][-1] == "0.05016"
    power = {row[0]: row for row in coverage.power_rows()}
    assert (power["0.005"][4:6], power["0.0106"][4:6]) == (["0.997", "0.708"], ["0.572", "0.408"])
