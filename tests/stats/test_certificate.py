"""Gates and certificates on published counts, in the three ways a gate can end, and under every mutation."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.answer_gates import GrossLossPlan, gross_loss_gate
from kassay.stats.certificate import Certificate, certificate
from kassay.stats.gates import GateResult
from kassay.stats.loss_gates import LossPlan, relative_nll_gate
from kassay.stats.paired import ArmAnswers, ArmLosses

ANSWERS_PLAN = GrossLossPlan(
    gate="arithmetic",
    endpoint="arithmetic",
    control="native",
    candidate="A",
    planned_n=1319,
    margin=0.02,
    alpha=0.05,
    true_rate=0.005,
    native_floor=0.5,
)
NLL_PLAN = LossPlan(
    gate="nll",
    endpoint="nll",
    control="native",
    candidate="A",
    planned_n=64,
    margin=0.01,
    alpha=0.05,
    draws=2000,
    seed=1,
)


def answers(losses: int, gains: int, *, native: int, n: int) -> dict[str, ArmAnswers]:
    """Two arms with these counts: the first items are lost, the last ones gained."""
    ids = tuple(f"item-{index:05d}" for index in range(n))
    digests = tuple(f"sha-{item_id}" for item_id in ids)
    control = ["correct"] * native + ["wrong"] * (n - native)
    candidate = ["wrong"] * losses + control[losses : n - gains] + ["correct"] * gains
    return {
        name: ArmAnswers(arm=name, item_ids=ids, digests=digests, outcomes=tuple(outcomes))
        for name, outcomes in (("native", control), ("A", candidate))
    }


def documents(*, shift: float, n: int) -> dict[str, ArmLosses]:
    """Two arms on n documents of about 2 nats, the candidate's loss relatively `shift` higher, with noise."""
    rng = np.random.Generator(np.random.PCG64(11))
    ids = tuple(f"doc-{index:03d}" for index in range(n))
    digests = tuple(f"sha-{item_id}" for item_id in ids)
    native = rng.normal(2, 0.2, size=n)
    changed = native * (1 + shift + rng.normal(0, 0.004, size=n))
    return {
        name: ArmLosses(arm=name, item_ids=ids, digests=digests, nll_nats=tuple(map(float, losses)))
        for name, losses in (("native", native), ("A", changed))
    }


def gate(losses: int, gains: int = 0, *, native: int = 1175, alpha: float = 0.05) -> GateResult:
    """The arithmetic gate on 1,319 items."""
    plan = dataclasses.replace(ANSWERS_PLAN, alpha=alpha)
    return gross_loss_gate(answers(losses, gains, native=native, n=1319), plan=plan)


def test_the_published_row_of_qwen3() -> None:
    result = gate(11, 14)
    assert (result.n, result.losses, result.gains, result.verdict) == (1319, 11, 14, "pass")
    assert f"{100 * result.upper:.3f}" == "1.377"
    assert result.native_score == 1175 / 1319
    assert result.estimate == 11 / 1319
    assert result.sidedness == "one-sided"


@pytest.mark.parametrize(
    ("losses", "gains", "native", "verdict"),
    [
        (3, 4, 1252, "pass"),  # Phi-4
        (17, 19, 1175, "pass"),  # AWQ 8K: the most the 2 % gate admits
        (18, 600, 700, "unestablished"),  # gains never cancel losses
        (20, 16, 874, "unestablished"),  # Llama-3.1-8B
        (129, 94, 720, "fails"),  # Qwen2.5-1.5B
        (42, 34, 720, "fails"),
        (0, 0, 314, "ineligible"),  # Mistral-7B: native below its floor, although nothing is lost
    ],
)
def test_published_and_edge_counts_end_in_one_of_four_ways(losses: int, gains: int, native: int, verdict: str) -> None:
    assert gate(losses, gains, native=native).verdict == verdict


def test_seventeen_losses_pass_at_5_percent_and_not_at_the_workers_level() -> None:
    assert gate(17, alpha=0.05).verdict == "pass"
    assert gate(17, alpha=0.00625).verdict == "unestablished"
    assert gate(14, alpha=0.00625).verdict == "pass"


def test_the_power_is_printed_beside_the_gate() -> None:
    result = gate(0, alpha=0.00625)
    assert result.power is not None
    assert round(result.power, 3) == 0.997
    assert result.true_rate == 0.005


def test_a_floor_is_met_at_equality() -> None:
    plan = dataclasses.replace(ANSWERS_PLAN, planned_n=200, native_floor=0.8, margin=0.05)
    assert gross_loss_gate(answers(0, 0, native=160, n=200), plan=plan).verdict == "pass"
    assert gross_loss_gate(answers(0, 0, native=159, n=200), plan=plan).verdict == "ineligible"


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.0, "pass"), (0.005, "pass"), (0.0098, "unestablished"), (0.03, "fails"), (-0.1, "pass")],
)
def test_the_relative_loss_gate_ends_in_three_ways(shift: float, verdict: str) -> None:
    result = relative_nll_gate(documents(shift=shift, n=64), plan=NLL_PLAN)
    assert result.verdict == verdict
    assert result.lower <= result.estimate <= result.upper
    assert (result.draws, result.seed, result.losses, result.power) == (2000, 1, None, None)


