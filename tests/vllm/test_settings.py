"""What a user may ask of the plug-in, and what is refused by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kassay_vllm import refusals, settings, versions

from kassay.errors import KassayError

ENGINE = refusals.Engine(
    tensor_parallel=1, pipeline_parallel=1, context_parallel=1, prefix_caching=False, chunked_prefill=False,
    gathers=False, speculative=False, kv_transfer=False, kv_cache_dtype="auto", mla=False, fixed_layers=True,
)  # fmt: skip
LAYER = refusals.Layer(
    query_heads=32, kv_heads=8, head_dim=128, scale=128**-0.5, sliding_window=None, soft_cap=None, alibi=False,
    sinks=False, kind="decoder", shares=None,
)  # fmt: skip


def read(**given: object) -> settings.Settings:
    """Settings of an engine of two FP16 layers."""
    return settings.read({"kassay": given}, "fp16", 2)


def test_scales_come_from_a_calibration_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "scales.json"
    held = {"schema": "kassay.scales/2", "sixteen": "fp16", "scales": {"k": [0.1, 0.2], "v": [0.3, 0.4]}}
    path.write_text(json.dumps(held))
    assert read(recipe="k16v8-f", scales=str(path)).value_scales == (0.3, 0.4)
    assert read(recipe="k16v8-f", scales=str(path)).key_scales is None
    assert read(recipe="k8v8-f", scales=str(path)).key_scales == (0.1, 0.2)
    with pytest.raises(KassayError, match="names no file: no scale of 1 replaces it"):
        read(recipe="k16v8-f")
    with pytest.raises(KassayError, match="recipe `k16v8-d` has no fixed scales"):
        read(recipe="k16v8-d", scales=str(path))
    for change, match in (
        ({"schema": "kassay.scales/1"}, "no kassay.scales/2"),
        ({"sixteen": "bf16"}, "scales of bf16 operands"),
        ({"scales": {"v": [0.3]}}, "component `v` has 1 scales, 2 above 0 are needed"),
        ({"scales": {"v": [0.3, 0.0]}}, "2 above 0 are needed"),
    ):
        path.write_text(json.dumps(held | change))
        with pytest.raises(KassayError, match=match):
            read(recipe="k16v8-f", scales=str(path))
    with pytest.raises(KassayError, match="no calibration's scales"):
        read(recipe="k16v8-f", scales=str(tmp_path / "none.json"))


def test_unknown_words_are_named_all_at_once() -> None:
    with pytest.raises(KassayError) as caught:
        read(recipe="k16v4-d", continued="maybe", observe=[2], colour="red")
    for words in ("`kassay.colour` is unknown", "`kassay.recipe` is `k16v4-d`", "`kassay.continued`", "names layer 2"):
        assert words in str(caught.value)
    with pytest.raises(KassayError, match="needs a recipe"):
        settings.read({}, "fp16", 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensor_parallel": 2}, "tensor_parallel_size 2"),
        ({"pipeline_parallel": 2}, "pipeline_parallel_size 2"),
        ({"context_parallel": 2}, "context parallelism of 2"),
        ({"prefix_caching": True}, "enable_prefix_caching"),
        ({"chunked_prefill": True}, "enable_chunked_prefill"),
        ({"speculative": True}, "speculative decoding"),
        ({"kv_transfer": True}, "a KV connector"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype `fp8`"),
        ({"mla": True}, "MLA"),
        ({"fixed_layers": False}, "every layer must keep every token"),
    ],
)
def test_engines_are_refused_by_name(change: dict[str, object], words: str) -> None:
    assert refusals.of_engine(ENGINE) == []
    assert any(words in reason for reason in refusals.of_engine(replace(ENGINE, **change)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_dim": 96, "scale": 96**-0.5}, "head dim 96"),
        ({"query_heads": 33}, "no multiple"),
        ({"scale": 1.0}, "logits scaled by 1"),
        ({"sliding_window": 4096}, "a sliding window of 4096 tokens"),
        ({"soft_cap": 50.0}, "a soft cap of 50"),
        ({"alibi": True}, "ALiBi"),
        ({"sinks": True}, "sinks"),
        ({"kind": "encoder"}, "kind `encoder`"),
        ({"shares": "model.layers.0"}, "reads the cache of `model.layers.0`"),
    ],
)
def test_layers_are_refused_by_name(change: dict[str, object], words: str) -> None:
    assert refusals.of_layer(LAYER) == []
    assert any(words in reason for reason in refusals.of_layer(replace(LAYER, **change)))


def test_another_vllm_is_refused() -> None:
    versions.require_tested("0.25.1")
    with pytest.raises(KassayError, match=r"tested with vLLM 0\.25\.1 and not with 0\.26\.0"):
        versions.require_tested("0.26.0")
