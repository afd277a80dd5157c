"""Memory on vLLM without a GPU: parts of a worker by their storages, pools of equal slots and equal bytes, gates."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kassay import memory_limits, paths
from kassay.backend import vllm_holdings, vllm_memory
from kassay.backend.vllm_geometry import geometry_of
from kassay.errors import KassayError
from kassay.kinds.memory import AllocatorRecord, MemoryGate, MemoryPart, MemoryWindow
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.kv.accounting import accounted
from kassay.kv.audit import FAILS, PASS, equal_slots
from kassay.kv.geometry import Geometry
from kassay.kv.paged import LayerScales
from kassay.kv.recipe import Recipe, recipe_named
from kassay.memory_sources import sources
from kassay.stage import Rejection
from tests.stages.test_model_stages import ROBUST
from tests.vllm.standin import Kept
from tests.vllm.test_arguments import engine

LAYERS, G, D = 4, 2, 64
GEOMETRY = Geometry(layers=LAYERS, kv_heads=G, head_dim=D)
MEMORY: dict[str, Any] = {"budget_mib": 1, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}
ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-f": {"recipe": "k16v8-f", "attention": "plug-in"},
    "k8v8-d": {"recipe": "k8v8-d", "attention": "plug-in"},
}
PARAMS: dict[str, Any] = {
    **MEMORY, "model": "robust", "sixteen": "fp16", "backend": {"engine": "vllm"}, "arms": ARMS, "batch": 3,
    "context_tokens": 40, "output_tokens": 9, "seed": 1, "geometry": "",
}  # fmt: skip


class Tables:
    """The runner's tables by their names."""

    def __init__(self) -> None:
        self.block_tables = [SimpleNamespace(gpu=torch.zeros(8, 32, dtype=torch.int32))]
        self.input_block_tables = [torch.zeros(8, 32, dtype=torch.int32)]
        self.slot_mappings = torch.zeros(1, 64, dtype=torch.int64)


def layer(recipe: Recipe, blocks: int, index: int, native: bool, spare: int = 0) -> SimpleNamespace:
    """An attention layer of the worker; `spare` blocks of its storage are in no page."""
    name = f"model.layers.{index}.self_attn.attn"
    if native:
        pool = torch.zeros(blocks + spare, 2, 16, G, D, dtype=torch.float16)[:blocks]
        return SimpleNamespace(impl=SimpleNamespace(), kv_cache=pool, kv_cache_dtype="auto", layer_name=name,
                               attn_backend=object)  # fmt: skip
    from kassay_vllm.page import PageFormat  # type: ignore[import-not-found]

    made = PageFormat(recipe=recipe, kv_heads=G, head_dim=D)
    pages = torch.zeros(blocks + spare, made.page_bytes, dtype=torch.uint8)[:blocks]
    fixed = {side: 0.25 if recipe.policy == "fixed" and stored == "e4m3fn" else None
             for side, stored in (("keys", recipe.key_format), ("values", recipe.value_format))}  # fmt: skip
    cache = SimpleNamespace(layer=made.layer(pages, LayerScales(**fixed)))
    return SimpleNamespace(impl=SimpleNamespace(cache=cache), kv_cache=pages, layer_name=name, attn_backend=object)


