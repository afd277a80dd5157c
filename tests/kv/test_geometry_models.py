"""Layouts of models: by name, from config.json, against transformers' own caches; what is refused, by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from kassay import paths
from kassay.backend import reference, structure
from kassay.errors import KassayError
from kassay.kv.geometry import Geometry, Layers, kept_pages, layout_of, request_bytes, token_bytes
from kassay.kv.models import model_named, named_models, read_layout
from kassay.kv.recipe import recipe_named

NATIVE = recipe_named("native")
QWEN3 = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 4096,
}
SLIDING = QWEN3 | {"sliding_window": 512}


def read(**facts: Any) -> Any:
    return read_layout(QWEN3 | facts, "config.json")


@pytest.mark.parametrize("name", named_models())
def test_named_models_are_found_by_name_and_by_repository(name):
    model = model_named(name)
    assert model == model_named(model.source)
    assert token_bytes(model.layout, NATIVE) > 0


def test_a_path_is_the_file_or_its_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN3))
    expected = model_named("qwen3-8b").layout
    assert model_named(str(tmp_path)).layout == model_named(str(tmp_path / "config.json")).layout == expected


@pytest.mark.parametrize("name", ["robust", "fragile"])
def test_the_small_models_as_the_backend_sees_them(name):
    folder = paths.ROOT / "data" / "models" / name
    expected = structure.geometry_of(reference.load(folder, 1))
    torch.set_grad_enabled(True)
    assert model_named(str(folder)).layout == layout_of(expected)


def test_heads_differ_in_number_only():
    sizes = {
        heads: token_bytes(layout_of(Geometry(layers=2, kv_heads=heads, head_dim=64)), NATIVE) for heads in (1, 4, 16)
    }
    assert sizes == {1: 512, 4: 2048, 16: 8192}  # MQA, GQA, MHA
    llama = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 16, "hidden_size": 1024}
    assert token_bytes(read_layout(llama, "x"), NATIVE) == sizes[16]
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 16, "n_embd": 1024}
    assert token_bytes(read_layout(gpt2, "x"), NATIVE) == sizes[16]


def test_keys_and_values_of_different_width():
    (layers,) = read(v_head_dim=64).attention
    assert (layers.key_dim, layers.value_dim) == (128, 64)
    assert token_bytes(read(v_head_dim=64), recipe_named("k16v8-f")) == 36 * 8 * (2 * 128 + 64)


@pytest.mark.parametrize(
    ("facts", "full", "windowed"),
    [
        ({"sliding_window": None}, 36, 0),
        ({"sliding_window": 512, "use_sliding_window": False}, 36, 0),
        ({"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 28}, 28, 8),
        ({"sliding_window": 512, "layer_types": ["sliding_attention"] * 30 + ["full_attention"] * 6}, 6, 30),
        ({"sliding_window": 512, "model_type": "mistral"}, 0, 36),
        ({"num_kv_shared_layers": 16}, 20, 0),
    ],
)
def test_windows_and_shared_layers(facts, full, windowed):
    groups = read(**facts).attention
    assert sum(layers.count for layers in groups if layers.window_tokens is None) == full
    assert sum(layers.count for layers in groups if layers.window_tokens == 512) == windowed


def test_layers_of_gemma_4():
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    gemma = {
        "model_type": "gemma4_text",
        "num_hidden_layers": 6,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 1024,
        "layer_types": kinds,
    }
    sliding, full = read_layout({"model_type": "gemma4", "text_config": gemma}, "x").attention
    assert (sliding.count, sliding.kv_heads, sliding.key_dim, sliding.window_tokens) == (5, 8, 256, 1024)
    assert (full.count, full.kv_heads, full.key_dim, full.window_tokens) == (1, 2, 512, None)


@pytest.mark.parametrize("page", [1, 3, 16])
@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 18, 512])
def test_pages_of_a_window_are_the_most_that_any_position_needs(page, window):
    layers = Layers(count=1, kv_heads=1, key_dim=1, value_dim=1, window_tokens=window)
    most = 0
    for tokens in range(1, 3 * window + 2 * page):
        first = max(0, tokens - window)
        most = max(most, (tokens - 1) // page - first // page + 1)
        assert kept_pages(layers, tokens, page) >= most
    assert kept_pages(layers, 10**6, page) == most


def filled(config: Any, tokens: int) -> Any:
    """A cache of transformers after that many tokens of a random model in FP16 operands (states stay FP32)."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        return model(torch.randint(0, 32, (1, tokens)), use_cache=True).past_key_values


