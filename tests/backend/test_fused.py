"""The fused backend on tiny random models, under Triton's interpreter: transformers' own tokens, cohorts, refusals."""

import json
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

if not find_spec("triton"):
    pytest.skip("the kernels need triton", allow_module_level=True)
asked = os.environ.get("TRITON_INTERPRET")
os.environ["TRITON_INTERPRET"] = "1"  # decided when a kernel is defined, as in tests/kernels/conftest.py
from kassay.backend import fused, fused_cohorts, fused_weights, reference  # noqa: E402
from kassay.backend.fused_geometry import GEOMETRIES, GeometryError, Rope, geometry_of  # noqa: E402
from kassay.errors import KassayError  # noqa: E402
from kassay.kv.paged import LayerScales  # noqa: E402
from kassay.kv.recipe import recipe_named  # noqa: E402

if asked is None:
    del os.environ["TRITON_INTERPRET"]
from tests import tiny  # noqa: E402
from tests.tiny import torch_as_it_was  # noqa: E402, F401  an autouse fixture

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"rope_parameters": LLAMA3, "attention_bias": True}),
    "mistral": (MistralConfig, MistralForCausalLM, {"sliding_window": None}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
}
LOGITS = {"native": 2e-3, "k8v8-d": 1e-2}  # of the largest logit: weights are FP16; an operand may cross a code's edge
LARGE = 20.0  # of a key bias, which dwarfs what keys say
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton asks again at its first launch."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def saved(folder: Path, family: str, **changes: object) -> Path:
    """A checkpoint of two layers with heads that the kernels have."""
    config, model, own = FAMILIES[family]
    return tiny.save(folder, family, config, model, **{"head_dim": 64, **own, **changes})


def decoder_of(directory: Path, recipe: str, *, batch: int = 2, row_tokens: int = 12, steps: int = 4) -> fused.Decoder:
    """A decoder of that checkpoint in FP32, so that nothing but attention rounds to 16 bits."""
    weights = fused_weights.read(directory, torch.float32, CPU)
    plan = fused.Plan(batch=batch, row_tokens=row_tokens, steps=steps, page_tokens=8)
    return fused.Decoder(weights, recipe_named(recipe), plan)


