"""Blocks of forked cells: what counts, what the ratios, the test and the screen say, and which tokens differ."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay.backend import vllm_arms, vllm_blocks, vllm_turns
from kassay.backend.vllm_arguments import refusals
from kassay.backend.vllm_passes import passes
from kassay.errors import KassayError
from kassay.kinds.timing import GpuState, HostState, TimingCell
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.record import Record, read_kind
from kassay.stage import Unmet
from kassay.stats.orders import counterbalanced_orders
from tests import timed
from tests.vllm.test_arguments import engine
from tests.vllm.test_ratio import BATCH, MS, TOKENS, cell

ARMS = ("flash-attn", "k16v8-f")
ENDS = ("before", "after")
STEP_MS = {"flash-attn": 12, "k16v8-f": 10}
NATIVE: dict[str, Any] = {"value_format": "fp16", "scale_policy": "none", "token_layer_bytes": 512.0}
POOLS = {
    "flash-attn": engine(arm="flash-attn", **NATIVE, blocks=4096, pool_bytes=4096 * 16 * 512 * 2),
    "k16v8-f": engine(arm="k16v8-f", token_layer_bytes=384.0, blocks=5461, pool_bytes=5461 * 16 * 384 * 2),
}


def whole_cell(block: int, position: int, arm: str, step_ms: int, begin_ms: int, **changes: Any) -> list[Record]:
    """A cell with all of its evidence: engine, stamps, a quiet host and GPU around it; `changes` of its timing."""
    told, span, *requests = cell(arm, block, step_ms, begin_ms)
    assert isinstance(told, TimingCell)
    whole: dict[str, Any] = {
        "position": position, "decode_steps": [TOKENS], "full_steps": [TOKENS], "pid": 100 * block + position,
        "prompt_sha256s": [f"prompt {row}" for row in range(BATCH)],
    }  # fmt: skip
    told = replace(told, **whole | changes)
    ends = [make(told, when) for make in (timed.host, timed.gpu) for when in ENDS]
    return [POOLS[arm], told, *ends, span, *requests]


def write(session: Path, orders: Any, blocks: range, steps: dict[str, int] = STEP_MS) -> None:
    """A session's cells, on one clock."""
    session.mkdir(parents=True)
    clock_ms = 1000
    for block in blocks:
        for position, arm in enumerate(orders[block]):
            records = whole_cell(block, position, arm, steps[arm], clock_ms)
            save(vllm_blocks.file_of(session, (block, position, arm)), records)
            clock_ms += 1000


def save(path: Path, records: list[Record]) -> None:
    """Records as lines."""
    path.write_text("".join(one.to_json() + "\n" for one in records))


def of(found: dict[str, Any], kind: str) -> dict[str, Any]:
    """The contrast of one endpoint."""
    return next(one for one in found["contrasts"] if one["endpoint"].startswith(kind))


def test_ten_blocks_of_two_hosts_say_their_median_test_and_screen(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 10)
    write(tmp_path / "one", orders, range(0, 5))
    write(tmp_path / "two", orders, range(5, 10))  # its clock began anew: stamps of both are the same
    found = vllm_blocks.said(tmp_path, orders, "flash-attn")
    assert found["blocks"] == list(range(10)) and found["balance"]["position_balanced"]
    decode, complete = of(found, "decode"), of(found, "complete")
    assert decode["ratios"] == pytest.approx([1.2] * 10) and decode["wins"] == 10
    assert decode["p"] == 1 / 1024 and decode["screen_reached"] is True
    assert complete["median"] == pytest.approx((60 + 9 * 12) / (60 + 9 * 10))
    assert {one["verdict"] for one in found["contrasts"]} == {"descriptive"}
    assert found["tokens"]["k16v8-f"] == {"cells": 10, "requests": 3, "same": True, "requests_that_differ": []}
    assert found["capacity"]["k16v8-f"] == pytest.approx(4 / 3)
    assert any("10 of 10 won" in line and "descriptive" in line for line in vllm_blocks.lines(found))


def test_a_slower_arm_does_not_reach_the_screen(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 4)
    write(tmp_path / "one", orders, range(4), {"flash-attn": 10, "k16v8-f": 12})
    found = of(vllm_blocks.said(tmp_path, orders, "flash-attn"), "complete")
    assert found["screen_reached"] is False and found["wins"] == 0 and found["p"] == 1.0


def test_a_block_that_is_not_whole_counts_nowhere_and_too_few_are_invalidated(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 4)
    write(tmp_path / "one", orders, range(3))
    vllm_blocks.file_of(tmp_path / "one", (1, 1, orders[1][1])).unlink()
    found = vllm_blocks.said(tmp_path, orders, "flash-attn")
    assert found["blocks"] == [0, 2]
    assert of(found, "decode")["verdict"] == "invalidated" and "2 of 4" in of(found, "decode")["reason"]


