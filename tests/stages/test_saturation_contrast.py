"""Judging of timed cells and sweeps from raw stamps."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kassay import digest
from kassay.kinds.timing import SweepCell, TimingCell
from kassay.kinds.verdict import CertificateRecord
from kassay.record import Record, Writer
from tests import timed

ARMS = ["native", "k16v8-f", "k8v8-f"]
ORDERS = [list(ARMS), ARMS[::-1], [ARMS[1], ARMS[2], ARMS[0]], [ARMS[0], ARMS[2], ARMS[1]], ARMS[::-1], list(ARMS)]
STUDY: dict[str, Any] = {
    "name": "tiny",
    "comparisons": {arm: {"candidate": arm, "control": "native"} for arm in ARMS[1:]},
    "certificates": {"comparisons": ARMS[1:], "objectives": {"kept": ["sums"]}, "route": None},
    "timing": {"family": ARMS[1:], "blocks": len(ORDERS), "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01},
    "sweep": {"alpha": 0.05},
}
SPEEDUP = {"native": 1.0, "k16v8-f": 1.2, "k8v8-f": 0.9}
NS = 1_000_000_000


def cell(block: int, position: int, recipe: str, **changes: Any) -> TimingCell:
    """A cell whose one measured repetition took 1 s over its arm's speed."""
    return timed.cell(
        block=block,
        position=position,
        recipe=recipe,
        **{"ended_ns": [9 * NS, 10 * NS + int(NS / SPEEDUP[recipe])], **changes},
    )


def certified(candidate: str, verdict: str, **changes: Any) -> CertificateRecord:
    """A certificate of one candidate."""
    given: dict[str, Any] = {
        "study": "tiny", "model": "toy", "comparison": candidate, "objective": "kept", "control": "native",
        "candidate": candidate, "gates": ["sums"], "alpha": 0.05, "family_alpha": None, "slots": 1,
        "quality_sha256": "x", "verdict": verdict, "failed_gates": ["sums"] if verdict == "fails" else [],
        "open_gates": ["sums"] if verdict in ("unestablished", "ineligible") else [], "expected": None,
        "as_expected": None,
    }  # fmt: skip
    return CertificateRecord(**{**given, **changes})


def judge(
    run_stage: Callable[..., Any],
    tmp_path: Path,
    cells: list[TimingCell],
    certificate: str = "pass",
    held: list[CertificateRecord] | None = None,
    study: dict[str, Any] = STUDY,
    states: Sequence[Record] | None = None,
) -> Any:
    """Run contrast on these cells, by default with a quiet host around each."""
    (tmp_path / "timing.jsonl").unlink(missing_ok=True)
    writer = Writer(tmp_path / "timing.jsonl")
    for made in (*cells, *(timed.around(cells) if states is None else states)):
        writer.append(made)
    writer.close()
    digest.write_json(tmp_path / "orders.json", {"orders": ORDERS, "guards": {"small": [ARMS[:2]] * 3}})
    held = held or [certified(arm, certificate) for arm in ARMS[1:]]
    digest.write_json(tmp_path / "certificates.json", [asdict(one) for one in held])
    inputs = {
        "timing": tmp_path / "timing.jsonl",
        "orders": tmp_path / "orders.json",
        "certificates": tmp_path / "certificates.json",
    }
    return run_stage("contrast", {"model": "toy", "study": study}, inputs)


def complete() -> list[TimingCell]:
    """All planned cells."""
    return [cell(block, position, arm) for block, order in enumerate(ORDERS) for position, arm in enumerate(order)]


def test_a_planted_gain_is_confirmed_and_a_loss_is_not(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, complete())
    assert ran.code == 0, ran.stderr
    found = {body["candidate"]: body for body in ran.records("contrast")}
    assert found["k16v8-f"]["verdict"] == "gain confirmed" and found["k16v8-f"]["wins"] == 6
    assert abs(found["k16v8-f"]["median"] - 1.2) < 1e-6
    assert found["k8v8-f"]["verdict"] == "no confirmed gain" and found["k8v8-f"]["wins"] == 0


def test_without_its_certificate_nothing_is_a_gain(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, complete(), certificate="unestablished")
    assert {body["verdict"] for body in ran.records("contrast")} == {"descriptive"}


