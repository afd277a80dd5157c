"""Gates of the net change and of a difference in nats, and what several controls make of a candidate."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.answer_gates import NetChangePlan, net_change_gate
from kassay.stats.certificate import certificate, qualification
from kassay.stats.loss_gates import nll_difference_gate, relative_nll_gate
from kassay.stats.paired import ArmAnswers
from tests.stats.test_certificate import (
    NLL_PLAN,
    answers,
    change_content,
    documents,
    drop_item,
    duplicate_item,
    gate,
    put_nan,
    shuffle_pairs,
)


def net_plan(**changes: object) -> NetChangePlan:
    """The worker's gate: at least -1 pp of 1,319 at its level."""
    given: dict[str, object] = {
        "gate": "gsm8k-net", "endpoint": "gsm8k", "control": "native", "candidate": "A", "planned_n": 1319,
        "margin": -0.01, "alpha": 0.00625, "true_rate": 0.005, "native_floor": 0.5,
    }  # fmt: skip
    return NetChangePlan(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gains", "losses", "bound", "verdict"),
    [(3, 7, "-1.1131", "unestablished"), (19, 17, "-1.0630", "unestablished"), (0, 0, "-0.4707", "pass")],
)
def test_the_published_net_bounds_of_the_worker(gains: int, losses: int, bound: str, verdict: str) -> None:
    result = net_change_gate(answers(losses, gains, native=1175, n=1319), plan=net_plan())
    assert (f"{100 * result.lower:.4f}", result.verdict, result.decides) == (bound, verdict, "lower")
    assert result.power is not None
    assert round(result.power, 2) == 0.71  # the value of the statistics' source at p_gain = p_loss = .005


def test_a_net_loss_beyond_the_margin_is_established_and_a_net_gain_is_never_harm() -> None:
    assert net_change_gate(answers(129, 0, native=1175, n=1319), plan=net_plan()).verdict == "fails"
    assert net_change_gate(answers(0, 100, native=1000, n=1319), plan=net_plan()).verdict == "pass"
    assert net_change_gate(answers(0, 100, native=300, n=1319), plan=net_plan()).verdict == "ineligible"
    with pytest.raises(InvalidData, match="margin"):
        net_plan(margin=0.01)
    assert net_change_gate(answers(0, 0, native=1175, n=1319), plan=net_plan(true_rate=None)).power is None


@pytest.mark.parametrize("corrupt", [drop_item, duplicate_item, shuffle_pairs, change_content, put_nan])
def test_no_net_change_is_computed_from_corrupted_answers(corrupt: Callable[[ArmAnswers], ArmAnswers]) -> None:
    arms = answers(0, 0, native=1175, n=1319)
    with pytest.raises(InvalidData):
        net_change_gate(arms | {"A": corrupt(arms["A"])}, plan=net_plan())


def test_the_difference_in_nats_is_another_gate_than_the_relative_rise() -> None:
    arms = documents(shift=0.0065, n=64)  # of about 2 nats: 0.013 nats
    plan = dataclasses.replace(NLL_PLAN, margin=0.009950330853168092)
    assert relative_nll_gate(arms, plan=plan).verdict == "pass"
    result = nll_difference_gate(arms, plan=plan)
    assert (result.verdict, result.statistic) == ("fails", "mean nll difference")
    native, candidate = (np.array(arms[name].nll_nats) for name in ("native", "A"))
    assert result.estimate == pytest.approx(candidate.mean() - native.mean(), abs=1e-15)


def test_a_candidate_qualifies_against_every_planned_control_only() -> None:
    controls = ("flashinfer", "fa3")

    def verdict(**found: str) -> str:
        return qualification(found, objective="kept", candidate="A", planned_controls=controls).verdict

    assert verdict(flashinfer="pass", fa3="pass") == "pass"
    assert verdict(flashinfer="unestablished", fa3="pass") == "unestablished"
    assert verdict(flashinfer="unestablished", fa3="ineligible") == "ineligible"
    assert verdict(flashinfer="fails", fa3="unestablished") == "fails"
    for found in ({}, {"fa3": "pass"}, {"flashinfer": "pass", "fa3": "pass", "compact": "pass"}):
        with pytest.raises(InvalidData, match="against"):
            verdict(**found)
    with pytest.raises(InvalidData, match="allowed are pass"):
        verdict(flashinfer="passed", fa3="pass")


def test_gates_at_two_levels_make_no_certificate() -> None:
    gates = [gate(3), dataclasses.replace(gate(3, alpha=0.025), gate="other")]
    with pytest.raises(InvalidData, match="levels"):
        certificate(gates, objective="kept", control="native", candidate="A", planned_gates=["arithmetic", "other"])
