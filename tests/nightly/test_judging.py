"""One metric beside its baseline: no division, NaN never passes, pairs by their own test, red unless compared."""

import math
from dataclasses import replace

import pytest

from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET
from kassay.nightly import rule
from kassay.nightly.judging import Finding, exit_code, judge
from kassay.nightly.rule import COMPUTED, PAIRED, WORD, Rule, Value
from kassay.nightly.watched import Metric, settled

ALPHA = 0.01


def asked(by: str, better: str, tolerance: float) -> Rule:
    """A rule of this test."""
    return Rule(name="test", by=by, better=better, tolerance=tolerance, why="of this test")


def metric(value: Value | None, one: Rule = COMPUTED, pairs: dict[int, float] | None = None) -> Metric:
    """A metric of this test."""
    return Metric(value=value, pairs=pairs, rule=one)


# O26 of the bug cases: the four rules, and what tonight has of them.
BASELINE = {
    "tps": metric(100, asked("relative tolerance", "higher", 0.05)),
    "ttft": metric(0.5, asked("relative tolerance", "lower", 0.10)),
    "failed": metric(0, asked("relative tolerance", "lower", 0.0)),
    "acc": metric(0.43, asked("absolute tolerance", "higher", 0.05)),
}
TONIGHT = {"tps": metric(math.nan), "failed": metric(3), "acc": metric(0.41), "fresh": metric(7)}


def words(found: list[Finding]) -> dict[str, str]:
    """Metric -> word."""
    return {one.metric: one.word for one in found}


def test_o26_a_nan_a_missing_metric_and_a_rise_from_zero_are_red_and_a_small_loss_is_not() -> None:
    found = judge(BASELINE, TONIGHT, ALPHA)
    assert words(found) == {"tps": "invalid", "ttft": "missing", "failed": "regressed", "acc": "pass", "fresh": "new"}
    told = {one.metric: one.text for one in found}
    assert told["failed"].startswith("0 -> 3") and told["acc"] == "0.43 -> 0.41"
    assert exit_code(found) == EXIT_REJECTED
    assert exit_code([one for one in found if one.metric in ("tps", "ttft", "acc")]) == EXIT_UNMET
    assert exit_code([one for one in found if one.metric in ("acc", "fresh")]) == EXIT_PASSED
    relative = {"acc": metric(0.43, asked("relative tolerance", "higher", 0.04))}
    assert words(judge(relative, TONIGHT, ALPHA))["acc"] == "regressed", "-4.65 % is another rule"


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("better", rule.BETTER)
def test_what_is_not_finite_never_holds(value: float | None, better: str) -> None:
    one = asked("absolute tolerance", better, 1e9)
    assert words(judge({"x": metric(1.0, one)}, {"x": metric(value)}, ALPHA)) == {"x": "invalid"}
    assert words(judge({"x": metric(value, one)}, {"x": metric(1.0)}, ALPHA)) == {"x": "invalid"}


def test_nothing_compared_is_red() -> None:
    for now in ({}, {"other": metric(1)}):
        found = judge(BASELINE, now, ALPHA)
        assert found[0].text == "no metric of the baseline is in this run: nothing was compared"
        assert exit_code(found) == EXIT_UNMET
    assert exit_code([]) == EXIT_UNMET


@pytest.mark.parametrize(
    ("by", "better", "before", "now", "word"),
    [
        ("absolute tolerance", "higher", 0.43, 0.38, "pass"),  # as decimals exactly the limit
        ("absolute tolerance", "higher", 0.43, 0.3799999, "regressed"),
        ("absolute tolerance", "lower", 0.1, 0.15, "pass"),
        ("absolute tolerance", "lower", 0.1, 0.2, "regressed"),
        ("absolute tolerance", "lower", 0.1, 0.01, "improved"),
        ("relative tolerance", "higher", -10.0, -10.4, "pass"),  # of the size, whatever the sign
        ("relative tolerance", "higher", -10.0, -10.6, "regressed"),
        ("relative tolerance", "same", 10, 10.6, "changed"),
        ("relative tolerance", "same", 10, 9.4, "changed"),
        ("relative tolerance", "lower", 0, 0, "pass"),
        ("relative tolerance", "lower", 0, 1e-300, "regressed"),
        ("equality", "same", "pass", "fails", "changed"),
        ("equality", "same", True, 1, "invalid"),
        ("equality", "same", 1, True, "invalid"),
        ("equality", "same", 1, "1", "invalid"),
        ("equality", "same", 1, 1.0, "pass"),
    ],
)
def test_limits(by: str, better: str, before: Value, now: Value, word: str) -> None:
    one = asked(by, better, 0.0 if by == "equality" else 0.05)
    assert words(judge({"x": metric(before, one)}, {"x": metric(now)}, ALPHA)) == {"x": word}