class StandIn:
    """An engine of an arm with a pool of so many bytes, which serves without computing."""

    def __init__(self, arm: str, pool_bytes: int, spare: int = 0) -> None:
        self.recipe = recipe_named(ARMS[arm]["recipe"])
        block = vllm_memory.token_bytes(GEOMETRY, self.recipe) * 16
        self.blocks = pool_bytes // block
        native = ARMS[arm]["attention"] != "plug-in"
        layers = {f"{index}": layer(self.recipe, self.blocks, index, native, spare) for index in range(LAYERS)}
        context = {one.layer_name: one for one in layers.values()}
        model = torch.nn.Linear(8, 8, dtype=torch.float16)
        self.worker = SimpleNamespace(
            vllm_config=SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=context)),
            get_model=lambda: model,
            model_runner=SimpleNamespace(
                block_tables=Tables(), input_buffers=SimpleNamespace(input_ids=torch.zeros(64), most=64)
            ),
        )
        self.attested: VllmEngine = engine(
            arm=arm, blocks=self.blocks, layers=LAYERS, key_format=self.recipe.key_format,
            value_format=self.recipe.value_format,
        )  # fmt: skip

    def attest(self) -> VllmEngine:
        return self.attested

    def serve(self, prompts: Any, tokens: int, **given: Any) -> SimpleNamespace:
        arm, steps = self.attested.arm, list(range(tokens))
        place: dict[str, Any] = {"arm": arm, "repetition": 0, "warmup": False}
        span = VllmSpan(
            **place, requests=len(prompts), started_ns=1, ended_ns=9, prefilled_tokens=sum(map(len, prompts)),
            decode_steps=tokens - 1, full_steps=tokens - 1, mixed_steps=0, preemptions=0, replays={}, fallbacks=None,
            step_ns=steps,
        )  # fmt: skip
        requests = [
            VllmRequest(
                **place, request=index, prompt_tokens=len(row), prompt_sha256="", submitted_ns=1, first_ns=2,
                ended_ns=9, output_tokens=tokens, completion_steps=steps, output_sha256="", finished_by="length",
            )
            for index, row in enumerate(prompts)
        ]  # fmt: skip
        return SimpleNamespace(span=span, requests=requests)


def held(arm: str, blocks: int = 10, **given: Any) -> tuple[dict[str, Any], Kept]:
    """The audit of a stand-in, and the stage with its parts."""
    stage = Kept({**PARAMS, "arm": arm, "pool": vllm_memory.SLOTS})
    block = vllm_memory.token_bytes(GEOMETRY, recipe_named(ARMS[arm]["recipe"])) * 16
    made = StandIn(arm, block * blocks, **given)
    served = made.serve([[1] * 40] * 3, 9)
    return vllm_memory.audit(stage, made, served, GEOMETRY, made.recipe, 1 << 40), stage


def arm_of(told: dict[str, Any]) -> vllm_memory.ArmMemory:
    """What the audits compare."""
    return vllm_memory.ArmMemory(**told["held"])


def test_parts_are_storages_counted_once_under_their_joined_names() -> None:
    told, stage = held("k16v8-f")
    parts = {one.part: one for one in stage.of(MemoryPart)}
    assert set(parts) == {"keys+values", "value_scales", "block_tables", "weights", "staging"}
    pool = parts["keys+values"]
    assert pool.backing_bytes == 10 * 16 * LAYERS * G * D * 3
    assert pool.payload_bytes == pool.backing_bytes * 3 * (40 + 9 - 1) // 160, "the last token of each is not stored"
    assert (parts["value_scales"].payload_bytes, parts["value_scales"].backing_bytes) == (4 * LAYERS, 4 * LAYERS)
    assert parts["weights"].backing_bytes == 2 * (64 + 8) and parts["staging"].backing_bytes == 4 * 64
    assert parts["block_tables"].backing_bytes == 2 * 4 * 256 + 8 * 64
    assert told["held"]["slots"] == 160 and told["parts"]["verdict"] == PASS
    _, stage = held("k8v8-d")
    assert "keys+values+key_scales+value_scales" in {one.part for one in stage.of(MemoryPart)}
    _, stage = held("native")
    assert {one.part for one in stage.of(MemoryPart)} == {"keys+values", "block_tables", "weights", "staging"}


def test_equal_slots_hold_by_the_storages_and_fail_by_name() -> None:
    arms = [arm_of(held(arm)[0]) for arm in ARMS]
    assert [one.verdict for one in equal_slots(arms)] == [PASS] * 3
    assert (arms[1].backing_bytes - 4 * LAYERS) * 4 == arms[0].backing_bytes * 3
    padded = arm_of(held("k16v8-f", spare=1)[0])
    found = equal_slots([arms[0], padded])
    assert found[1].verdict == FAILS and "bytes of backing behind" in found[1].reason
    other = equal_slots([arms[0], arm_of(held("k16v8-f", blocks=11)[0])])
    assert other[1].verdict == FAILS and "176 slots, `native` has 160" in other[1].reason


def test_what_vllm_says_of_its_blocks_must_be_the_storages() -> None:
    stage = Kept({**PARAMS, "arm": "native", "pool": vllm_memory.BUDGET})
    made = StandIn("native", 10 * 16 * 2048)
    made.attested = replace(made.attested, blocks=11)
    told = vllm_memory.audit(stage, made, made.serve([[1]], 2), GEOMETRY, made.recipe, 1 << 40)
    found = equal_slots([arm_of(held("native")[0]), replace(arm_of(told), arm="b", slots=160)])
    assert found[1].verdict == FAILS and "the geometry says" in found[1].reason
    assert not stage.of(MemoryPart), "parts are those of the pool at equal slots"