def test_cells_of_no_plan_and_blocks_of_two_hosts_are_refused(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 2)
    with pytest.raises(KassayError, match="no blocks were run here"):
        vllm_blocks.said(tmp_path / "none", orders, "flash-attn")
    write(tmp_path / "one", orders, range(2))
    write(tmp_path / "two", orders, range(1, 2))
    with pytest.raises(KassayError, match="block 1 is in several sessions"):
        vllm_blocks.said(tmp_path, orders, "flash-attn")
    with pytest.raises(KassayError, match="the plan of 2 blocks has no such cell"):
        vllm_blocks.whole(tmp_path / "one", orders[::-1])


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"preemptions": [1]}, "preemption"),
        ({"decode_steps": [TOKENS + 1]}, "schedule"),
        ({"prefilled_tokens": [14]}, "cached_tokens"),
        ({"request_tokens": [[TOKENS] * (BATCH - 1) + [TOKENS - 1]]}, "completion"),
    ],
)
def test_a_block_that_lacks_evidence_or_breaks_a_limit_does_not_count(
    tmp_path: Path, changes: dict[str, Any], rule: str
) -> None:
    orders = counterbalanced_orders(ARMS, 4)
    write(tmp_path / "one", orders, range(4))
    path = vllm_blocks.file_of(tmp_path / "one", (2, 0, orders[2][0]))
    save(path, whole_cell(2, 0, orders[2][0], 10, 5000, **changes))
    found = vllm_blocks.said(tmp_path, orders, "flash-attn")
    assert found["blocks"] == [0, 1, 3] and [(one["block"], one["rule"]) for one in found["faults"]] == [(2, rule)]
    assert of(found, "complete")["verdict"] == "invalidated"
    assert any(line.startswith(f"block 2 does not count: {rule}") for line in vllm_blocks.lines(found))


def test_somebody_else_on_the_gpu_and_conditions_that_lack_do_not_count(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 4)
    write(tmp_path / "one", orders, range(4))
    for block in (0, 3):
        path = vllm_blocks.file_of(tmp_path / "one", (block, 1, orders[block][1]))
        records = whole_cell(block, 1, orders[block][1], 10, 2000 + 2000 * block)
        gpu = next(one for one in records if isinstance(one, GpuState))
        other = replace(gpu, processes=[{"pid": 7, "bytes": 1 << 30, "own": False}])
        save(path, [one for one in [*records, other] if one is not gpu and (block or not isinstance(one, HostState))])
    found = vllm_blocks.said(tmp_path, orders, "flash-attn")
    assert found["blocks"] == [1, 2]
    rules = {(one["block"], one["rule"]) for one in found["faults"]}
    assert rules == {(0, "conditions"), (3, "foreign_gpu_processes")}


def test_sessions_of_other_loads_and_other_engines_are_not_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = counterbalanced_orders(ARMS, 4)
    write(tmp_path / "one", orders, range(2))
    write(tmp_path / "two", orders, range(2, 4))
    vllm_blocks.said(tmp_path, orders, "flash-attn")
    path = vllm_blocks.file_of(tmp_path / "two", (3, 1, orders[3][1]))
    right = path.read_bytes()
    for changes in ({"prompts_sha256": "other"}, {"output_tokens": TOKENS + 1}, {"context_tokens": 6}):
        save(path, whole_cell(3, 1, orders[3][1], 10, 4000, **changes))
        with pytest.raises(KassayError, match=r"another load than in .*one.block-0"):
            vllm_blocks.said(tmp_path, orders, "flash-attn")
    path.write_bytes(right)
    arm = orders[3][1]
    others: list[dict[str, Any]] = [{"device": "another GPU"}, {"blocks": 99}, {"vllm": "0.26"}]
    for changed in others:
        with monkeypatch.context() as patched:
            patched.setitem(POOLS, arm, replace(POOLS[arm], **changed))
            save(path, whole_cell(3, 1, arm, 10, 4000))
        with pytest.raises(KassayError, match=f"`{arm}` has another {next(iter(changed))} than in"):
            vllm_blocks.said(tmp_path, orders, "flash-attn")


def test_a_request_with_other_tokens_in_one_cell_is_named(tmp_path: Path) -> None:
    orders = counterbalanced_orders(ARMS, 2)
    write(tmp_path / "one", orders, range(2))
    path = vllm_blocks.file_of(tmp_path / "one", (1, 0, orders[1][0]))
    *before, last = whole_cell(1, 0, orders[1][0], 10, 3000)
    assert isinstance(last, VllmRequest)
    save(path, [*before, replace(last, output_sha256="other")])
    found = vllm_blocks.said(tmp_path, orders, "flash-attn")["tokens"]
    assert found[orders[1][0]]["requests_that_differ"] == [2] and not found[orders[1][0]]["same"]
    assert found[orders[1][1]]["same"]


