"""Which transformers models a recipe cache covers: any attention over all tokens, beside layers that keep a state."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    DynamicCache,
    FalconConfig,
    FalconH1Config,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    MistralConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3NextConfig,
)

from kassay.backend import reference, structure
from kassay.backend.structure import ModelError
from kassay.errors import KassayError
from kassay.kv.cache import RecipeCache
from kassay.kv.prebias import WAVE_ERROR
from kassay.kv.recipe import NATIVE, recipe_named
from tests.tiny import SIZES, torch_as_it_was  # noqa: F401  an autouse fixture

LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
ATTENTION_LAST = ["linear_attention", "full_attention"]
MODELS: dict[str, PreTrainedConfig] = {
    "mha": GPT2Config(vocab_size=128, n_embd=64, n_layer=2, n_head=2, n_positions=128),
    "mqa": FalconConfig(vocab_size=128, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, multi_query=True),
    "gqa": Qwen3Config(**SIZES),
    "fused-projection": Phi3Config(
        **{**SIZES, "hidden_size": 128, "pad_token_id": 0, "sliding_window": None}, original_max_position_embeddings=512
    ),
    "convolution": Lfm2Config(**{**SIZES, "hidden_size": 128}, layer_types=["conv", "full_attention"]),
    "gated-delta": Qwen3NextConfig(**SIZES, **LINEAR, layer_types=ATTENTION_LAST, mlp_only_layers=[0, 1]),
    "gated-delta-dense": Qwen3_5TextConfig(**SIZES, **LINEAR, layer_types=ATTENTION_LAST),
}


def random_model(config: PreTrainedConfig) -> AutoModelForCausalLM:
    """A model of random weights."""
    torch.manual_seed(3)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float().eval()


def ids(tokens: int, seed: int = 4) -> torch.Tensor:
    return torch.randint(0, 128, (2, tokens), generator=torch.Generator().manual_seed(seed))


class Rounded(DynamicCache):
    """transformers' own cache of keys and values rounded to FP16."""

    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(key_states.half().float(), value_states.half().float(), *args, **kwargs)


@pytest.mark.parametrize("name", MODELS)
def test_native_decodes_what_transformers_own_cache_does(name: str) -> None:
    """Prefill, fill, decode: with the state of other layers carried over, or a hybrid model would go astray."""
    model = random_model(MODELS[name])
    theirs = Rounded(config=model.config)
    model(ids(21), past_key_values=theirs, use_cache=True)
    context = reference.prefill(model, ids(21))
    for _ in range(2):  # a context fills any number of caches
        cache = reference.filled(model, NATIVE, None, context, 3)
        got = [model(ids(1, step), past_key_values=cache, use_cache=True).logits for step in range(3)]
    wanted = [model(ids(1, step), past_key_values=theirs, use_cache=True).logits for step in range(3)]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


@pytest.mark.parametrize("name", MODELS)
def test_recipes_reach_every_model(name: str) -> None:
    model = random_model(MODELS[name])
    context = reference.prefill(model, ids(21))
    geometry = structure.geometry_of(model)
    assert (
        geometry.layers == sum(kind == "full_attention" for kind in structure.kinds_of(model)) == len(context.operands)
    )
    assert context.operands[0][0].shape == (2, geometry.kv_heads, 21, geometry.head_dim)
    logits = {}
    for recipe in (NATIVE, recipe_named("k16v8-d"), recipe_named("k4v4-d")):
        cache = reference.filled(model, recipe, None, context, 1)
        logits[recipe.name] = model(ids(1), past_key_values=cache, use_cache=True).logits
    off = {recipe: float((found - logits["native"]).abs().max()) for recipe, found in logits.items()}
    assert 0 < off["k16v8-d"] < off["k4v4-d"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (MistralConfig(**SIZES, sliding_window=16), r"sliding-window attention \(16 tokens\)"),
        (Gemma3TextConfig(**SIZES, sliding_window=16), "layers of type `sliding_attention` are not supported"),
        (
            FalconH1Config(**SIZES, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8),
            "layers of type `hybrid` are not supported",
        ),
        (DeepseekV3Config(**{**SIZES, "num_hidden_layers": 1}), r"compressed latents \(MLA\)"),
    ],
    ids=["window-everywhere", "window-in-turn", "hybrid-in-a-layer", "latent"],
)
def test_what_no_recipe_covers_is_refused_by_name(config: PreTrainedConfig, said: str) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match=said):
        structure.geometry_of(model)


