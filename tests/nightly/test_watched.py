"""What of a decode run is watched, and by which rules: gates by margin, ratios by pairs, rates for gross losses."""

from collections import Counter
from pathlib import Path

import pytest

from kassay.errors import EXIT_REJECTED
from kassay.nightly.judging import exit_code, judge
from kassay.nightly.watched import Metric, rates, settled, watched
from tests import matrix_run
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
    speeds = [name for name in found if name.endswith("_per_s")]
    assert {name.split()[0] for name in speeds} == {"timed", "sweep"}
    slow = {
        name: Metric(value=0.4 * float(one.value or 0), pairs=None, rule=one.rule) if name in speeds else one
        for name, one in found.items()
    }
    told = judge(found, slow, ALPHA)
    assert sorted(one.metric for one in told if one.word == "regressed") == sorted(speeds)
    assert exit_code(told) == EXIT_REJECTED, "no ratio has moved"


def test_loads_of_a_family_have_rates_of_their_own(tmp_path: Path) -> None:
    """Two loads of one model are not one rate; pilots and guards are none."""
    found = rates(matrix_run.fabricate(tmp_path))
    arms = {load: list(arms) for load, arms in matrix_run.TIMED.items()}
    named = {f"timed {load} {matrix_run.SIZES[load][0]} {arm}: median_per_s" for load in arms for arm in arms[load]}
    assert set(found) == named
    small, large = (found[f"timed {load} alpha native: median_per_s"].value for load in ("alpha-b8", "alpha-b32"))
    assert large == pytest.approx(4 * float(small or 0), rel=0.02)