def test_a_certificate_against_one_control_of_two_is_no_qualification(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    pairs = {**STUDY["comparisons"], "second": {"candidate": "k16v8-f", "control": "fa3"}}
    study = {**STUDY, "comparisons": pairs, "certificates": {**STUDY["certificates"], "comparisons": list(pairs)}}
    made = [certified(arm, "pass") for arm in ARMS[1:]]
    for verdict, said in (("pass", "gain confirmed"), ("unestablished", "descriptive"), ("ineligible", "ineligible")):
        second = certified("k16v8-f", verdict, control="fa3", comparison="second")
        ran = judge(run_stage, tmp_path, complete(), held=[*made, second], study=study)
        assert ran.code == 0, ran.outcome.reason
        found = next(body for body in ran.records("contrast") if body["candidate"] == "k16v8-f")
        assert (found["verdict"], found["certificate"]) == (said, verdict)
        if verdict != "pass":
            assert "against fa3 is `" in found["reason"]
        stated = digest.of_file(tmp_path / "certificates.json")
        assert found["certificates_sha256"] == stated
    ran = judge(run_stage, tmp_path, complete(), held=made, study=study)
    assert ran.code == 1 and "certificates for `kept` against ['native']" in ran.outcome.reason


def test_the_objective_is_the_one_that_the_study_froze(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    certificates = {**STUDY["certificates"], "objectives": {"kept": ["sums"], "net": ["net"]}}
    made = [certified(arm, "pass") for arm in ARMS[1:]]
    made += [certified(arm, "unestablished", objective="net") for arm in ARMS[1:]]
    for route, said in (("kept", "gain confirmed"), ("net", "descriptive")):
        study = {**STUDY, "certificates": {**certificates, "route": route}}
        ran = judge(run_stage, tmp_path, complete(), held=made, study=study)
        found = next(body for body in ran.records("contrast") if body["candidate"] == "k16v8-f")
        assert (found["verdict"], found["objective"]) == (said, route)
    ran = judge(run_stage, tmp_path, complete(), held=made, study={**STUDY, "certificates": certificates})
    assert ran.code == 1 and "the study's route is `None`, allowed is one of kept, net" in ran.outcome.reason


def test_certificates_of_another_study_or_with_other_bytes_than_asked_for_are_refused(
    run_stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = [certified(arm, "pass", study="other") for arm in ARMS[1:]]
    ran = judge(run_stage, tmp_path, complete(), held=strange)
    assert ran.code == 1 and "the certificates are of study other, allowed is tiny" in ran.outcome.reason
    monkeypatch.setattr(digest, "of_path", lambda path: "0" * 64)
    ran = judge(run_stage, tmp_path, complete())
    assert ran.code == 1 and "input `certificates`" in ran.outcome.reason and "asked was 0000" in ran.outcome.reason


def test_a_missing_cell_and_another_prompt_are_errors(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    cases = {
        "missing": complete()[1:],
        "different prompts": [cell(0, 0, "native", prompts_sha256="other"), *complete()[1:]],
    }
    for words, cells in cases.items():
        ran = judge(run_stage, tmp_path, cells)
        assert ran.code == 1 and words in ran.outcome.reason, (words, ran.outcome.reason)


def test_a_block_without_its_evidence_is_invalid_by_name_and_not_slow(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    """All six blocks are needed: five leave the verdict invalidated, which is no rejection, and p is 1."""
    ran = judge(run_stage, tmp_path, [cell(0, 0, "native", request_tokens=[[4] * 4, [4, 4, 4, 3]]), *complete()[1:]])
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    blocks = ran.records("block")
    assert [body["valid"] for body in blocks] == [False, True, True, True, True, True]
    (fault,) = blocks[0]["faults"]
    assert (fault["rule"], fault["recipe"], fault["position"]) == ("completion", "native", 0)
    for body in ran.records("contrast"):
        assert (body["verdict"], body["holm_p"], body["valid_blocks"]) == ("invalidated", 1.0, [1, 2, 3, 4, 5])
        assert "5 of 6 blocks count and 6 are needed; a rule invalidates block 0" in body["reason"]
        assert len(body["ratios"]) == 5, "what was measured is told, and decides nothing"


def test_frozen_limits_decide_which_blocks_count(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    """A loud neighbour in one block: with five blocks enough the rest decides, with nobody's limit all six do."""
    cells = complete()
    states = [
        timed.host(one, when, busy_s=5000.0 if when == "before" else 5020.0)
        if one.block == 3
        else timed.host(one, when)
        for one in cells
        for when in ("before", "after")
    ]
    free = ("cached_tokens", "power_capped_percent", "slowdown_percent", "foreign_gpu_processes", "drift_percent")
    limits = dict.fromkeys(free)
    for foreign, needed, said, count in (
        (50, 6, "invalidated", 5),
        (50, 5, "gain confirmed", 5),
        (None, 6, "gain confirmed", 6),
    ):
        conditions = {**limits, "foreign_cpu_percent": foreign, "valid_blocks": needed}
        study = {**STUDY, "timing": {**STUDY["timing"], "family": ARMS[1:2], "conditions": conditions}}
        ran = judge(run_stage, tmp_path, cells, study=study, states=states)
        assert ran.code == 0, ran.stderr
        (body,) = ran.records("contrast")
        assert (body["verdict"], len(body["valid_blocks"])) == (said, count)
        assert all(fault["rule"] == "foreign_cpu_percent" for one in ran.records("block") for fault in one["faults"])


def test_a_guard_is_described_and_decides_nothing(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    """Three blocks of another load, far below what is looked for: the gain stands, and the guard says what it saw."""
    guards = {"small": {"workload": "other", "comparison": ARMS[1], "blocks": 3, "at_least": 0.99}}
    looked = [
        cell(block, place, arm, load="small", batch=1, ended_ns=[9 * NS, (11 + place) * NS])
        for block in range(3)
        for place, arm in enumerate(ARMS[:2])
    ]
    ran = judge(run_stage, tmp_path, [*complete(), *looked], study={**STUDY, "guards": guards})
    assert ran.code == 0, ran.stderr
    (guard,) = ran.records("guard")
    assert (guard["verdict"], guard["median"], guard["seen"], guard["valid_blocks"]) == (
        "descriptive", 0.5, False, [0, 1, 2],
    )  # fmt: skip
    found = {body["candidate"]: body["verdict"] for body in ran.records("contrast")}
    assert found["k16v8-f"] == "gain confirmed" and len(ran.records("block")) == 6 + 3


def test_a_sweep_that_reaches_its_plateau_is_usable(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    writer = Writer(tmp_path / "sweep.jsonl")
    for batch in (1, 2, 4, 8, 16, 32):
        rate_per_s = 1000 * batch / (2 + batch)
        elapsed_ns = int(batch * 10 * NS / rate_per_s)
        writer.append(
            SweepCell(
                model="toy",
                recipe="native",
                batch=batch,
                context_tokens=64,
                output_tokens=10,
                warmups=1,
                elapsed_ns=[9 * elapsed_ns, elapsed_ns, elapsed_ns],
                prompts_sha256="x",
                shared_prefix_tokens=0,
            )
        )
    writer.close()
    ran = run_stage("saturation", {"study": STUDY, "residuals": "log"}, {"sweep": tmp_path / "sweep.jsonl"})
    assert ran.code == 0, ran.stderr
    (fit,) = ran.records("saturation")
    assert fit["state"] == "usable"
    assert abs(fit["ceiling_per_s"] / 1000 - 1) < 0.02 and abs(fit["half_batch"] / 2 - 1) < 0.05


def swept(batch: int, context_tokens: int, rate_per_s: float) -> SweepCell:
    """A cell of that rate, with a slow warm-up."""
    elapsed_ns = round(batch * 10 * NS / rate_per_s)
    return SweepCell(
        model="toy",
        recipe="native",
        batch=batch,
        context_tokens=context_tokens,
        output_tokens=10,
        warmups=1,
        elapsed_ns=[9 * elapsed_ns, elapsed_ns],
        prompts_sha256="x",
        shared_prefix_tokens=0,
    )


@pytest.mark.parametrize("residuals", ["log", "linear"])
def test_laws_are_compared_over_contexts_in_the_declared_residuals(
    run_stage: Callable[..., Any], tmp_path: Path, residuals: str
) -> None:
    """A planted affine step time: it has the least AICc, and f_KV and the returns are those of the plan."""
    writer = Writer(tmp_path / "sweep.jsonl")
    for context_tokens in (64, 512, 4096):
        for rank, batch in enumerate((1, 2, 4, 8, 16, 32)):
            step_s = (8e-3 + 2e-5 * batch + 3e-8 * batch * context_tokens) * (1 + 0.002 * (-1) ** rank)
            writer.append(swept(batch, context_tokens, batch / step_s))
    writer.close()
    ran = run_stage("saturation", {"study": STUDY, "residuals": residuals}, {"sweep": tmp_path / "sweep.jsonl"})
    assert ran.code == 0, ran.stderr
    laws = {body["law"]: body for body in ran.records("saturation_law")}
    assert len(laws) == 4 and [name for name, body in laws.items() if body["best"]] == ["affine step time"]
    assert all(len(body["residuals"]) == 18 and body["residual_space"] == residuals for body in laws.values())
    affine = laws["affine step time"]
    assert abs(affine["parameters"]["per_cached_token_s"] / 3e-8 - 1) < 0.05
    cached = 3e-8 * 32 * 4096
    assert abs(affine["cached_shares"][-1] / (cached / (8e-3 + 2e-5 * 32 + cached)) - 1) < 0.05
    fits = ran.records("saturation")
    assert {body["residual_space"] for body in fits} == {residuals} and len(fits) == 3
    assert all(residuals == "linear" or "ln S" in body["r2_definition"] for body in fits)
    for body in fits:
        assert body["token_time_s"] == [b / r for b, r in zip(body["batches"], body["rates_per_s"], strict=True)]
        assert body["elasticities"] == sorted(body["elasticities"], reverse=True)


def test_one_context_has_fits_and_no_laws(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    writer = Writer(tmp_path / "sweep.jsonl")
    for batch in (1, 2, 4, 8, 16, 32):
        writer.append(swept(batch, 64, 1000 * batch / (300 + batch)))
    writer.close()
    ran = run_stage("saturation", {"study": STUDY, "residuals": "log"}, {"sweep": tmp_path / "sweep.jsonl"})
    (fit,) = ran.records("saturation")
    assert fit["statement"].startswith("at least ") and ran.records("saturation_law") == []
