"""Stages on the fused backend, under Triton's interpreter: what they leave, what they refuse, what needs a GPU."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

from kassay import digest, paths
from kassay.record import Writer
from tests import timed

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)

ROBUST = paths.ROOT / "data" / "models" / "robust"
DRAWN = {"engine": "fused", "weights": "drawn", "geometry": "qwen3-0.6b", "layers": 1, "compute": "fp16", "gpus": 0}
SWEEP: dict[str, Any] = {
    "model": "qwen3-0.6b", "sixteen": "fp16", "recipes": ["native", "k16v8-d"], "batches": [1, 64],
    "most_cached_tokens": 40, "contexts_tokens": [16], "output_tokens": 2, "repetitions": 1, "seed": 1,
    "backend": DRAWN,
}  # fmt: skip


MEMORY: dict[str, Any] = {
    "driver_period_ms": 20, "longest_gap_ms": None, "device_ceiling_gib": None, "reserved_ceiling_gib": None,
    "budget_gib": None, "equal_slots_blocks": None, "exempt": [],
}  # fmt: skip
KCONFIG = {"budget_mib": 1, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages are processes of their own."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def test_a_sweep_of_drawn_weights_says_what_it_ran_on(run_stage: Callable[..., Any]) -> None:
    ran = run_stage("sweep", SWEEP, {})
    assert ran.code == 0, ran.stderr
    cells = ran.records("sweep_cell")
    assert [(one["batch"], one["recipe"]) for one in cells] == [(1, "native"), (1, "k16v8-d")], (
        "a batch beyond most_cached_tokens is left out"
    )
    assert all(len(one["elapsed_ns"]) == 2 and min(one["elapsed_ns"]) > 0 for one in cells)
    (backend,) = ran.records("fused_backend")
    assert backend["drawn"] is True and backend["model_sha256"] is None and backend["layers"] == 1
    caches = ran.records("fused_cache")
    assert [(one["recipe"], one["context"], one["batches"]) for one in caches] == [
        ("native", "drawn", [1]), ("k16v8-d", "drawn", [1])
    ]  # fmt: skip
    scales = caches[1]["pages"] * 16 * 8 * 4
    assert 4 * (caches[1]["backing_bytes"] - scales) == 3 * caches[0]["backing_bytes"], (
        "K16/V8, and an FP32 scale a head"
    )
    assert all(cut["splits"] >= 1 and cut["heads"] in (1, 2) for one in caches for cut in one["cuts"])


def test_memory_of_a_decoder_is_weighed_through_prefill_and_decode(run_stage: Callable[..., Any]) -> None:
    study = {**MEMORY, "budget_gib": 0.0004, "equal_slots_blocks": 3}
    own: dict[str, Any] = {
        "recipes": ["native", "k16v8-d"],
        "batch": 2,
        "context_tokens": 16,
        "output_tokens": 2,
        "seed": 1,
    }
    asked = {"model": "qwen3-0.6b", "sixteen": "fp16", **own, **KCONFIG, "study_memory": study, "backend": DRAWN}
    ran = run_stage("memory", {**asked, "study_page_tokens": 16}, {})
    assert ran.code == 0, ran.stderr
    token = 8 * 128 * 2  # bytes of keys in 16 bits
    parts = {(one["recipe"], one["part"]): one for one in ran.records("memory_part")}
    for recipe, values in (("native", token), ("k16v8-d", token // 2)):
        assert parts[recipe, "keys"]["payload_bytes"] == parts[recipe, "keys"]["backing_bytes"] == 32 * token
        assert parts[recipe, "values"]["payload_bytes"] == 32 * values
    assert parts["k16v8-d", "value_scales"]["payload_bytes"] == 32 * 8 * 4
    assert ("native", "weights") in parts and ("k16v8-d", "weights") not in parts, "all arms have the same"
    assert parts["native", "staging"]["payload_bytes"] == 2 * 14 * (16 + 16) * 128 * 2, "queries, keys, values"
    assert {one["part"] for one in parts.values()} >= {"block_tables"}
    phases = {(one["recipe"], one["phase"]) for one in ran.records("memory_window")}
    assert phases == {(name, phase) for name in own["recipes"] for phase in ("prefill", "decode", "blocks", "budget")}
    gates = {(one["gate"], one["recipe"]): one for one in ran.records("memory_gate")}
    assert {one["verdict"] for one in gates.values()} == {"pass"} and len(gates) == 6
    assert gates["equal blocks", "native"]["slots"] == 48
    assert gates["equal bytes", "k16v8-d"]["slots"] > gates["equal bytes", "native"]["slots"]
    assert {one["absent"] for one in ran.records("allocator")} == {"torch has no caching allocator on cpu"}
    ran = run_stage("memory", {**asked, "study_memory": {**study, "reserved_ceiling_gib": 1}}, {})
    assert ran.code == 4 and "a ceiling of the allocator is asked for, and torch sees no GPU" in ran.outcome.reason


def test_a_timing_cell_completes_its_requests_on_our_kernels(run_stage: Callable[..., Any]) -> None:
    place = {"load": "timed", "block": 0, "pilot": False, "position": 0}
    sizes = {"batch": 2, "context_tokens": 9, "output_tokens": 2, "warmups": 0, "repetitions": 1}
    own = {"model": "robust", "sixteen": "fp16", "seed": 1, "backend": {**DRAWN, "weights": "shipped"}}
    ran = run_stage("timing_cell", {**own, **place, **sizes, "recipe": "k16v8-d"}, {"model": ROBUST})
    assert ran.code == 0, ran.stderr
    (cell,) = ran.records("timing_cell")
    assert cell["request_tokens"] == [[2, 2]] and cell["full_steps"] == cell["decode_steps"] == [2]
    assert cell["prefilled_tokens"] == [18], "all prompt tokens of the repetition, and none of the preparation"


PREFIX: dict[str, Any] = {
    "page_tokens": 8, "positions": 16, "positions_at": [[24, 16]],
    "arms": {
        "copied": {"own": "native", "prefix": "native", "copied": True},
        "once": {"own": "native", "prefix": "k16v8-d", "copied": False},
    },
}  # fmt: skip


def test_the_trial_by_hand_has_the_arms_and_limits_of_the_studies() -> None:
    spec = spec_from_file_location("native_stages", paths.ROOT / "scripts" / "native_stages.py")
    assert spec is not None and spec.loader is not None
    by_hand = module_from_spec(spec)
    spec.loader.exec_module(by_hand)
    folder = paths.ROOT / "workflows" / "native" / "study"
    names = ("cartridge-native", "decode-native")
    shared, whole = (yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in names)
    assert shared["fused"]["prefix"] == by_hand.PREFIX
    assert whole["memory"] == by_hand.MEMORY_LIMITS
    assert shared["memory"] == {**by_hand.MEMORY_LIMITS, "equal_slots_blocks": None}


def test_a_sweep_has_the_prefix_within_its_contexts(run_stage: Callable[..., Any]) -> None:
    asked = {**SWEEP, "recipes": ["copied", "once"], "contexts_tokens": [24], "batches": [2], "most_cached_tokens": 48}
    ran = run_stage("sweep", {**asked, "backend": {**DRAWN, "prefix": PREFIX}}, {})
    assert ran.code == 0, ran.stderr
    assert [(one["recipe"], one["context_tokens"]) for one in ran.records("sweep_cell")] == [
        ("copied", 24), ("once", 24)
    ]  # fmt: skip
    caches = {one["recipe"]: one for one in ran.records("fused_cache")}
    assert caches["copied"]["page_tokens"] == 8
    assert (caches["copied"]["pages"], caches["once"]["pages"]) == (2 * 4, 2 * 2), "24 and 3, 8 and 3 tokens"
    ran = run_stage("sweep", {**asked, "contexts_tokens": [25], "backend": {**DRAWN, "prefix": PREFIX}}, {})
    assert ran.code == 1 and "no prefix within a context of 25 tokens" in ran.outcome.reason


def test_complete_requests_begin_behind_a_prefix(run_stage: Callable[..., Any]) -> None:
    place = {"load": "timed", "block": 0, "pilot": False, "position": 0}
    sizes = {"batch": 2, "context_tokens": 5, "output_tokens": 2, "warmups": 0, "repetitions": 1}
    backend = {**DRAWN, "weights": "shipped", "prefix": PREFIX}
    own = {"model": "robust", "sixteen": "fp16", "seed": 1, "backend": backend, **place, **sizes}
    ran = run_stage("timing_cell", {**own, "recipe": "once"}, {"model": ROBUST})
    assert ran.code == 0, ran.stderr
    (cell,) = ran.records("timing_cell")
    assert cell["prefilled_tokens"] == [10], "a prompt's own tokens: the prefix was there before"
    ran = run_stage("timing_cell", {**own, "recipe": "copied"}, {"model": ROBUST})
    assert ran.code == 1 and "a prompt behind a copied prefix is chunked prefill" in ran.outcome.reason


def test_memory_counts_a_shared_prefix_once(run_stage: Callable[..., Any]) -> None:
    study = {**MEMORY, "budget_gib": 0.0008}
    own = {"recipes": ["copied", "once"], "batch": 3, "context_tokens": 24, "output_tokens": 2, "seed": 1}
    asked = {"model": "qwen3-0.6b", "sixteen": "fp16", **own, **KCONFIG, "study_memory": study}
    backend = {**DRAWN, "prefix": PREFIX}
    ran = run_stage("memory", {**asked, "study_page_tokens": 8, "backend": backend}, {})
    assert ran.code == 0, ran.stderr
    token = 8 * 128 * 2  # bytes of keys in 16 bits
    parts = {(one["recipe"], one["part"]): one["payload_bytes"] for one in ran.records("memory_part")}
    assert parts["copied", "keys"] == 3 * 24 * token and parts["once", "keys"] == (16 + 3 * 8) * token
    assert parts["once", "values"] == (16 // 2 + 3 * 8) * token and parts["once", "value_scales"] == 16 * 8 * 4
    gates = {(one["gate"], one["recipe"]): one for one in ran.records("memory_gate")}
    assert {one["verdict"] for one in gates.values()} == {"pass"} and len(gates) == 4
    assert gates["equal slots", "once"]["slots"] == gates["equal slots", "copied"]["slots"] == 72
    assert gates["equal bytes", "once"]["slots"] > 2 * gates["equal bytes", "copied"]["slots"]


def test_the_oracle_holds_a_prefix_and_its_refusals(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    asked = {"model": "robust", "sixteen": "fp16", "recipes": ["native"], "heads": [], "context_tokens": 34, "batch": 2}
    backend = {**DRAWN, "weights": "shipped", "layers": None, "prefix": {**PREFIX, "positions": 32}}
    inputs = {"model": ROBUST, "scales": robust_scales}
    ran = run_stage("oracle", {**asked, "seed": 1, "backend": backend}, inputs)
    assert ran.code == 0, ran.stderr
    cases = [one for one in ran.records("oracle_case") if one["recipe"] == "once"]
    kinds = {one["case"] for one in cases}
    assert {"cartridge-1", "cartridge-4", "cartridge-prompt", "cartridge-frozen", "cartridge-stored"} <= kinds
    caught = {one["mutation"]: one["quantity"] for one in cases if one["mutation"] and one["caught"]}
    assert caught["prefix_inside_a_page"] == "refusal" and caught["normalizers_swapped"] == "output"
    assert {one["recipe"] for one in ran.records("oracle_case")} == {"native", "once"}, "a copy is no route"


def test_stages_that_ask_a_model_refuse_drawn_weights_and_a_missing_gpu_is_unmet(
    run_stage: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales = tmp_path / "scales.json"
    digest.write_json(scales, {})
    asked = {"model": "robust", "sixteen": "fp16", "recipes": ["native"], "endpoints": {}, "backend": DRAWN}
    ran = run_stage("quality", asked, {"model": ROBUST, "scales": scales})
    assert ran.code == 1
    assert "backend `fused` is not for this stage: drawn weights answer nothing" in ran.outcome.reason
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran = run_stage("sweep", {**SWEEP, "backend": {**DRAWN, "gpus": 1}}, {})
    assert ran.code == 4 and "a GPU is asked for, and torch" in ran.outcome.reason


def test_without_certificates_a_comparison_is_descriptive(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    orders = [["native", "k16v8-f"], ["k16v8-f", "native"]]
    writer, cells = Writer(tmp_path / "timing.jsonl"), []
    for block, order in enumerate(orders):
        for position, recipe in enumerate(order):
            one = timed.cell(block=block, position=position, recipe=recipe)
            slower = [one.ended_ns[0], one.ended_ns[1] + timed.NS // 4] if recipe == "native" else one.ended_ns
            cells.append(replace(one, ended_ns=slower))
    for record in (*cells, *timed.around(cells)):
        writer.append(record)
    writer.close()
    digest.write_json(tmp_path / "orders.json", {"orders": orders, "guards": {}})
    timing = {"family": ["k16v8-f"], "blocks": 2, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01}
    pairs = {"k16v8-f": {"candidate": "k16v8-f", "control": "native"}}
    inputs = {"timing": tmp_path / "timing.jsonl", "orders": tmp_path / "orders.json"}
    study = {"name": "tiny", "timing": timing, "comparisons": pairs}
    ran = run_stage("contrast", {"model": "toy", "study": study}, inputs)
    assert ran.code == 0, ran.stderr
    (found,) = ran.records("contrast")
    assert (found["verdict"], found["certificate"], found["certificates_sha256"]) == (
        "descriptive",
        "unestablished",
        "",
    )
    assert found["wins"] == 2 and abs(found["median"] - 1.25) < 1e-6 and "no gain can be confirmed" in found["reason"]