RATIOS = (1.20, 1.22, 1.19, 1.25, 1.21, 1.23, 1.18, 1.24)


def paired(*ratios: float) -> Metric:
    """A metric with raw pairs."""
    return metric(sorted(ratios)[len(ratios) // 2], PAIRED, dict(enumerate(ratios)))


def test_pairs_are_judged_block_by_block() -> None:
    before = {"r": paired(*RATIOS)}
    slower = paired(*(0.97 * ratio for ratio in RATIOS))
    assert words(judge(before, {"r": slower}, ALPHA)) == {"r": "regressed"}  # 8 of 8 lower: p = 1/256
    within = paired(*(0.99 * ratio for ratio in RATIOS))
    assert words(judge(before, {"r": within}, ALPHA)) == {"r": "pass"}, "established, and less than the tolerance"
    seven = paired(*(0.9 * ratio for ratio in RATIOS[:7]), 1.5)
    assert words(judge(before, {"r": seven}, ALPHA)) == {"r": "unestablished"}  # 7 of 8: p = 9/256
    assert words(judge(before, {"r": seven}, 0.05)) == {"r": "regressed"}
    shuffled = paired(*reversed(RATIOS))
    assert words(judge(before, {"r": shuffled}, ALPHA)) == {"r": "pass"}


def test_the_family_is_the_baselines_and_a_missing_member_counts() -> None:
    before = {"r": paired(*RATIOS), "gone": paired(*RATIOS), "other": paired(*RATIOS)}
    now = {"r": paired(*(0.9 * ratio for ratio in RATIOS)), "other": paired(*RATIOS)}
    assert words(judge(before, now, 0.0118)) == {"r": "regressed", "gone": "missing", "other": "pass"}  # 3/256
    assert words(judge(before, now, 0.0117)) == {"r": "invalid", "gone": "missing", "other": "invalid"}


@pytest.mark.parametrize(
    "pairs",
    [
        None,
        {},
        dict(enumerate(RATIOS[:6])),  # p of six blocks is 1/64 at best
        dict(enumerate(RATIOS, 4)),  # four blocks in common
        dict(enumerate((*RATIOS[:7], 0.0))),
        dict(enumerate((*RATIOS[:7], math.nan))),
    ],
)
def test_pairs_that_cannot_be_paired_are_invalid(pairs: dict[int, float] | None) -> None:
    found = judge({"r": paired(*RATIOS)}, {"r": metric(1.2, PAIRED, pairs)}, ALPHA)
    assert words(found) == {"r": "invalid"} and exit_code(found) == EXIT_UNMET


def test_a_block_is_paired_with_itself_whatever_else_counts() -> None:
    eight, trend = paired(*RATIOS), {block: 1.0 + block / 10 for block in range(10)}
    now = {block: ratio for block, ratio in trend.items() if block != 4}  # one was interrupted
    found = judge({"r": metric(1.4, PAIRED, trend)}, {"r": metric(1.5, PAIRED, now)}, ALPHA)
    assert words(found) == {"r": "pass"} and "median quotient 1.0000 over 9 blocks" in found[0].text
    assert words(judge({"r": eight}, {"r": eight}, ALPHA)) == {"r": "pass"}


def test_too_few_blocks_are_judged_by_their_median_and_say_so() -> None:
    two, many = settled({"a": paired(1.0, 1.1)}, ALPHA)["a"], settled({"a": paired(*RATIOS)}, ALPHA)["a"]
    assert (two.rule.by, many.rule.by) == ("relative tolerance", "pairs") and "so few blocks" in two.rule.why
    assert settled({"a": paired(*RATIOS), "b": paired(*RATIOS), "c": paired(*RATIOS)}, ALPHA)["a"].rule.by != "pairs"


def test_a_rule_is_checked() -> None:
    good = {key: vars(WORD)[key] for key in rule.KEYS}
    assert rule.faults("word", good) == []
    for change in ({"by": "eye"}, {"better": "more"}, {"tolerance": -1}, {"tolerance": math.nan}, {"why": " "}):
        (fault,) = rule.faults("word", {**good, **change})
        assert fault.startswith(f"rule `word`: `{next(iter(change))}` is ")
    assert rule.faults("word", {**good, "more": 1}) and rule.faults("word", "x")
    assert not rule.gained(replace(COMPUTED, better="higher"), "a", "b")
