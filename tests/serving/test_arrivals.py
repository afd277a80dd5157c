"""Schedules are functions of their seed, have the offered pace, and a broken generator is caught."""

import math
import random
from itertools import accumulate

import pytest

from kassay.serving import arrivals
from kassay.serving.arrivals import Pace
from kassay.stats import InvalidData


def test_a_schedule_is_a_function_of_its_arguments() -> None:
    one = arrivals.offsets("poisson", per_s=20, count=400, seed=3)
    assert one == arrivals.offsets("poisson", per_s=20, count=400, seed=3)
    assert one != arrivals.offsets("poisson", per_s=20, count=400, seed=4)
    assert one[0] == 0 and one == sorted(one) and len(one) == 400


def test_constant_gaps() -> None:
    assert arrivals.offsets("constant", per_s=4, count=4, seed=1) == [0, 0.25, 0.5, 0.75]
    found = arrivals.pace(arrivals.offsets("constant", per_s=4, count=50, seed=1))
    assert found.per_s == pytest.approx(4) and found.gap_cv == pytest.approx(0, abs=1e-9)


def test_poisson_gaps_have_exactly_the_rate_and_about_the_variation() -> None:
    for count in (2, 32, 20_000):
        assert arrivals.pace(arrivals.offsets("poisson", per_s=20, count=count, seed=5)).per_s == pytest.approx(20)
    assert arrivals.pace(arrivals.offsets("poisson", per_s=20, count=20_000, seed=5)).gap_cv == pytest.approx(
        1, abs=0.03
    )
    assert arrivals.offsets("poisson", per_s=20, count=1, seed=5) == [0.0]


def test_at_most_a_few_honest_schedules_in_a_thousand_are_called_off() -> None:
    off, drawn = 0, random.Random(7)
    for seed in range(1000):
        own = arrivals.offsets("poisson", per_s=20, count=100, seed=seed)
        others = list(accumulate(drawn.expovariate(20) for _ in range(100)))  # not scaled, as other tools send
        for starts in (own, others):
            off += bool(arrivals.off_offer(arrivals.pace(starts), pattern="poisson", per_s=20, count=100))
    assert off <= 6


def test_gaps_repeated_by_ten_workers_are_caught() -> None:
    """What guidellm 0.8.1 sends: 10 workers with one seed, so every gap comes ten times (48 a second for 20)."""
    drawn = random.Random(3)
    clock, starts = 0.0, []
    for _ in range(40):
        clock += drawn.expovariate(20) * 4.17
        starts += [clock] * 10
    faults = arrivals.off_offer(arrivals.pace(starts), pattern="poisson", per_s=20, count=400)
    assert len(faults) == 2 and "the rate is" in faults[0] and "the gaps vary" in faults[1]


def test_starts_off_the_schedule() -> None:
    planned, kept = Pace(per_s=20.0, gap_cv=1.0), Pace(per_s=19.0, gap_cv=1.0)
    assert arrivals.off_schedule(planned, planned, largest_lag_s=0.01, lag_limit_s=0.1) == []
    assert len(arrivals.off_schedule(planned, kept, largest_lag_s=0.2, lag_limit_s=0.1)) == 2
    assert arrivals.off_schedule(planned, planned, largest_lag_s=math.nan, lag_limit_s=0.1)


@pytest.mark.parametrize(("pattern", "per_s", "count"), [("poisson", 0, 5), ("poisson", 1, 0), ("burst", 1, 5)])
def test_no_schedule(pattern: str, per_s: float, count: int) -> None:
    with pytest.raises(InvalidData):
        arrivals.offsets(pattern, per_s=per_s, count=count, seed=1)
