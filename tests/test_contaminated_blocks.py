"""Bug case O21: two arms on one machine that drifts, answers from a cache, and a time that cannot be."""

import statistics
from typing import Any

import pytest

from kassay import judging
from kassay.kinds.timing import TimingCell
from kassay.serving import metrics
from kassay.stats import InvalidData
from kassay.stats.orders import balance_report, counterbalanced_orders
from kassay.validity import Evidence
from tests import timed
from tests.serving.test_metrics import answer

NS = 1_000_000_000
ABBA = [["A", "B"], ["B", "A"]]
STRICT = dict.fromkeys(("power_capped_percent", "slowdown_percent", "foreign_gpu_processes", "foreign_cpu_percent"))
TIMING: dict[str, Any] = {"blocks": 2, "conditions": {**STRICT, "drift_percent": None, "cached_tokens": 0}}


def cells(orders: list[list[str]], seconds: list[float], computed: list[int] | None = None) -> tuple[TimingCell, ...]:
    """A cell for each place in turn, with so many seconds and so many of 1,000 prompt tokens computed."""
    places = [(block, position, arm) for block, order in enumerate(orders) for position, arm in enumerate(order)]
    prefilled = computed or [1000] * len(places)
    return tuple(
        timed.cell(
            block=block, position=position, recipe=arm, batch=1, context_tokens=1000, warmups=0, started_ns=[0],
            ended_ns=[round(took * NS)], prefilled_tokens=[tokens],
        )
        for (block, position, arm), took, tokens in zip(places, seconds, prefilled, strict=True)
    )  # fmt: skip


def judged(made: tuple[TimingCell, ...], orders: list[list[str]], **conditions: Any) -> judging.Blocks:
    """The blocks under the frozen rules."""
    found = Evidence(cells=made, hosts=tuple(timed.around(list(made))), gpus=())
    return judging.judged(found, orders, {**TIMING, "conditions": TIMING["conditions"] | conditions})


def seconds_of(made: tuple[TimingCell, ...], arm: str) -> float:
    """The mean time of an arm."""
    return statistics.mean((one.ended_ns[0] - one.started_ns[0]) / NS for one in made if one.recipe == arm)


def test_a_drift_is_common_to_both_arms_in_the_planned_order() -> None:
    """A takes 100 and B 95, and every place is a second slower than the one before."""
    orders = [list(order) for order in counterbalanced_orders(["A", "B"], 2)]
    assert orders == ABBA and balance_report([("A", "B"), ("B", "A")]).position_balanced
    made = cells(orders, [100, 96, 97, 103])
    assert (seconds_of(made, "A"), seconds_of(made, "B")) == (101.5, 96.5), "a difference of -5 exactly"
    found = judged(made, orders)
    assert found.valid == [0, 1] and found.ratios("B", "A") == pytest.approx((100 / 96, 103 / 97), rel=1e-12)


def test_another_order_on_the_same_machine_is_refused() -> None:
    """A, A, B, B would give -3: what ran is held against the order that the plan fixed and each record carries."""
    made = cells([["A", "A"], ["B", "B"]], [100, 101, 97, 98])
    assert seconds_of(made, "B") - seconds_of(made, "A") == -3
    with pytest.raises(InvalidData, match="not planned"):
        judged(made, ABBA)


def test_answers_from_a_cache_are_no_speed() -> None:
    """The same prompts again: 0 of 1,000 tokens came from a cache, then 900 in every other cell."""
    made = cells(ABBA, [10, 5, 5, 5], [1000, 100, 100, 100])
    assert seconds_of(made, "B") / seconds_of(made, "A") == pytest.approx(2 / 3), "B is no third faster"
    found = judged(made, ABBA)
    assert found.valid == [] and found.ratios("B", "A") == ()
    assert {fault.rule for fault in found.faults} == {"cached_tokens"}
    assert "900 of 1000 prompt tokens" in found.faults[0].said
    assert found.short_of(2).startswith("0 of 2 blocks count and 2 are needed")
    assert judged(made, ABBA, cached_tokens=900).valid == [0, 1], "a study may allow what it says beforehand"


def test_a_missing_block_is_no_mean_of_unequal_counts() -> None:
    made = cells(ABBA, [100, 96, 97, 103])
    for short in (made[:-1], made[:2]):
        with pytest.raises(InvalidData, match="missing"):
            judged(short, ABBA)


def test_a_negative_time_per_token_is_invalid() -> None:
    """One token after 0.80 s, 65 after 0.75 s: -0.00078125 s a token, which is averaged with nothing."""
    one = answer("x", 0.80, 0.80, 65, token_ns=[800_000_000, 750_000_000])
    with pytest.raises(InvalidData, match="came before its first"):
        metrics.tpot_s(one)
    made = cells(ABBA, [100, 96, 97, -1])
    assert {(fault.block, fault.rule) for fault in judged(made, ABBA).faults} >= {(1, "stamps")}
    assert judged(made, ABBA).valid == [0]