def test_the_same_seed_gives_the_same_bits_in_any_order_of_records() -> None:
    arms = documents(shift=0.004, n=64)
    mixed = {
        name: ArmLosses(arm=name, item_ids=arm.item_ids[::-1], digests=arm.digests[::-1], nll_nats=arm.nll_nats[::-1])
        for name, arm in arms.items()
    }
    assert relative_nll_gate(arms, plan=NLL_PLAN) == relative_nll_gate(mixed, plan=NLL_PLAN)
    reseeded = dataclasses.replace(NLL_PLAN, seed=2)
    assert relative_nll_gate(arms, plan=reseeded).upper != relative_nll_gate(arms, plan=NLL_PLAN).upper


def test_an_intervention_without_any_effect_is_marked() -> None:
    arms = documents(shift=0.0, n=64)
    assert not relative_nll_gate(arms, plan=NLL_PLAN).unchanged
    same = arms | {"A": dataclasses.replace(arms["native"], arm="A")}
    assert relative_nll_gate(same, plan=NLL_PLAN).unchanged
    assert gate(0).unchanged


def test_a_gate_at_its_margin_passes_at_most_alpha_in_simulation() -> None:
    rng = np.random.Generator(np.random.PCG64(12))
    plan = dataclasses.replace(ANSWERS_PLAN, planned_n=300, margin=0.05, native_floor=None)
    verdicts = [
        gross_loss_gate(answers(int(losses), 0, native=300, n=300), plan=plan).verdict
        for losses in rng.binomial(300, 0.05, size=400)
    ]
    assert verdicts.count("pass") <= 0.05 * 400 + 13
    assert verdicts.count("fails") <= 0.05 * 400 + 13


# --- mutations: a gate on corrupted data never passes


def passing_answers() -> dict[str, ArmAnswers]:
    """Data that pass ANSWERS_PLAN with nothing to spare: 17 losses are the most that it admits."""
    return answers(17, 0, native=1175, n=1319)


def drop_item(arm: ArmAnswers) -> ArmAnswers:
    """The arm without its last record."""
    return dataclasses.replace(arm, item_ids=arm.item_ids[:-1], digests=arm.digests[:-1], outcomes=arm.outcomes[:-1])


def duplicate_item(arm: ArmAnswers) -> ArmAnswers:
    """The arm with its first record in place of its last."""
    return dataclasses.replace(arm, item_ids=(*arm.item_ids[:-1], arm.item_ids[0]))


def shuffle_pairs(arm: ArmAnswers) -> ArmAnswers:
    """The arm with identifiers moved by one against the contents."""
    return dataclasses.replace(arm, item_ids=arm.item_ids[1:] + arm.item_ids[:1])


def change_content(arm: ArmAnswers) -> ArmAnswers:
    """The arm with another content under its first identifier."""
    return dataclasses.replace(arm, digests=("other", *arm.digests[1:]))


def put_nan(arm: ArmAnswers) -> ArmAnswers:
    """The arm with a NaN for an outcome."""
    return dataclasses.replace(arm, outcomes=(float("nan"), *arm.outcomes[1:]))  # type: ignore[arg-type]


@pytest.mark.parametrize("corrupt", [drop_item, duplicate_item, shuffle_pairs, change_content, put_nan])
@pytest.mark.parametrize("name", ["native", "A"])
def test_corrupted_answers_are_invalid(corrupt: Callable[[ArmAnswers], ArmAnswers], name: str) -> None:
    arms = passing_answers()
    assert gross_loss_gate(arms, plan=ANSWERS_PLAN).verdict == "pass"
    with pytest.raises(InvalidData):
        gross_loss_gate(arms | {name: corrupt(arms[name])}, plan=ANSWERS_PLAN)


def test_dropped_and_swapped_arms_are_invalid() -> None:
    arms = passing_answers()
    for name in arms:
        with pytest.raises(InvalidData, match="missing"):
            gross_loss_gate({key: arm for key, arm in arms.items() if key != name}, plan=ANSWERS_PLAN)
    with pytest.raises(InvalidData, match="those of arm"):
        gross_loss_gate({"native": arms["A"], "A": arms["native"]}, plan=ANSWERS_PLAN)


def test_both_arms_truncated_alike_are_still_not_the_planned_data() -> None:
    arms = {name: drop_item(arm) for name, arm in passing_answers().items()}
    with pytest.raises(InvalidData, match="1319"):
        gross_loss_gate(arms, plan=ANSWERS_PLAN)