def test_parts_beyond_the_allocator_s_tensors_count_something_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_holdings, "on_device", list)
    stage = Kept({**PARAMS, "arm": "native", "pool": vllm_memory.SLOTS})
    made = StandIn("native", 10 * 16 * 2048)
    total = 10 * 16 * 2048 + 2 * 72 + 4 * 64 + 2 * 4 * 256 + 8 * 64
    for allocated, verdict in ((total, PASS), (total - 1, FAILS)):
        told = vllm_memory.audit(stage, made, made.serve([[1]], 2), GEOMETRY, made.recipe, allocated)
        assert (told["parts"]["verdict"], told["parts"]["observed"]) == (verdict, total)
        stage.records.clear()


def test_scales_of_vllm_s_own_cache_are_the_cache_s_and_no_weights() -> None:
    scale = torch.nn.Parameter(torch.tensor(0.5), requires_grad=False)
    pool = torch.zeros(6, 2, 16, G, D, dtype=torch.uint8)
    scales = {"_k_scale": scale, "_v_scale": torch.tensor(0.25)}
    own = SimpleNamespace(impl=SimpleNamespace(), kv_cache=pool, kv_cache_dtype="fp8_e4m3", layer_name="l", **scales)
    cache = vllm_holdings.layer_held(own)
    assert [one.part for one in cache] == ["keys", "values", "key_scales", "value_scales"]
    model = torch.nn.Linear(2, 2)
    model.register_parameter("k_scale", scale)
    worker = SimpleNamespace(get_model=lambda: model)
    assert sum(one.storage_bytes for one in vllm_holdings.weights_held(worker, cache)) == 4 * 6
    halves = accounted(cache[:2])
    assert [(one.part, one.payload_bytes, one.storages) for one in halves] == [("keys+values", 6 * 2 * 16 * G * D, 1)]


def test_pools_whose_halves_cannot_be_told_and_other_runners_are_refused() -> None:
    for shape in ((2, 2, 16), (6, 3, 16)):
        with pytest.raises(KassayError, match="whose halves cannot be told"):
            vllm_holdings.halves("l", torch.zeros(shape))
    with pytest.raises(KassayError, match="has no `block_tables`"):
        vllm_holdings.runner_held(SimpleNamespace())


def limits(**given: Any) -> memory_limits.Limits:
    """Limits of Kconfig, or a study's."""
    return memory_limits.limits({**MEMORY, **given})


def test_a_pool_that_did_not_hold_its_requests_is_no_measurement() -> None:
    engine = SimpleNamespace(serve=lambda *_, **__: SimpleNamespace(span=SimpleNamespace(preemptions=2)))
    with pytest.raises(KassayError, match="2 requests were preempted: the pool never held all of them at once"):
        vllm_memory.serve(engine, [], 1)


def test_pools_are_asked_for_in_bytes_of_the_arm_s_own_blocks() -> None:
    sizes = {"request_tokens": 49, "batch": 3}
    asked: Any = {}
    for arm in ARMS:
        recipe = recipe_named(ARMS[arm]["recipe"])
        block = 16 * vllm_memory.token_bytes(GEOMETRY, recipe)
        slots = vllm_memory.pool_bytes(vllm_memory.SLOTS, limits(), GEOMETRY, recipe, **sizes)
        assert slots == block * (1 + 3 * 4), "vLLM's null block, and four blocks of each request"
        asked[arm] = vllm_memory.pool_bytes(vllm_memory.BUDGET, limits(budget_mib=40), GEOMETRY, recipe, **sizes)
        asked[f"{arm} blocks"] = asked[arm] // block
    assert asked["native"] == 40 << 20 and asked["k16v8-f"] == (40 << 20) - 4 * LAYERS
    assert abs(asked["k16v8-f blocks"] - asked["native blocks"] * 4 / 3) <= 1, "4/3 within one block"
    study = {"driver_period_ms": 20, "longest_gap_ms": None, "device_ceiling_gib": None, "reserved_ceiling_gib": None,
             "budget_gib": None, "equal_slots_blocks": 17000, "exempt": []}  # fmt: skip
    blocks = limits(study_memory=study)
    native = recipe_named("native")
    assert vllm_memory.pool_bytes(vllm_memory.SLOTS, blocks, GEOMETRY, native, **sizes) == 17000 * 16 * 2048
    assert vllm_memory.pools(blocks) == ["slots"] and vllm_memory.pools(limits()) == ["slots", "budget"]
    assert vllm_memory.gates("slots", blocks) == ["equal slots", "equal blocks"]
    with pytest.raises(KassayError, match="no budget"):
        vllm_memory.pool_bytes(vllm_memory.BUDGET, blocks, GEOMETRY, native, **sizes)


