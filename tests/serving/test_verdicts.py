"""Failures, invalid loads, missing cells and missing certificates never become a gain; a real one does."""

from dataclasses import replace
from typing import Any

import pytest

from kassay.kinds.serving import ServedLoad, ServerRun, ServingContrast
from kassay.serving.verdicts import Comparison, Evidence, contrasts, gates, value_of
from kassay.stats import InvalidData
from tests.serving.test_metrics import answer, load_of

RULES = {"blocks": 6, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01}
ORDERS = tuple(("native", "k16v8-f") if block % 2 == 0 else ("k16v8-f", "native") for block in range(6))
RATE = Comparison(load="closed", quantity="tokens_per_s", candidate="k16v8-f", control="native")
P95 = replace(RATE, quantity="latency_s.p95")
CERTIFIED = {"k16v8-f": "pass"}


def served(block: int, arm: str, factor: float, **changes: Any) -> ServedLoad:
    """A load of four requests that took `factor` seconds each."""
    answers = [answer(f"{block}-{index}", 0.1 * factor, factor, 11) for index in range(4)]
    made = load_of(answers, place={"arm": arm, "block": block, "pilot": False})
    return replace(made, **changes)


def evidence(factor: float = 0.8, **changes: Any) -> Evidence:
    """Six blocks; the candidate takes `factor` of the control's time, and `changes` are those of its block 2."""
    loads = [served(block, "native", 1.0 + 0.01 * block) for block in range(6)]
    loads += [served(block, "k16v8-f", factor * (1.0 + 0.01 * block)) for block in range(6)]
    loads = [changed(one, changes) if (one.arm, one.block) == ("k16v8-f", 2) else one for one in loads]
    return Evidence(loads=tuple(loads), servers=(), orders=ORDERS)


def changed(made: ServedLoad, changes: dict[str, Any]) -> ServedLoad:
    """The load with other values; what failed or was empty did not complete, and has no times."""
    failed = changes.get("failed", 0)
    done = made.requests - failed - changes.get("empty", 0)
    told = {name: getattr(made, name) | {"n": done} for name in ("ttft_s", "tpot_s", "latency_s")}
    told |= {"completed": done, "errors": {"stalled": failed} if failed else {}}
    return replace(made, **{**told, **({} if done else {"output_tokens": 0}), **changes})


def decided(found: Evidence, certificates: dict[str, str] = CERTIFIED) -> ServingContrast:
    """The verdict on the rate, of a family of two."""
    return contrasts(found, [RATE, P95], certificates, RULES)[0]


def test_a_real_gain_is_confirmed_for_rates_and_for_times() -> None:
    rate, p95 = contrasts(evidence(), [RATE, P95], CERTIFIED, RULES)
    assert (rate.verdict, p95.verdict) == ("gain confirmed", "gain confirmed")
    assert rate.median == pytest.approx(1.25) and p95.median == pytest.approx(1.25)
    assert (rate.wins, rate.p, rate.holm_p, rate.family_size) == (6, 1 / 64, 2 / 64, 2)
    assert rate.failed == {"k16v8-f": 0, "native": 0}


def test_no_difference_and_a_loss_are_no_gain() -> None:
    assert decided(evidence(1.0)).verdict == decided(evidence(1.2)).verdict == "no confirmed gain"


@pytest.mark.parametrize("changes", [{"failed": 1, "completed": 3}, {"empty": 1, "completed": 3}])
def test_one_failed_or_empty_request_disqualifies(changes: dict[str, int]) -> None:
    found = evidence(**changes)
    verdict = decided(found)
    assert (verdict.verdict, verdict.holm_p) == ("no confirmed gain", 1.0)
    assert verdict.reason == "failed or empty requests disqualify a gain: 1 of k16v8-f, 0 of native"
    assert verdict.failed == {"k16v8-f": 1, "native": 0} and verdict.median is not None
    held = {(one.arm, one.load): one for one in gates(found)}
    assert held["k16v8-f", "closed"].verdict == "fails" and held["native", "closed"].verdict == "pass"
    assert held["k16v8-f", "closed"].requests == 24


def test_a_failure_of_the_control_disqualifies_too() -> None:
    found = evidence()
    loads = tuple(changed(one, {"failed": 2}) if (one.arm, one.block) == ("native", 0) else one for one in found.loads)
    assert decided(replace(found, loads=loads)).verdict == "no confirmed gain"


def test_an_invalid_load_invalidates() -> None:
    verdict = decided(evidence(faults=["a request started 3 s late"]))
    assert (verdict.verdict, verdict.ratios, verdict.holm_p) == ("invalidated", None, 1.0)
    assert verdict.reason == "k16v8-f in block 2: a request started 3 s late"


def test_other_prompts_or_the_same_twice_invalidate() -> None:
    found = evidence()
    assert "got different prompts" in decided(evidence(prompts_sha256="other")).reason
    once = {one.prompts_sha256 for one in found.loads if one.block == 0}.pop()
    loads = tuple(replace(one, prompts_sha256=once) for one in found.loads)
    verdict = decided(replace(found, loads=loads))
    assert (verdict.verdict, verdict.reason) == ("invalidated", "two blocks got the same prompts")


def test_a_server_that_died_invalidates_its_comparisons() -> None:
    fields: dict[str, Any] = {name: 0 for name in ("block", "position", "pid", "exit_code")}
    fields |= {"arm": "native", "pilot": False, "argv_sha256": "", "ready_s": 1.0, "stopped_by": "itself"}
    run = ServerRun(**fields, died=True, load_before=0.0, load_after=0.0)
    assert decided(replace(evidence(), servers=(run,))).verdict == "invalidated"
    assert (
        decided(replace(evidence(), servers=(replace(run, died=False, stopped_by="TERM"),))).verdict == "gain confirmed"
    )


@pytest.mark.parametrize(
    ("certificates", "word"),
    [({}, "descriptive"), ({"k16v8-f": "unestablished"}, "descriptive"), ({"k16v8-f": "ineligible"}, "ineligible")],
)
def test_without_a_passed_certificate_there_is_no_gain(certificates: dict[str, str], word: str) -> None:
    verdict = decided(evidence(), certificates)
    assert (verdict.verdict, verdict.holm_p) == (word, 1.0)
    assert verdict.certificate == certificates.get("k16v8-f", "none")


def test_a_missing_a_repeated_or_an_added_cell_is_no_design() -> None:
    found = evidence()
    for loads in (found.loads[:-1], (*found.loads, found.loads[0]), (*found.loads, served(6, "native", 1.0))):
        with pytest.raises(InvalidData):
            decided(replace(found, loads=tuple(loads)))


def test_a_load_without_any_success_has_no_ratio() -> None:
    times = {"n": 0, **dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "largest"))}
    found = evidence(failed=4, completed=0, tokens_per_s=0.0, latency_s=times)
    rate, p95 = contrasts(found, [RATE, P95], CERTIFIED, RULES)
    assert rate.ratios is p95.ratios is None and {rate.verdict, p95.verdict} == {"no confirmed gain"}


def test_swapped_arms_do_not_gain() -> None:
    swapped = replace(RATE, candidate="native", control="k16v8-f")
    (verdict,) = contrasts(evidence(), [swapped], {"native": "pass"}, RULES)
    assert verdict.verdict == "no confirmed gain" and verdict.median == pytest.approx(0.8)


@pytest.mark.parametrize("quantity", ["latency_s.n", "latency_s.p42", "speed", "requests", "errors.p95"])
def test_what_is_no_quantity(quantity: str) -> None:
    with pytest.raises(InvalidData, match="is no quantity"):
        value_of(served(0, "native", 1.0), quantity)