def test_a_hybrid_holds_what_the_layout_says():
    from transformers import Qwen3_5TextConfig

    config = Qwen3_5TextConfig(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=16,
    )
    layout = read_layout(config.to_dict(), "x")
    cache = filled(config, 10)
    states = attention = 0
    for layer in cache.layers:
        if getattr(layer, "keys", None) is not None:
            attention += (layer.keys.numel() + layer.values.numel()) * 2
        else:
            assert layer.recurrent_states[0].dtype == torch.float32
            states += layer.conv_states[0].numel() * 2 + layer.recurrent_states[0].nbytes
    assert layout.state_layers == 3
    assert (attention, states) == (request_bytes(layout, NATIVE, 10), layout.state_bytes)


def test_a_window_holds_what_the_layout_says():
    """transformers keeps W - 1 tokens between steps; the token that is being written is the W-th."""
    from transformers import MistralConfig

    config = MistralConfig(
        vocab_size=32,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    layout = read_layout(config.to_dict(), "x")
    for tokens, written in ((5, 0), (20, 1)):
        held = sum((layer.keys.numel() + layer.values.numel()) * 2 for layer in filled(config, tokens).layers)
        per_token = 2 * 2 * 2 * 16 * 2
        assert held + written * per_token == request_bytes(layout, NATIVE, tokens)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, ["deepseek_v3", "compressed latent (MLA", "512"]),
        ({"model_type": "kimi_k25", "text_config": {"kv_lora_rank": 512}}, ["compressed latent"]),
        ({"model_type": "deepseek_v4"}, ["deepseek_v4", "compressed entries"]),
        ({"index_head_dim": 128}, ["index keys", "index_head_dim"]),
        ({"is_encoder_decoder": True}, ["encoder-decoder"]),
        ({"num_key_value_heads": None}, ["`num_key_value_heads` is missing", "hint: save the config in full"]),
        ({"num_key_value_heads": 0}, ["`num_key_value_heads` is 0"]),
        ({"head_dim": None}, ["`head_dim` is missing"]),
        ({"model_type": "llama", "head_dim": None, "hidden_size": 4000, "num_attention_heads": 33}, ["no multiple"]),
        ({"sliding_window": 512}, ["`sliding_window` but not in which layers"]),
        ({"mamba_d_state": 16}, ["mixes kinds of layers (`mamba_d_state`)"]),
        ({"layer_types": ["mamba2"] * 36}, ["type `mamba2`", "full_attention"]),
        ({"layer_types": ["full_attention"]}, ["1 entries for 36 layers"]),
        ({"layer_types": ["linear_attention"] * 36}, ["the state of a `linear_attention` layer of `qwen3`"]),
    ],
)
def test_refused_by_name(facts, words):
    with pytest.raises(KassayError) as caught:
        read(**facts)
    assert not [word for word in words if word not in str(caught.value)]


def test_an_mla_config_without_mla_is_conventional():
    assert read(kv_lora_rank=None) == read(kv_lora_rank=512, use_mla=False) == read()


def test_a_wrong_name_says_the_nearest(tmp_path: Path):
    with pytest.raises(KassayError, match="did you mean `qwen3-8b`"):
        model_named("qwen3-8")
    broken = tmp_path / "config.json"
    for text, words in (("{", "is no JSON"), ("[]", "no JSON object")):
        broken.write_text(text)
        with pytest.raises(KassayError, match=words):
            model_named(str(broken))
