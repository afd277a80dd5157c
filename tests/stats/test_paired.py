"""Pairing, gross losses and Tango's bounds against published vectors."""

import itertools
import math

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.paired import (
    ArmAnswers,
    ArmLosses,
    paired_counts,
    paired_items,
    select_arm,
    tango_bounds,
)


def arm(name: str, outcomes: str) -> ArmAnswers:
    """An arm whose outcomes are spelled by first letters: c, w, u, t, e."""
    words = {"c": "correct", "w": "wrong", "u": "unreadable", "t": "truncated", "e": "error"}
    ids = tuple(f"item-{index}" for index in range(len(outcomes)))
    return ArmAnswers(
        arm=name,
        item_ids=ids,
        digests=tuple(f"sha-{item_id}" for item_id in ids),
        outcomes=tuple(words[letter] for letter in outcomes),
    )


# gains, losses, n, two-sided alpha, lower, upper, digits of the source (statistics.md 2.1 names each)
TANGO = [
    (0, 1, 44, 0.10, -0.096, 0.037, 3),  # Tango 1998, Table V; the article prints both ends to three digits
    (9, 3, 32, 0.05, -0.027, 0.390, 3),
    (1, 7, 21, 0.05, -0.517, -0.026, 3),
    (6, 16, 161, 0.05, -0.1240, -0.0054, 4),
    (3, 1, 14, 0.05, -0.1670, 0.4327, 4),
    (3, 0, 3, 0.05, -0.1230, 1.0, 4),
    (12, 2, 50, 0.05, 0.061112406, 0.344708748, 9),
    (20, 40, 160, 0.05, -0.218064, -0.030865, 6),
    (4, 11, 320, 0.05, -0.049684, 0.002097, 6),
    (17, 20, 1319, 0.05, -0.011837792, 0.007094641, 8),  # the source's last digit is ratesci's rounding
    (15, 22, 1319, 0.05, -0.014989439, 0.003920684, 9),
]


@pytest.mark.parametrize(("gains", "losses", "n", "alpha", "lower", "upper", "digits"), TANGO)
def test_tango_matches_published_intervals(
    gains: int, losses: int, n: int, alpha: float, lower: float, upper: float, digits: int
) -> None:
    bounds = tango_bounds(gains=gains, losses=losses, n=n, alpha=alpha, sidedness="two-sided")
    assert abs(bounds.lower - lower) < 0.51 * 10**-digits
    assert abs(bounds.upper - upper) < 0.51 * 10**-digits


@pytest.mark.parametrize(
    ("gains", "losses", "lower", "printed_pp"),
    [(3, 7, -0.011131335, "-1.1131"), (19, 17, -0.010629534, "-1.0630")],
)
def test_tango_one_sided_at_the_workers_level(gains: int, losses: int, lower: float, printed_pp: str) -> None:
    bounds = tango_bounds(gains=gains, losses=losses, n=1319, alpha=0.00625, sidedness="one-sided")
    assert abs(bounds.z - 2.497705474412374) < 1e-12
    assert abs(bounds.lower - lower) < 0.51e-9
    assert f"{100 * bounds.lower:.4f}" == printed_pp


def test_tango_edges_have_closed_forms() -> None:
    z = 1.959963984540054
    none = tango_bounds(gains=0, losses=0, n=40, alpha=0.05, sidedness="two-sided")
    assert math.isclose(none.upper, z * z / (40 + z * z), rel_tol=1e-12)
    assert none.lower == -none.upper
    assert tango_bounds(gains=0, losses=7, n=7, alpha=0.05, sidedness="two-sided").lower == -1
    assert tango_bounds(gains=7, losses=0, n=7, alpha=0.05, sidedness="two-sided").upper == 1


def test_tango_solves_its_score_equation_and_mirrors_for_every_small_table() -> None:
    n = 9
    for gains, losses in itertools.product(range(n + 1), repeat=2):
        if gains + losses > n:
            continue
        bounds = tango_bounds(gains=gains, losses=losses, n=n, alpha=0.1, sidedness="two-sided")
        mirror = tango_bounds(gains=losses, losses=gains, n=n, alpha=0.1, sidedness="two-sided")
        assert bounds.lower == -mirror.upper
        assert -1 <= bounds.lower <= bounds.estimate <= bounds.upper <= 1
        for d in (bounds.lower, bounds.upper):
            if abs(d) < 1 and gains + losses > 0:
                assert math.isclose(abs(score(gains, losses, n, d)), bounds.z, rel_tol=1e-6)


