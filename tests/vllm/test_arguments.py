"""From recipes to engine arguments, what is refused, and what an engine must attest before it counts."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kassay.backend import vllm_arguments, vllm_attest
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of, engine_arguments, require_real
from kassay.errors import KassayError
from kassay.kinds.vllm import VllmEngine

ENGINE = {
    "sixteen": "fp16", "pool_mib": 64, "sequences": 8, "sequence_tokens": 512, "batched_tokens": 2048,
    "graphs": [8, 1], "prefix_caching": False, "chunked_prefill": False, "continued": "refuse", "lengths": "uneven",
    "cuts": None,
}  # fmt: skip


def asked(**given: Any) -> Asked:
    """A cell of the plug-in."""
    base = {
        "model": "m", "dummy": False, "recipe": "k16v8-d", "attention": "plug-in", "scales": None, "observe": (),
        "calibrate": False, "seed": 3,
    }  # fmt: skip
    return cell_of(ENGINE, **base | given)


def test_arguments_of_the_plug_in_and_of_native_backends() -> None:
    ours = engine_arguments(asked(recipe="k16v8-f", scales="s.json", observe=(0,)))
    assert ours["attention_config"] == {"backend": "CUSTOM"} and ours["kv_cache_dtype"] == "auto"
    told = {"recipe": "k16v8-f", "continued": "refuse", "lengths": "uneven", "scales": "s.json", "observe": [0]}
    assert ours["additional_config"] == {"kassay": told}
    assert (ours["enable_prefix_caching"], ours["enable_chunked_prefill"], ours["disable_log_stats"]) == (False,) * 3
    assert ours["kv_cache_memory_bytes"] == 64 << 20 and ours["seed"] == 3 and ours["load_format"] == "auto"
    assert ours["compilation_config"] == {
        "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 8]
    }  # fmt: skip
    native = engine_arguments(asked(recipe="native", attention="flash-attn", dummy=True))
    assert native["attention_config"] == {"backend": "FLASH_ATTN"} and native["load_format"] == "dummy"
    assert "additional_config" not in native
    fp8 = engine_arguments(asked(recipe="k8v8-f", attention="flashinfer"))
    assert fp8["kv_cache_dtype"] == "fp8_e4m3"
    assert fp8["attention_config"]["disable_flashinfer_q_quantization"] is True
    assert engine_arguments(replace(asked(), graphs=()))["enforce_eager"] is True


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"recipe": "k16v8-f", "attention": "flash-attn"}, "it keeps K and V in one format"),
        ({"recipe": "k8v8-f", "attention": "flash-attn"}, "writes BF16 only"),
        ({"recipe": "k16v4-d"}, "allowed are native, k16v8-f"),
        ({"attention": "paged"}, "attention `paged`, allowed are flash-attn"),
        ({"chunked_prefill": True}, "need `continued: gather`"),
        ({"recipe": "native", "attention": "triton", "observe": (0,)}, "observed and folded by the plug-in only"),
        ({"graphs": (9,)}, "a graph of 9 decodes, allowed are 1 to 8"),
        ({"batched_tokens": 500}, "a step of 500 tokens holds no prompt of up to 512"),
        ({"sixteen": "fp32"}, "16-bit format `fp32`"),
        ({"pool_bytes": 0}, "a pool of at least one byte"),
    ],
)
def test_cells_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    assert vllm_arguments.refusals(asked()) == []
    with pytest.raises(KassayError, match="this vLLM cell is refused") as caught:
        engine_arguments(replace(asked(), **change))
    assert words in str(caught.value)


def test_scales_of_drawn_weights_are_refused_where_text_counts() -> None:
    require_real({"model": "robust", "dummy": False})
    with pytest.raises(KassayError, match="calibrated on drawn weights"):
        require_real({"model": "qwen3-8b", "dummy": True})


def engine(**given: Any) -> VllmEngine:
    """An attested engine of the cell above."""
    base: dict[str, Any] = {
        "arm": "a", "vllm": "0.25.1", "torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200",
        "dummy_weights": False, "backend": "PagedBackend", "implementation": "Implementation", "flash_attention": 3,
        "layers": 2, "key_format": "fp16", "value_format": "e4m3fn", "scale_policy": "dynamic", "key_scales": None,
        "value_scales": None, "block_tokens": 16, "blocks": 100, "token_layer_bytes": 392.0, "pool_bytes": 60 << 20,
        "storages": 2, "graph_mode": "FULL_DECODE_ONLY", "graph_batches": [1, 8], "runner": "v2",
        "piecewise_graphs": [], "compilation": "NONE", "compiled_modules": 0, "asynchronous": True,
        "prefix_caching": False, "chunked_prefill": False, "cuts": {}, "events": ["bound 0", "bound 1", "captured 8"],
    }  # fmt: skip
    return VllmEngine(**base | given)


def test_an_arm_gives_every_stage_the_same_of_itself() -> None:
    inputs = {"scales": "s.json"}
    for recipe, attention, scales in (
        ("k16v8-f", "plug-in", "s.json"), ("k16v8-f", "fork", "s.json"), ("k16v8-d", "plug-in", None),
        ("k8v8-f", "flashinfer", None), ("native", "flash-attn", None),
    ):  # fmt: skip
        found = arm_arguments({"recipe": recipe, "attention": attention, "role": "candidate"}, inputs)
        assert found == {"recipe": recipe, "attention": attention, "variables": {}, "scales": scales, "observe": (),
                         "calibrate": False}  # fmt: skip
    told = {"recipe": "k16v8-d", "attention": "plug-in", "variables": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}
    cell = cell_of(ENGINE, model="/m", dummy=False, seed=0, **arm_arguments(told, {}))
    assert cell.variables == (("VLLM_USE_V2_MODEL_RUNNER", "0"),)
    with pytest.raises(KeyError):
        arm_arguments({"recipe": "k16v8-f", "attention": "plug-in"}, {})


def test_an_engine_that_is_not_what_was_asked_for_does_not_count() -> None:
    assert vllm_attest.lacks(asked(), engine()) == []
    for change, words in (
        ({"value_format": "fp16"}, "values are `fp16`, asked for was `e4m3fn`"),
        ({"scale_policy": "fixed"}, "scale policy are `fixed`"),
        ({"backend": "FlashAttentionBackend"}, "backend are `FlashAttentionBackend`"),
        ({"graph_batches": [1]}, "graphs are `[1]`, asked for was `[1, 8]`"),
        ({"compiled_modules": 1}, "compiled modules are `1`, asked for was `0`"),
        ({"storages": 1}, "1 storages stand behind 2 layers"),
        ({"prefix_caching": True}, "prefix caching are `True`"),
        ({"dummy_weights": True}, "dummy weights are `True`"),
        ({"pool_bytes": 65 << 20}, "the pool takes"),
    ):
        assert any(words in said for said in vllm_attest.lacks(asked(), engine(**change))), words


def test_formats_come_from_live_tensors_or_are_an_error() -> None:
    import torch

    def layer(kind: torch.dtype, asked_kind: str) -> SimpleNamespace:
        return SimpleNamespace(impl=SimpleNamespace(), kv_cache=torch.zeros(2, dtype=kind), kv_cache_dtype=asked_kind,
                               layer_name="l")  # fmt: skip

    assert vllm_attest.formats(layer(torch.bfloat16, "auto")) == ("bf16", "bf16", "none")
    assert vllm_attest.formats(layer(torch.uint8, "fp8_e4m3")) == ("e4m3fn", "e4m3fn", "fixed")
    for kind, told in ((torch.uint8, "auto"), (torch.uint8, "fp8_e5m2"), (torch.float16, "fp8_per_token_head")):
        with pytest.raises(KassayError, match="cannot be told"):
            vllm_attest.formats(layer(kind, told))


def test_a_fork_s_pair_of_tensors_is_told_side_by_side() -> None:
    import torch

    def layer(tensors: Any, told: Any, **more: Any) -> SimpleNamespace:
        return SimpleNamespace(impl=SimpleNamespace(), kv_cache=tensors, kv_cache_dtype=told, layer_name="l", **more)

    keys, values = torch.zeros(2, dtype=torch.float16), torch.zeros(2, dtype=torch.uint8)
    pair = layer([(keys, values)], ("auto", "fp8_e4m3"), _k_scale=torch.ones(1), _v_scale=torch.tensor(0.25))
    assert vllm_attest.formats(pair) == ("fp16", "e4m3fn", "fixed")
    assert vllm_attest.scales({0: pair}, "values") == [0.25] and vllm_attest.scales({0: pair}, "keys") is None
    typed = values.view(torch.float8_e4m3fn)
    assert vllm_attest.formats(layer((typed, typed), "fp8_e4m3")) == ("e4m3fn", "e4m3fn", "fixed")
    for tensors, told, words in (
        ([keys, values, values], ("auto", "fp8_e4m3"), "a cache of 3 tensors"),
        (values, ("auto", "fp8_e4m3"), "what its cache of `uint8` holds cannot be told"),
        (keys, ("auto", "fp8_e4m3"), "one tensor of `torch.float16` holds keys and values"),
        ((keys, values), ("auto", "auto"), "what its cache of `uint8` holds cannot be told"),
    ):
        with pytest.raises(KassayError) as caught:
            vllm_attest.formats(layer(tensors, told))
        assert words in str(caught.value)


def test_an_engine_that_cannot_be_asked_is_refused_by_name() -> None:
    from kassay.backend.vllm import reach

    engine = SimpleNamespace(engine_core=SimpleNamespace(scheduler=1))
    assert reach(engine, "engine_core.scheduler") == 1
    with pytest.raises(KassayError, match="has no `engine_core`: its engine cannot be asked what it really uses"):
        reach(engine, "engine_core.engine_core")
