"""Judging of timed cells and sweeps from raw stamps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.kinds.timing import SweepCell, TimingCell
from kassay.record import Writer

ARMS = ["native", "k16v8-f", "k8v8-f"]
ORDERS = [list(ARMS), ARMS[::-1], [ARMS[1], ARMS[2], ARMS[0]], [ARMS[0], ARMS[2], ARMS[1]], ARMS[::-1], list(ARMS)]
STUDY = {
    "comparisons": {arm: {"candidate": arm, "control": "native"} for arm in ARMS[1:]},
    "timing": {"family": ARMS[1:], "blocks": len(ORDERS), "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01},
    "sweep": {"alpha": 0.05},
}
SPEEDUP = {"native": 1.0, "k16v8-f": 1.2, "k8v8-f": 0.9}
NS = 1_000_000_000


def cell(block: int, position: int, recipe: str, *, pid: int | None = None, tokens: int = 16) -> TimingCell:
    """A cell whose one measured repetition took 1 s over its arm's speed."""
    return TimingCell(
        block=block,
        pilot=False,
        position=position,
        model="toy",
        recipe=recipe,
        batch=4,
        context_tokens=8,
        output_tokens=4,
        warmups=1,
        started_ns=[0, 10 * NS],
        ended_ns=[9 * NS, 10 * NS + int(NS / SPEEDUP[recipe])],
        completed_tokens=[16, tokens],
        prompts_sha256="same",
        output_sha256="x",
        load_before=0.0,
        load_after=0.0,
        pid=block * 10 + position if pid is None else pid,
    )


def judge(run_stage: Callable[..., Any], tmp_path: Path, cells: list[TimingCell], certificate: str = "pass") -> Any:
    """Run contrast on these cells."""
    writer = Writer(tmp_path / "timing.jsonl")
    for made in cells:
        writer.append(made)
    writer.close()
    digest.write_json(tmp_path / "orders.json", {"orders": ORDERS})
    certificates = [{"model": "toy", "candidate": arm, "verdict": certificate} for arm in ARMS[1:]]
    digest.write_json(tmp_path / "certificates.json", certificates)
    inputs = {
        "timing": tmp_path / "timing.jsonl",
        "orders": tmp_path / "orders.json",
        "certificates": tmp_path / "certificates.json",
    }
    return run_stage("contrast", {"model": "toy", "study": STUDY}, inputs)


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


def test_a_missing_cell_a_short_cell_and_a_shared_process_are_errors(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    cases = {
        "missing": complete()[1:],
        "did not complete": [cell(0, 0, "native", tokens=15), *complete()[1:]],
        "in one process": [cell(0, 0, "native", pid=1), *complete()[1:]],
    }
    for words, cells in cases.items():
        (tmp_path / "timing.jsonl").unlink(missing_ok=True)
        ran = judge(run_stage, tmp_path, cells)
        assert ran.code == 1 and words in ran.outcome.reason, (words, ran.outcome.reason)


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
            )
        )
    writer.close()
    ran = run_stage("saturation", {"study": STUDY}, {"sweep": tmp_path / "sweep.jsonl"})
    assert ran.code == 0, ran.stderr
    (fit,) = ran.records("saturation")
    assert fit["state"] == "usable"
    assert abs(fit["ceiling_per_s"] / 1000 - 1) < 0.02 and abs(fit["half_batch"] / 2 - 1) < 0.05