def biased(**changes: object) -> AutoModelForCausalLM:
    """A Qwen2 with a key bias that dwarfs what the keys say."""
    model = random_model(Qwen2Config(**SIZES, **changes))
    for index, layer in enumerate(model.model.layers):
        generator = torch.Generator().manual_seed(index)
        layer.self_attn.k_proj.bias.copy_(30 * torch.randn(layer.self_attn.k_proj.bias.shape, generator=generator))
    return model


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}  # its waves are 1.14 high


@pytest.mark.parametrize("rope", [{}, {"rope_type": "linear", "factor": 4.0}, YARN], ids=["default", "linear", "yarn"])
def test_a_key_without_its_rotated_bias_is_the_key_of_a_model_without_bias(rope: dict[str, object]) -> None:
    given = {"rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default", **rope}}
    model = biased(**given)
    key_bias = structure.key_bias_of(model)
    context = reference.prefill(model, ids(40), "bf16")
    whole = DynamicCache(config=model.config)
    model(ids(40), past_key_values=whole, use_cache=True)
    model.model.layers[0].self_attn.k_proj.bias.zero_()
    bare = DynamicCache(config=model.config)
    model(ids(40), past_key_values=bare, use_cache=True)
    assert (key_bias.scaling != 1) == (rope is YARN)
    residual = whole.layers[0].keys - key_bias.offset(0)(0, 40, torch.device("cpu"))
    rounded = float(key_bias.bias_LHD[0].abs().max()) * key_bias.scaling * WAVE_ERROR
    torch.testing.assert_close(residual, bare.layers[0].keys, rtol=0, atol=rounded + 2e-4)
    assert rounded < bare.layers[0].keys.abs().max() / 16, "a step of E4M3"
    assert context.operands[0][0].dtype == torch.bfloat16


def test_prebias_keeps_what_a_large_bias_drowns() -> None:
    model = biased()
    context = reference.prefill(model, ids(40))
    logits = {}
    for name in ("native", "k8v16-d", "prebias-k8v16-d", "k16v8-d"):
        cache = reference.filled(model, recipe_named(name), None, context, 6)
        logits[name] = model(ids(6), past_key_values=cache, use_cache=True).logits
    off = {name: float((found - logits["native"]).norm()) for name, found in logits.items()}
    assert off["prebias-k8v16-d"] < off["k8v16-d"] / 4


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Qwen3Config(**SIZES, attention_bias=True), "normalized after their bias"),
        (Qwen3Config(**SIZES), "pre-bias needs a key bias in each of 2 layers, the model has 0"),
        (MODELS["mha"], "pre-bias needs a key bias in each of 2 layers, the model has 0"),
        (
            Qwen2Config(**SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
            "RoPE of type `dynamic` changes with the text, allowed are default, linear, llama3, yarn",
        ),
    ],
    ids=["norm", "none", "fused", "dynamic"],
)
def test_a_bias_that_is_no_summand_is_refused(config: PreTrainedConfig, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        reference.made(random_model(config), recipe_named("prebias-k8v8-d"), None, 8)


def test_single_layers_may_follow_another_recipe() -> None:
    model = random_model(MODELS["gqa"])
    context = reference.prefill(model, ids(21))
    mixed = reference.filled(model, NATIVE, None, context, 0, {1: recipe_named("k8v8-d")})
    dtypes = {(held.layer, held.part): held.tensor.dtype for held in mixed.storages()}
    assert dtypes[0, "keys"] == dtypes[0, "values"] == torch.float16
    assert dtypes[1, "keys"] == dtypes[1, "values"] == torch.uint8
    assert (1, "key_scales") in dtypes and (0, "key_scales") not in dtypes
    with pytest.raises(KassayError, match="keeps codes"):
        mixed.prefilled()


def test_bf16_is_stored_as_bf16() -> None:
    model = random_model(MODELS["gqa"])
    context = reference.prefill(model, ids(21), "bf16")
    cache = reference.filled(model, recipe_named("k16v8-d", "bf16"), None, context, 0)
    held = {storage.part: storage.tensor for storage in cache.storages() if storage.layer == 0}
    assert held["keys"].dtype == torch.bfloat16
    assert torch.equal(held["keys"], context.operands[0][0])


def test_layers_must_match_what_was_described() -> None:
    geometry = structure.geometry_of(random_model(MODELS["gqa"]))
    with pytest.raises(KassayError, match="2 attention layers were described, the model has 1"):
        RecipeCache(NATIVE, geometry, None, 8, kinds=["full_attention", "conv"])
    with pytest.raises(KassayError, match="layers of type `sliding_attention` are neither"):
        RecipeCache(NATIVE, geometry, None, 8, kinds=["full_attention", "sliding_attention"])
