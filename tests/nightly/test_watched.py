"""What of a decode run is watched, and by which rules: gates by margin, ratios by pairs, rates for gross losses."""

from collections import Counter
from pathlib import Path

from kassay.errors import EXIT_REJECTED
from kassay.nightly.judging import exit_code, judge
from kassay.nightly.watched import Metric, settled, watched
from tests.report.fabricate import FakeRun

ALPHA = 0.01


def test_a_decode_run_and_an_equal_slowdown_of_all_arms(tmp_path: Path) -> None:
    found = settled(watched(FakeRun(tmp_path).full().directory), ALPHA)
    assert {"word", "count", "pairs", "rate"} <= set(Counter(one.rule.name for one in found.values()))
    gates = {name: one.rule for name, one in found.items() if name.startswith("gate ") and name.endswith("estimate")}
    assert gates and all(rule.name.startswith("gate ") and rule.tolerance > 0 for rule in gates.values())
    assert not [name for name in found if name.endswith((": holm_p", ": lower", ": upper", ": half_batch"))]
    paired = {name: one for name, one in found.items() if one.pairs is not None}
    assert paired and all(list(one.pairs or {}) == list(range(12)) for one in paired.values())
    rates = [name for name in found if name.endswith("_per_s")]
    assert {name.split()[0] for name in rates} == {"timed", "sweep"}
    slow = {
        name: Metric(value=0.4 * float(one.value or 0), pairs=None, rule=one.rule) if name in rates else one
        for name, one in found.items()
    }
    told = judge(found, slow, ALPHA)
    assert sorted(one.metric for one in told if one.word == "regressed") == sorted(rates)
    assert exit_code(told) == EXIT_REJECTED, "no ratio has moved"
