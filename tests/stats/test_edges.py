"""Exact statistics at their edges (bug case O24): no discordant item, no or all events, one item, none at all."""

import math

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.bootstrap import mean_difference_bounds, median_interval, relative_mean_bounds
from kassay.stats.exact import binomial_lower, binomial_upper, mcnemar_test
from kassay.stats.paired import ArmAnswers, tango_bounds


def test_no_event_of_800_at_a_tiny_level() -> None:
    assert math.isclose(binomial_upper(0, 800, alpha=5e-7).bound, 0.01797235782862502, rel_tol=1e-13)
    assert binomial_lower(0, 800, alpha=5e-7).bound == 0.0


def test_a_constant_sample_is_marked_and_one_item_has_no_interval() -> None:
    ones = np.ones(10)
    made = relative_mean_bounds(ones, ones + 1, alpha=0.025, draws=200, rng=np.random.Generator(np.random.PCG64(1)))
    assert (made.lower, made.upper, made.degenerate) == (1.0, 1.0, True)
    flat = median_interval([1.0] * 10, alpha=0.05)
    assert (flat.lower, flat.upper, flat.degenerate) == (1.0, 1.0, True)
    rng = np.random.Generator(np.random.PCG64(1))
    with pytest.raises(InvalidData, match="documents >= 2"):
        mean_difference_bounds(np.ones(1), np.ones(1), alpha=0.05, draws=10, rng=rng)
    with pytest.raises(InvalidData, match="at least 2"):
        median_interval([1.0], alpha=0.05)


def test_no_items_are_no_data_and_never_a_pass() -> None:
    with pytest.raises(InvalidData, match="no data is not a pass"):
        ArmAnswers(arm="A", item_ids=(), digests=(), outcomes=())
    for bound in (binomial_upper, binomial_lower):
        with pytest.raises(InvalidData, match="at least 1"):
            bound(0, 0, alpha=0.05)
    with pytest.raises(InvalidData, match="at least 1"):
        tango_bounds(gains=0, losses=0, n=0, alpha=0.05, sidedness="one-sided")


def test_no_discordant_item_is_no_evidence_of_a_difference_and_no_proof_of_equality() -> None:
    assert mcnemar_test(gains=0, losses=0).p == 1.0
    assert binomial_upper(0, 100, alpha=0.025 / 12).bound > 0.05, "and a gate on a hundred such items cannot pass"