def score(b: int, c: int, n: int, d: float) -> float:
    """Tango's statistic from the likelihood itself: q maximizes it numerically."""
    low, high = max(0.0, -d), (1 - d) / 2
    for _ in range(200):  # golden section on a concave function
        first, second = low + 0.382 * (high - low), low + 0.618 * (high - low)
        if likelihood(b, c, n, d, first) < likelihood(b, c, n, d, second):
            low = first
        else:
            high = second
    q = (low + high) / 2
    return (b - c - n * d) / math.sqrt(n * (2 * q + d * (1 - d)))


def likelihood(b: int, c: int, n: int, d: float, q: float) -> float:
    """Trinomial log-likelihood with P(loss) = q and P(gain) = q + d."""
    parts = [(b, q + d), (c, q), (n - b - c, 1 - 2 * q - d)]
    return sum(count * math.log(max(p, 1e-300)) for count, p in parts if count)


def test_tango_covers_in_simulation() -> None:
    rng = np.random.Generator(np.random.PCG64(2))
    tables = rng.multinomial(200, [0.03, 0.05, 0.92], size=1500)
    bounds = [
        tango_bounds(gains=int(b), losses=int(c), n=200, alpha=0.05, sidedness="one-sided").lower for b, c, _ in tables
    ]
    assert np.mean(np.array(bounds) > -0.02) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


def test_errors_truncations_and_unreadable_answers_count_as_wrong() -> None:
    control, candidate = arm("native", "ccccccw"), arm("A", "cwuteec")
    order = paired_items(control, candidate, planned_n=7).item_ids
    counts = paired_counts(control.correct(order), candidate.correct(order))
    assert (counts.n, counts.losses, counts.gains) == (7, 5, 1)
    assert (counts.both_correct, counts.both_wrong) == (1, 0)


def test_the_order_of_records_does_not_matter_but_the_content_does() -> None:
    control, candidate = arm("native", "ccw"), arm("A", "cwc")
    shuffled = ArmAnswers(
        arm="A",
        item_ids=candidate.item_ids[::-1],
        digests=candidate.digests[::-1],
        outcomes=candidate.outcomes[::-1],
    )
    assert paired_items(control, candidate, planned_n=3) == paired_items(control, shuffled, planned_n=3)
    order = paired_items(control, candidate, planned_n=3).item_ids
    assert (candidate.correct(order) == shuffled.correct(order)).all()


@pytest.mark.parametrize(
    ("item_ids", "digests", "outcomes"),
    [
        ((), (), ()),
        (("a", "a"), ("1", "1"), ("correct", "correct")),
        (("a", "b"), ("1",), ("correct", "correct")),
        (("a", "b"), ("1", "2"), ("correct",)),
        (("a", ""), ("1", "2"), ("correct", "wrong")),
        (("a", "b"), ("1", ""), ("correct", "wrong")),
        (("a", "b"), ("1", "2"), ("correct", "Correct")),
        (("a", "b"), ("1", "2"), ("correct", None)),
        (("a", "b"), ("1", "2"), ("correct", float("nan"))),
    ],
)
def test_broken_arms_cannot_be_made(
    item_ids: tuple[str, ...], digests: tuple[str, ...], outcomes: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidData):
        ArmAnswers(arm="A", item_ids=item_ids, digests=digests, outcomes=outcomes)


@pytest.mark.parametrize("nll_nats", [float("nan"), float("inf"), -0.1, None, "1.0", True])
def test_a_loss_that_is_no_loss_cannot_be_recorded(nll_nats: float) -> None:
    with pytest.raises(InvalidData, match="nll_nats"):
        ArmLosses(arm="A", item_ids=("a",), digests=("1",), nll_nats=(nll_nats,))


def test_a_float_array_is_not_correctness() -> None:
    with pytest.raises(InvalidData, match="bool"):
        paired_counts(np.array([1.0, np.nan]), np.array([True, True]))
    with pytest.raises(InvalidData, match="equal"):
        paired_counts(np.array([True]), np.array([True, False]))


def test_a_missing_arm_and_a_mislabelled_one_are_invalid() -> None:
    native = arm("native", "cc")
    with pytest.raises(InvalidData, match="missing"):
        select_arm({"native": native}, "A")
    with pytest.raises(InvalidData, match="those of arm `native`"):
        select_arm({"A": native}, "A")


@pytest.mark.parametrize(("gains", "losses", "n"), [(3, 3, 5), (-1, 0, 5), (0, 0, 0), (6, 0, 5)])
def test_tango_refuses_impossible_tables(gains: int, losses: int, n: int) -> None:
    with pytest.raises(InvalidData):
        tango_bounds(gains=gains, losses=losses, n=n, alpha=0.05, sidedness="one-sided")
