"""What blocks of vLLM arms say, and what is no evidence: stamps and the scheduler must tell the same steps."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kassay.kinds.timing import TimingCell
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.record import Record
from tests.stages.conftest import Ran, runner
from tests.vllm.test_arguments import engine

MS = 1_000_000
BATCH, TOKENS = 3, 10  # one prompt a step, so the first request is two tokens ahead: 7 full steps


@pytest.fixture
def run_ratio(tmp_path: Path) -> Callable[..., Ran]:
    """The stage on these records."""

    def run(records: list[Record]) -> Ran:
        path = tmp_path / "given.jsonl"
        path.write_text("".join(one.to_json() + "\n" for one in records))
        return runner(tmp_path / "ran")("vllm_ratio", {"control": "native"}, {"timing": path})

    return run


def cell(arm: str, block: int, step_ms: int, begin_ms: int) -> list[Record]:
    """One cell: prefill steps of 20 ms, one prompt each, then decode steps of `step_ms`."""
    began = begin_ms * MS
    stamps = [began + 20 * MS * (at + 1) for at in range(BATCH)]
    for _ in range(TOKENS - 1):
        stamps.append(stamps[-1] + step_ms * MS)
    requests = [
        VllmRequest(
            arm=arm, repetition=0, warmup=False, request=at, prompt_tokens=5, prompt_sha256="p", submitted_ns=began,
            first_ns=stamps[at], ended_ns=stamps[at + TOKENS - 1], output_tokens=TOKENS,
            completion_steps=list(range(at, at + TOKENS)), output_sha256="o", finished_by="length",
        )
        for at in range(BATCH)
    ]  # fmt: skip
    span = VllmSpan(
        arm=arm, repetition=0, warmup=False, requests=BATCH, started_ns=began, ended_ns=stamps[-1],
        prefilled_tokens=15, decode_steps=9, full_steps=7, mixed_steps=2, preemptions=0, replays={}, fallbacks=None,
        step_ns=stamps,
    )  # fmt: skip
    timed = TimingCell(
        load="timed", block=block, pilot=False, position=0, model="g", recipe=arm, batch=BATCH, context_tokens=5,
        output_tokens=TOKENS, warmups=0, started_ns=[began], ended_ns=[stamps[-1]],
        request_tokens=[[TOKENS] * BATCH], prefilled_tokens=[15], decode_steps=[9], full_steps=[7], preemptions=[0],
        prompts_sha256="p", prompt_sha256s=["p"] * BATCH, output_sha256s=["o"], pid=block + 1,
    )  # fmt: skip
    return [timed, span, *requests]


def records(count: int = 2, **of_engine: Any) -> list[Record]:
    """Two blocks of a native arm with steps of 12 ms and a candidate with steps of 10 ms."""
    native: dict[str, Any] = {"value_format": "fp16", "scale_policy": "none", "token_layer_bytes": 512.0}
    pools = {
        "native": engine(arm="native", **native, blocks=4096, pool_bytes=4096 * 16 * 512 * 2),
        "k16v8-f": engine(**{"arm": "k16v8-f", "token_layer_bytes": 384.0, "blocks": 5461,
                             "pool_bytes": 5461 * 16 * 384 * 2} | of_engine),
    }  # fmt: skip
    found: list[Record] = list(pools.values())
    for block in range(count):
        found += cell("native", block, 12, 1000 * (2 * block + 1)) + cell("k16v8-f", block, 10, 1000 * (2 * block + 2))
    return found


def test_ratios_are_of_steps_that_served_every_request(run_ratio: Callable[..., Ran]) -> None:
    ran = run_ratio(records())
    assert ran.code == 0, ran.stderr
    steps, complete = (
        next(body for body in ran.records("vllm_ratio") if body["endpoint"].startswith(kind))
        for kind in ("decode", "complete")
    )
    assert steps["ratios"] == pytest.approx([1.2, 1.2]) and steps["wins"] == 2 and steps["sign_p"] == 0.25
    assert complete["median"] == pytest.approx((60 + 9 * 12) / (60 + 9 * 10))
    assert steps["capacity_ratio"] == pytest.approx(4 / 3, abs=1e-3) and steps["capacity_limit"] == 512 / 384
    assert {body["verdict"] for body in ran.records("vllm_ratio")} == {"descriptive"}


def test_a_pool_that_holds_less_than_its_formats_say_is_rejected(run_ratio: Callable[..., Ran]) -> None:
    ran = run_ratio(records(1, pool_bytes=4096 * 16 * 512 * 2, blocks=5000))
    assert ran.code == 3
    assert "holds 5000 blocks in equal bytes, 5461 by its formats" in json.dumps(ran.outcome.reason)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: replace(one, full_steps=6) if isinstance(one, VllmSpan) else one, "7 full steps by stamps, 6 by"),
        (lambda one: None if isinstance(one, VllmRequest) and one.request == 1 else one, "2 of 3 requests have stamps"),
        (lambda one: None if isinstance(one, VllmSpan) and one.arm == "native" else one, "0 repetitions have stamps"),
        (lambda one: None if isinstance(one, TimingCell) and (one.recipe, one.block) == ("native", 1) else one,
         "has blocks [0, 1], `native` has [0]"),
    ],
)  # fmt: skip
def test_evidence_that_lacks_or_differs_is_no_ratio(
    run_ratio: Callable[..., Ran], change: Callable[[Record], Record | None], said: str
) -> None:
    changed = [made for one in records() if (made := change(one)) is not None]
    assert any(isinstance(one, VllmEngine) for one in changed)
    ran = run_ratio(changed)
    assert ran.code not in (0, 3) and said in ran.stderr