class Engine:
    """An engine that serves as test_ratio's cells do."""

    def __init__(self, asked: Any, arm: str) -> None:
        self.asked, self.arm, self.loads = asked, arm, []  # type: ignore[var-annotated]
        self.scheduled = SimpleNamespace(decode_steps=0)

    def attest(self) -> VllmEngine:
        return POOLS[self.arm]

    def serve(self, rows: Any, tokens: int, *, repetition: int, warmup: bool, **_: Any) -> Any:
        self.loads.append([len(row) for row in rows])
        _, span, *requests = cell(self.arm, 0, 10, 1000 * (repetition + 1))
        return SimpleNamespace(span=replace(span, warmup=warmup, repetition=repetition), outputs=[[1], [2], [3]],
                               requests=[replace(one, warmup=warmup) for one in requests])  # fmt: skip


def test_a_cell_keeps_conditions_engine_and_stamps_and_is_named_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Engine] = []

    def start(asked: Any, arm: str) -> Engine:
        made.append(Engine(asked, arm))
        return made[0]

    monkeypatch.setattr(vllm_blocks, "Engine", start)
    gpus = SimpleNamespace(lack="", states=lambda around, when: [])
    monkeypatch.setattr(vllm_blocks.conditions, "Gpus", lambda: gpus)
    load = vllm_blocks.Load(model="g", batch=3, context_tokens=500, output_tokens=10, seed=1)
    place = (4, 1, "k16v8-f")
    vllm_blocks.measure(tmp_path, place, None, load)  # type: ignore[arg-type]
    path = tmp_path / "block-4-1-k16v8-f.jsonl"
    assert list(tmp_path.iterdir()) == [path]
    assert made[0].loads == [[500, 300, 300], [500, 500, 500]]
    timed = read_kind(path, TimingCell)[0]
    assert (timed.block, timed.position, timed.recipe, timed.warmups, timed.pilot) == (4, 1, "k16v8-f", 0, False)
    assert timed.started_ns == [2000 * MS] and len(timed.prompt_sha256s) == 3 == len(set(timed.prompt_sha256s))
    assert (timed.decode_steps, timed.full_steps) == ([10], [10])  # of each request: it had a token in every step
    assert [one.when for one in read_kind(path, HostState)] == ["before", "after"] and not read_kind(path, GpuState)
    assert [one.warmup for one in read_kind(path, VllmSpan)] == [True, False]
    assert len(read_kind(path, VllmRequest)) == 3 and len(read_kind(path, VllmEngine)) == 1
    gpus.lack = "no GPU is visible"
    with pytest.raises(Unmet, match="conditions of the GPU cannot be recorded"):
        vllm_blocks.measure(tmp_path, (5, 0, "k16v8-f"), None, load)  # type: ignore[arg-type]


@pytest.mark.parametrize("arm", [*vllm_arms.OWN, "native", "k16v8-f", "k16v8-d", "k8v8-d"])
def test_every_arm_of_a_trial_is_an_engine_that_is_allowed(tmp_path: Path, arm: str) -> None:
    asked = vllm_arms.large(arm, tmp_path, tmp_path / "s.json", batches=(8, 32), tokens=128, lengths="equal")
    assert refusals(asked) == []
    assert (asked.graphs, asked.sequences, asked.pool_bytes) == ((8, 32), 32, 40 << 30)
    assert (asked.scales is not None) == vllm_arms.needs_scales(arm) == (arm == "k16v8-f")
    assert json.loads(Path(asked.model, "config.json").read_bytes())["num_hidden_layers"] == 36
    needed = 32 * -(-(8192 + 128) // 16) * 16 * 36 * 4096
    assert asked.pool_bytes >= needed
    assert "no_such" not in vllm_arms.OWN
    wrong = vllm_arms.large("no_such", tmp_path, tmp_path, batches=(1,), tokens=2, lengths="equal")
    assert "recipe `no_such` with the plug-in" in refusals(wrong)[0]


def test_passes_are_those_of_the_request_that_waited_most() -> None:
    one, other, third = [record for record in cell("native", 0, 10, 1) if isinstance(record, VllmRequest)]
    assert passes([one, other, third]) == (10, 10)
    waited = replace(other, completion_steps=[1, 2, 3, 4, 5, 6, 7, 8, 9, 15])
    assert passes([one, waited]) == (15, 10)
    two_at_once = replace(third, completion_steps=[2, 3, 3, 4, 5, 6, 7, 8, 9, 10])
    assert passes([one, two_at_once]) == (10, 9)
    assert passes([one, replace(other, completion_steps=[])]) == passes([]) == (0, 0)


def test_a_turn_is_sixteen_steps_after_all_have_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    said: list[bytes] = []
    voice = SimpleNamespace(say=said.append, wait=lambda: None)
    engine_of = Engine(None, "k16v8-f")
    turns = vllm_turns.Turns(engine_of, voice)  # type: ignore[arg-type]
    for step in range(40):
        engine_of.scheduled.decode_steps = max(0, step - 4)  # steps before prefill prompts
        turns.between(step)
    assert said == [b"t"] * 3  # at 6, 22 and 38
    assert [step for step, _ in turns.took_ms()] == [22, 38] and all(ms >= 0 for _, ms in turns.took_ms())