class Cells:
    """Cells in this process, on stand-ins; the directories are as a stage's own."""

    def __init__(self, folder: Path, spare: dict[str, int]) -> None:
        self.folder, self.spare = folder, spare
        self.ran: list[str] = []

    def __call__(self, stage: Any, name: str, program: str, params: dict[str, Any]) -> Path:
        assert program == "vllm_memory_cell"
        self.ran.append(name)
        directory = self.folder / name
        directory.mkdir()
        own = Kept(params)
        own.directory, own.artifacts = directory, {}
        recipe = recipe_named(params["arms"][params["arm"]]["recipe"])
        sizes = {"request_tokens": 49, "batch": 3}
        pool = vllm_memory.pool_bytes(params["pool"], memory_limits.limits(params), GEOMETRY, recipe, **sizes)
        spare = self.spare.get(name, 0)
        vllm_memory.measure(own, memory_limits.limits(params), GEOMETRY, recipe,
                            lambda: StandIn(params["arm"], pool, spare), [[1] * 40] * 3)  # fmt: skip
        lines = [one.to_json() for one in own.records]
        (directory / "records.jsonl").write_text("\n".join(lines) + "\n")
        return directory


@pytest.mark.parametrize("spare", [{}, {"k8v8-d-budget": 2}])
def test_every_arm_and_pool_in_a_process_of_its_own(
    spare: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = Cells(tmp_path, spare)
    monkeypatch.setattr(vllm_memory, "run_cell", cells)
    monkeypatch.setattr(vllm_memory, "allocated_bytes", lambda device: 1 << 40)
    monkeypatch.setattr("kassay.backend.vllm.require_vllm", lambda: None)
    stage = Kept(PARAMS)
    stage.attest = lambda arm, **effective: None  # type: ignore[method-assign]
    ended = vllm_memory.run(stage, sources(), memory_limits.limits(PARAMS))
    assert cells.ran == [f"{arm}-{pool}" for arm in ARMS for pool in ("slots", "budget")]
    gates = {(one.gate, one.recipe): one for one in stage.of(MemoryGate) if one.gate != "allocated parts"}
    assert len(gates) == 6 and len(stage.of(MemoryGate)) == 9
    wrong = [key for key, one in gates.items() if one.verdict != "pass"]
    phases = {(one.recipe, one.phase) for one in stage.of(MemoryWindow) if one.source == "resident"}
    assert phases == {(arm, phase) for arm in ARMS for phase in ("start", "serve", "budget")}
    assert {one.phase for one in stage.of(AllocatorRecord)} == {"start", "serve", "budget"}
    if spare:
        assert isinstance(ended, Rejection) and wrong == [("equal bytes", "k8v8-d")]
        assert "equal bytes of k8v8-d" in ended.reason
        return
    assert not isinstance(ended, Rejection) and not wrong
    assert ended["k16v8-f capacity at equal bytes"] == round(42 / 32, 4), "(1 MiB - 16) / 24 KiB over 1 MiB / 32 KiB"
    assert ended["native bytes per token"] == 2048
    assert json.loads((tmp_path / "native-slots" / "arm.json").read_bytes())["peaks"] == []


def test_without_vllm_memory_is_unmet(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    from importlib.util import find_spec

    if find_spec("vllm") is not None:
        pytest.skip("vLLM is installed here")
    ran = run_stage("memory", PARAMS, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 4 and ran.outcome.reason == "vLLM is not installed in the stack's environment"


def test_a_geometry_of_a_shipped_model_is_that_of_its_config() -> None:
    assert geometry_of(paths.ROOT / "data" / "models" / "robust") == GEOMETRY