def ids(batch: int, tokens: int) -> torch.Tensor:
    """Token rows."""
    return torch.randint(0, 128, (batch, tokens), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    ("family", "recipe"), [(f, r) for f, r in zip(FAMILIES, ("k8v8-d", "native") * 2, strict=True)]
)
def test_tokens_and_logits_are_those_of_transformers_under_the_same_recipe(
    tmp_path: Path, family: str, recipe: str
) -> None:
    directory, ids_BT, steps = saved(tmp_path, family), ids(2, 8), 2
    model = reference.load(directory, 1)
    context = reference.prefill(model, ids_BT[:, :-1])
    wanted = reference.forced(
        model, reference.filled(model, recipe_named(recipe), None, context, steps), ids_BT[:, -1:], steps
    )
    cache = reference.filled(model, recipe_named(recipe), None, context, 1)
    logits = model(ids_BT[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    decoder = decoder_of(directory, recipe)
    decoder.admit(ids_BT, steps)
    assert (decoder.logits(2) - logits).abs().max() < LOGITS[recipe] * logits.abs().max()
    decoder.run(steps)
    assert decoder.collect().T.tolist() == wanted.tolist()


@pytest.mark.parametrize(("family", "recipe"), [("qwen2", "prebias-k8v8-d"), ("llama", "prebias-k8v16-d")])
def test_pre_biased_keys_are_stored_and_read_as_the_reference_does(tmp_path: Path, family: str, recipe: str) -> None:
    directory, ids_BT, steps = saved(tmp_path, family, key_bias=LARGE), ids(2, 8), 2
    model = reference.load(directory, 1)
    context = reference.prefill(model, ids_BT[:, :-1])
    logits = {}
    for name in (recipe, recipe.removeprefix("prebias-"), "native"):
        cache = reference.filled(model, recipe_named(name), None, context, 1)
        logits[name] = model(ids_BT[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    wanted = reference.forced(
        model, reference.filled(model, recipe_named(recipe), None, context, steps), ids_BT[:, -1:], steps
    )
    decoder = decoder_of(directory, recipe)
    decoder.admit(ids_BT, steps)
    off = (decoder.logits(2) - logits[recipe]).abs().max()
    assert off < LOGITS["k8v8-d"] * logits[recipe].abs().max()
    assert off < (logits[recipe.removeprefix("prebias-")] - logits["native"]).abs().max() / 4, "what the bias drowns"
    decoder.run(steps)
    assert decoder.collect().T.tolist() == wanted.tolist()
    positions = torch.arange(7)
    for pool, (k_BGTD, _) in zip(decoder.cache.pools, context.operands, strict=True):
        offset = pool.keys.rule.offset
        assert offset is not None
        k_BGTX, _ = pool.gather(decoder.cache.table_BX, torch.tensor([7, 7]), torch.float32)
        residual = (k_BGTD.float() - offset.at(positions)[None]).abs().amax()
        assert (k_BGTX - k_BGTD).abs().max() < residual / 14, "half a step of E4M3, and no step of the biased key"


def test_requests_in_cohorts_of_mixed_ages_get_what_they_get_alone(tmp_path: Path) -> None:
    directory = saved(tmp_path, "qwen3")
    requests = [
        fused_cohorts.Request(prompt=tuple(ids(1, tokens)[0].tolist()), output_tokens=output)
        for tokens, output in ((3, 1), (3, 3), (5, 2))
    ]
    decoder = decoder_of(directory, "k16v8-d")
    together = fused_cohorts.serve(decoder, requests)
    assert [len(row) for row in together] == [1, 3, 2] and decoder.rows == 0
    assert sorted(decoder.cache.free) == list(range(decoder.cache.shape.pages))
    alone = decoder_of(directory, "k16v8-d", batch=1)
    assert together == [fused_cohorts.serve(alone, [one])[0] for one in requests]


def test_a_row_of_padding_stores_nothing(tmp_path: Path) -> None:
    decoder = decoder_of(saved(tmp_path, "qwen2"), "native", batch=3)
    decoder.admit(ids(1, 4), 2)
    before = [layer.keys.data_PSHW.clone() for layer in decoder.cache.layers]
    decoder.advance(3)
    page, place = decoder.cache.held[0][0], 3
    for layer, was in zip(decoder.cache.layers, before, strict=True):
        changed = (layer.keys.data_PSHW != was).any(-1).any(-1).nonzero().tolist()
        assert changed == [[page, place]]


def test_what_is_not_covered_is_refused_by_name(tmp_path: Path) -> None:
    directory = saved(tmp_path, "qwen3")
    path = directory / "config.json"
    config = json.loads(path.read_text())
    odd = {
        "model_type": "gemma3", "hidden_act": "gelu", "mlp_bias": True, "layer_types": ["sliding_attention"] * 2,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4},
    }  # fmt: skip
    path.write_text(json.dumps(config | odd))
    with pytest.raises(GeometryError, match="model type `gemma3`, allowed are qwen2, qwen3, llama, mistral"):
        geometry_of(directory)
    path.write_text(json.dumps(config | odd | {"model_type": "qwen3", "sliding_window": 16}))
    with pytest.raises(GeometryError, match=r"`gelu`.*a bias in the feed.*window \(16|sliding.*16 tokens.*`yarn`"):
        geometry_of(directory)
    path.write_text(json.dumps(config))
    weights = load_file(directory / "model.safetensors")
    save_file({"extra": torch.zeros(1), **weights}, directory / "model.safetensors")
    with pytest.raises(GeometryError, match="extra is not known"):
        fused_weights.read(directory, torch.float32, CPU)
    save_file({**weights, "model.norm.weight": torch.zeros(3)}, directory / "model.safetensors")
    with pytest.raises(GeometryError, match=r"model.norm.weight is \(3,\), wanted is \(32,\)"):
        fused_weights.read(directory, torch.float32, CPU)


def test_a_decoder_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(KassayError, match="head dim 32"):
        decoder_of(saved(tmp_path / "narrow", "qwen3", head_dim=32), "native")
    directory = saved(tmp_path, "qwen3")
    weights = fused_weights.read(directory, torch.float32, CPU)
    plan = fused.Plan(batch=1, row_tokens=20, steps=2)
    with pytest.raises(KassayError, match="needs a scale of component `k` for layer 0"):
        fused.Decoder(weights, recipe_named("k8v8-f"), plan)
    with pytest.raises(KassayError, match="only drawn weights may"):
        fused.Decoder(weights, recipe_named("native"), replace(plan, shared=1))
    decoder = fused.Decoder(weights, recipe_named("native"), plan)
    with pytest.raises(KassayError, match="goes with drawn weights only"):
        decoder.assume(1, 4, 2, torch.zeros(1))
    with pytest.raises(KassayError, match="2 are the fewest"):
        decoder.admit(ids(1, 1), 1)
    with pytest.raises(KassayError, match="the table's rows hold 20"):
        decoder.admit(ids(1, 20), 2)
    decoder.admit(ids(1, 4), 2)
    with pytest.raises(KassayError, match="this decoder was made for 2"):
        decoder.run(3)


def test_drawn_weights_decode_and_fold_their_own_scales() -> None:
    GEOMETRIES["test"] = replace(GEOMETRIES["qwen3-0.6b"], hidden=64, intermediate=64, query_heads=2, kv_heads=1,
                                 head_dim=64, vocabulary=64, layers=2)  # fmt: skip
    try:
        weights = fused_weights.drawn("test", torch.float16, CPU)
    finally:
        del GEOMETRIES["test"]
    assert weights.drawn and weights.head is weights.embedding and len(weights.tensors()) == 2 + 2 * 8
    small, fused.FOLDED_TOKENS = fused.FOLDED_TOKENS, 12
    try:
        scales = fused.folded_scales(weights)
    finally:
        fused.FOLDED_TOKENS = small
    assert [len(scales[name]) for name in "kv"] == [2, 2] and all(0 < one < 1 for one in scales["k"] + scales["v"])
    plan = fused.Plan(batch=2, row_tokens=20, steps=2, shared=1)
    decoder = fused.Decoder(weights, recipe_named("k16v8-f"), plan, scales)
    assert decoder.cache.shared and decoder.cache.layers[0] is decoder.cache.layers[1]
    assert decoder.cache.layers[0].values.rule.scale == LayerScales(values=scales["v"][0]).values
    decoder.cache.draw(decoder.host)
    decoder.assume(2, 16, 2, torch.tensor([1, 2]))
    decoder.mark()
    decoder.run(1)
    once = decoder.collect()
    decoder.rewind()
    decoder.run(1)
    assert torch.equal(once, decoder.collect())


def test_llama3_frequencies_are_those_of_transformers() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(hidden_size=256, num_attention_heads=4, head_dim=64, rope_parameters=dict(LLAMA3))
    wanted, scaling = ROPE_INIT_FUNCTIONS["llama3"](config, CPU)
    rope = Rope(kind="llama3", theta=1e4, factor=4.0, low_factor=1.0, high_factor=4.0, original_tokens=64)
    assert scaling == 1.0
    torch.testing.assert_close(torch.tensor(rope.frequencies(64)), wanted, rtol=1e-5, atol=0)