@pytest.mark.parametrize("outcome", ["truncated", "error", "unreadable", "wrong"])
def test_one_more_cut_off_or_failed_answer_is_one_more_loss(outcome: str) -> None:
    arms = passing_answers()
    worse = dataclasses.replace(arms["A"], outcomes=(*arms["A"].outcomes[:17], outcome, *arms["A"].outcomes[18:]))
    result = gross_loss_gate(arms | {"A": worse}, plan=ANSWERS_PLAN)
    assert (result.losses, result.verdict) == (18, "unestablished")


def test_corrupted_losses_are_invalid() -> None:
    arms = documents(shift=0.0, n=64)
    assert relative_nll_gate(arms, plan=NLL_PLAN).verdict == "pass"
    native, candidate = arms["native"], arms["A"]
    short = dataclasses.replace(
        candidate,
        item_ids=candidate.item_ids[1:],
        digests=candidate.digests[1:],
        nll_nats=candidate.nll_nats[1:],
    )
    moved = dataclasses.replace(candidate, digests=candidate.digests[1:] + candidate.digests[:1])
    zero = dataclasses.replace(native, nll_nats=(0.0, *native.nll_nats[1:]))
    for broken in ({"native": native}, arms | {"A": short}, arms | {"A": moved}, arms | {"native": zero}):
        with pytest.raises(InvalidData):
            relative_nll_gate(broken, plan=NLL_PLAN)
    with pytest.raises(InvalidData, match="nll_nats"):
        dataclasses.replace(candidate, nll_nats=(float("nan"), *candidate.nll_nats[1:]))


def test_an_arm_is_not_its_own_control() -> None:
    with pytest.raises(InvalidData, match="both"):
        dataclasses.replace(ANSWERS_PLAN, candidate="native")
    with pytest.raises(InvalidData, match="both"):
        dataclasses.replace(NLL_PLAN, candidate="native")


@pytest.mark.parametrize(
    "changes",
    [
        {"margin": float("nan")},
        {"margin": 0.0},
        {"alpha": 1.0},
        {"planned_n": 0},
        {"native_floor": float("nan")},
    ],
)
def test_a_plan_without_sense_cannot_be_made(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidData):
        dataclasses.replace(ANSWERS_PLAN, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "pass"},
        {"upper": 0.001, "lower": 0.0},
        {"margin": 0.5},
        {"upper": float("nan")},
        {"losses": None},
        {"draws": 5},
        {"lower": 0.9},
    ],
)
def test_a_gate_record_cannot_be_edited_against_its_numbers(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidData):
        dataclasses.replace(gate(18), **changes)  # type: ignore[arg-type]


# --- certificates


def certify(*gates: GateResult) -> Certificate:
    """The certificate over gates whose names are made different by their index."""
    named = [dataclasses.replace(gate, gate=f"gate-{index}") for index, gate in enumerate(gates)]
    return certificate(
        named, objective="kept", control="native", candidate="A", planned_gates=[gate.gate for gate in named]
    )


def test_a_certificate_passes_only_when_every_gate_does() -> None:
    good, unsettled, bad = gate(3), gate(18), gate(129)
    low = gate(0, native=314)
    assert certify(good, good).verdict == "pass"
    assert certify(good, unsettled).verdict == "unestablished"
    assert certify(good, low).verdict == "ineligible"
    failed = certify(good, unsettled, bad, low)
    assert failed.verdict == "fails"
    assert failed.failed_gates == ("gate-2",)
    assert failed.open_gates == ("gate-1", "gate-3")


def test_answers_and_losses_certify_together() -> None:
    gates = [gate(11, 14), relative_nll_gate(documents(shift=0.0, n=64), plan=NLL_PLAN)]
    made = certificate(gates, objective="kept", control="native", candidate="A", planned_gates=["arithmetic", "nll"])
    assert (made.verdict, made.failed_gates, made.open_gates) == ("pass", (), ())


def test_gates_that_are_not_the_planned_ones_certify_nothing() -> None:
    one = gate(3)
    for gates, planned in [
        ([], []),
        ([], ["arithmetic"]),
        ([one], ["arithmetic", "nll"]),
        ([one, one], ["arithmetic"]),
        ([one, one], ["arithmetic", "arithmetic"]),
        ([one], ["retrieval"]),
    ]:
        with pytest.raises(InvalidData):
            certificate(gates, objective="kept", control="native", candidate="A", planned_gates=planned)
    for control, candidate in [("A", "native"), ("native", "S"), ("compact", "A")]:
        with pytest.raises(InvalidData, match="compares"):
            certificate([one], objective="kept", control=control, candidate=candidate, planned_gates=["arithmetic"])


def test_a_certificate_cannot_be_edited_against_its_gates() -> None:
    made = certify(gate(3), gate(18))
    with pytest.raises(InvalidData, match="bug"):
        dataclasses.replace(made, verdict="pass")
    with pytest.raises(InvalidData, match="bug"):
        dataclasses.replace(made, gates=())
