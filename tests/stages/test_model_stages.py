"""The stages that run a model, end to end on a shipped one at small sizes: what they leave, and what they refuse."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import memory_limits, paths
from kassay.errors import ConfigError
from kassay.kinds.timing import HostState, TimingCell
from kassay.record import read_kind
from kassay.validity import Evidence, faults

ROBUST = paths.ROOT / "data" / "models" / "robust"
CALIBRATE = {
    "model": "robust",
    "sixteen": "fp16",
    "documents": 2,
    "check_documents": 2,
    "contexts_tokens": [60, 100],
    "decode_tokens": 8,
    "batch": 2,
    "seed": 1,
}
QUALITY: dict[str, Any] = {
    "model": "robust",
    "sixteen": "fp16",
    "recipes": ["native", "k16v8-f", "k8v8-d"],
    "split": "development",
    "seed": 1,
    "batch": 2,
    "answer_cap_tokens": 32,
    "endpoints": {
        "retrieval": {"measure": "retrieval", "items": 4, "context_tokens": 250},
        "arithmetic": {"measure": "arithmetic", "items": 3, "context_tokens": 128},
        "nll": {"measure": "nll", "documents": 2, "context_tokens": 120, "targets": 8},
    },
}
SPEED = {"model": "robust", "sixteen": "fp16", "batch": 2, "context_tokens": 64, "output_tokens": 4, "seed": 1}
MEMORY = {"budget_mib": 1, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}


def test_quality_leaves_one_record_per_item_and_recipe(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    ran = run_stage("quality", QUALITY, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    answers, losses = ran.records("answer"), ran.records("document_loss")
    assert len(answers) == 3 * (4 + 3) and len(losses) == 3 * 2
    assert all(len(body["loss_nats"]) == 8 and min(body["loss_nats"]) >= 0 for body in losses)
    assert all(body["outcome"] == "correct" for body in answers if body["recipe"] == "native")
    stored = {body["recipe"]: (body["key_dtype"], body["value_dtype"]) for body in ran.records("arm_storage")}
    assert stored["k16v8-f"] == ("torch.float16", "torch.uint8")
    assert stored["native"] == ("torch.float16", "torch.float16")


def test_scales_of_another_model_are_refused(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    ran = run_stage("quality", QUALITY, {"model": ROBUST.parent / "fragile", "scales": robust_scales})
    assert ran.code == 1 and "another model" in ran.outcome.reason


def test_memory_agrees_with_the_geometry(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    params = {**SPEED, "recipes": ["native", "k16v8-d"], "context_tokens": 250, **MEMORY}
    ran = run_stage("memory", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.outcome.reason
    parts = {(body["recipe"], body["part"]): body["payload_bytes"] for body in ran.records("memory_part")}
    tokens = 2 * 250
    assert parts["native", "keys"] == tokens * 4 * 2 * 64 * 2
    assert parts["k16v8-d", "values"] == tokens * 4 * 2 * 64
    assert parts["k16v8-d", "value_scales"] == tokens * 4 * 2 * 4
    assert parts["native", "weights"] > 0 and parts["native", "staging"] == 2 * parts["native", "keys"]
    assert parts["k16v8-d", "scratch"] > 0 and ("native", "scratch") in parts
    assert {body["recipe"] for body in ran.records("memory_sample")} == {"native", "k16v8-d"}
    windows = ran.records("memory_window")
    assert [
        (body["recipe"], body["phase"], body["source"], body["answered"] >= 2, body["gap_ns"] > 0) for body in windows
    ] == [(recipe, phase, "resident", True, True) for recipe in ("native", "k16v8-d") for phase in ("fill", "budget")]
    assert {body["phase"] for body in ran.records("memory_sample")} == {"fill", "budget"}
    assert all("no caching allocator" in body["absent"] for body in ran.records("allocator"))
    gates = {(body["gate"], body["recipe"]): body for body in ran.records("memory_gate")}
    assert {body["verdict"] for body in gates.values()} == {"pass"} and len(gates) == 4
    assert gates["equal slots", "k16v8-d"]["slots"] == gates["equal slots", "native"]["slots"] == tokens
    native, compact = (gates["equal bytes", name] for name in ("native", "k16v8-d"))
    assert native["slots"] == 2**20 // (2048 * 16) * 16 < compact["slots"]
    assert compact["observed"] <= compact["limit"] == 2**20


def test_the_studys_limits_of_memory_decide_alone(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    """A study without ceilings and budget has no equal bytes, and its own bound on the gap."""
    study = {
        "driver_period_ms": 50, "longest_gap_ms": 9000, "device_ceiling_gib": None, "reserved_ceiling_gib": None,
        "budget_gib": None, "equal_slots_blocks": None, "exempt": [],
    }  # fmt: skip
    params = {**SPEED, **MEMORY, "recipes": ["native", "k16v8-d"], "study_memory": study}
    ran = run_stage("memory", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    assert {body["gate"] for body in ran.records("memory_gate")} == {"equal slots"}
    (held,) = ran.records("memory_limits")
    assert (held["origin"], held["period_ns"], held["budget_bytes"]) == ("study", 50_000_000, None)
    assert {body["longest_gap_ns"] for body in ran.records("memory_window")} == {9_000_000_000}
    limits = memory_limits.limits({**MEMORY, "device_ceiling_gib": 76})
    assert (limits.origin, limits.device_ceiling_bytes, limits.reserved_ceiling_bytes) == ("Kconfig", 76 << 30, None)
    for changed, words in (
        (
            {"device_ceiling_gib": 76},
            "MEMORY_DEVICE_CEILING_GIB` is 76, and the study's `memory.device",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            memory_limits.limits({**params, **changed})
    study |= {"device_ceiling_gib": 76, "reserved_ceiling_gib": 68.5, "budget_gib": 40, "equal_slots_blocks": 17000}
    limits = memory_limits.limits({**params, "device_ceiling_gib": 76})
    assert (limits.device_ceiling_bytes, limits.reserved_ceiling_bytes) == (76 << 30, 137 << 29)
    assert (limits.equal_slots_blocks, limits.page_tokens) == (17000, 16)


def test_every_recipe_allocates_the_studys_blocks(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    """Requests, blocks and bytes are three studies; blocks are the study's own, of the size that its engine has."""
    study = {
        "driver_period_ms": 20, "longest_gap_ms": None, "device_ceiling_gib": None, "reserved_ceiling_gib": None,
        "budget_gib": 2**-10, "equal_slots_blocks": 37, "exempt": [],
    }  # fmt: skip
    asked = {"recipes": ["native", "k16v8-f", "k8v8-d"], "study_memory": study, "study_page_tokens": 8}
    ran = run_stage("memory", {**SPEED, **MEMORY, **asked}, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    gates = {(body["gate"], body["recipe"]): body for body in ran.records("memory_gate")}
    assert len(gates) == 9 and {body["verdict"] for body in gates.values()} == {"pass"}
    per_token, fixed = {"native": 2048, "k16v8-f": 1536, "k8v8-d": 1088}, {"native": 0, "k16v8-f": 16, "k8v8-d": 0}
    for recipe, size in per_token.items():
        blocks, filled = gates["equal blocks", recipe], gates["equal bytes", recipe]
        assert blocks["observed"] == blocks["limit"] == blocks["slots"] == 37 * 8
        assert blocks["reason"] == f"296 slots in {296 * size + fixed[recipe]} bytes"
        assert filled["slots"] == (2**20 - fixed[recipe]) // (8 * size) * 8, "whole blocks of the study's size"
        assert gates["equal slots", recipe]["slots"] == 2 * 64
    assert [body["phase"] for body in ran.records("allocator")] == ["fill", "blocks", "budget"] * 3
    (held,) = ran.records("memory_limits")
    assert (held["equal_slots_blocks"], held["page_tokens"], held["budget_bytes"]) == (37, 8, 2**20)


def test_a_ceiling_that_nothing_can_observe_is_unmet(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    params = {**SPEED, **MEMORY, "recipes": ["native", "k16v8-d"], "device_ceiling_gib": 76}
    ran = run_stage("memory", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 4 and "a ceiling of the device is asked for" in ran.outcome.reason


def test_timing_runs_each_cell_in_a_fresh_process(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    params = {
        **SPEED,
        "arms": ["native", "k16v8-f"],
        "orders": "williams",
        "blocks": 1,
        "pilot_blocks": 0,
        "warmups": 1,
        "repetitions": 1,
    }
    ran = run_stage("timing", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    cells = read_kind(ran.directory / paths.RECORDS, TimingCell)
    assert [cell.recipe for cell in cells] == ["native", "k16v8-f"]
    assert len({cell.pid for cell in cells}) == 2
    assert len({cell.prompts_sha256 for cell in cells}) == 1
    for cell in cells:
        assert cell.request_tokens == [[4, 4]] * 2 and cell.decode_steps == cell.full_steps == [4, 4]
        assert cell.prefilled_tokens == [2 * 64] * 2 and cell.preemptions == [0, 0], "counted at the model's own door"
    hosts = read_kind(ran.directory / paths.RECORDS, HostState)
    found = Evidence(cells=tuple(cells), hosts=tuple(hosts), gpus=())
    assert faults(found, None) == [] and len(hosts) == 4
    for before, after in map(found.pair, cells):
        assert after.own_s - before.own_s > 0 and (after.busy_s or 0) >= (before.busy_s or 0)
    cold = dict.fromkeys(("cached_tokens", "power_capped_percent", "slowdown_percent", "foreign_gpu_processes"), 0)
    assert faults(found, {**cold, "foreign_cpu_percent": None, "drift_percent": None}) == []


def test_a_guard_is_control_and_candidate_under_its_own_load() -> None:
    where = importlib.util.spec_from_file_location("timing_stage", paths.program("timing"))
    assert where is not None and where.loader is not None
    timing = importlib.util.module_from_spec(where)
    where.loader.exec_module(timing)
    params = {
        **SPEED,
        "warmups": 1,
        "repetitions": 2,
        "guards": {"few": {"workload": "small", "comparison": "c", "blocks": 3, "at_least": 0.99}},
        "workloads": {"small": {"requests": 1, "input_tokens": 32, "output_tokens": 2}},
        "comparisons": {"c": {"candidate": "k16v8-f", "control": "native"}},
    }
    part = timing.guard_part(params, "few")
    assert part.orders == [["native", "k16v8-f"], ["k16v8-f", "native"], ["native", "k16v8-f"]] and not part.pilot
    assert (part.params["batch"], part.params["context_tokens"], part.params["output_tokens"]) == (1, 32, 2)


def test_sweep_keeps_every_repetition(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    params = {**SPEED, "recipes": ["native"], "largest_batch": 3, "contexts_tokens": [64], "repetitions": 2}
    ran = run_stage("sweep", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    cells = ran.records("sweep_cell")
    assert [cell["batch"] for cell in cells] == [1, 2, 3]
    assert all(cell["shared_prefix_tokens"] < 16 for cell in cells)
    assert all(len(cell["elapsed_ns"]) == 3 and min(cell["elapsed_ns"]) > 0 for cell in cells)


def test_a_corrupted_checkpoint_is_named(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(ROBUST, models / "robust")
    shutil.copy(ROBUST.parent / "digests.json", models)
    weights = models / "robust" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    ran = run_stage("calibrate", CALIBRATE, {"model": models / "robust"})
    assert ran.code == 1 and "model.safetensors is corrupted" in ran.outcome.reason
    weights.unlink()
    ran = run_stage("calibrate", CALIBRATE, {"model": models / "robust"})
    assert ran.code == 1 and "model.safetensors is missing" in ran.outcome.reason
