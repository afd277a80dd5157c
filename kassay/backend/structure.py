"""What a transformers model's layers are, as caches need to know it; what no recipe covers is refused by name."""

from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kv.cache import ATTENTION, STATES
from kassay.kv.geometry import Geometry
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe

STEADY_ROPES = ("default", "linear", "llama3", "yarn")  # whose frequencies do not depend on the length of a text


class ModelError(KassayError):
    """A checkpoint is missing or corrupted, or its geometry is not supported."""


def text_config(model: Any) -> Any:
    """The configuration of the text decoder; of a model with other parts beside it, the nested one."""
    return model.config.get_text_config(decoder=True)


def kinds_of(model: Any) -> tuple[str, ...]:
    """What each layer is: attention over every token, or one of the states that no recipe changes.

    Raises ModelError for windows, chunks, and attention that shares, selects or mixes with a state in one layer.
    """
    config = text_config(model)
    kinds = tuple(getattr(config, "layer_types", None) or (ATTENTION,) * config.num_hidden_layers)
    if others := set(kinds) - {ATTENTION, *STATES}:
        raise ModelError(
            f"layers of type `{'`, `'.join(sorted(others))}` are not supported, only `{ATTENTION}` "
            f"and layers without a cache of tokens ({', '.join(STATES)})"
        )
    window = getattr(config, "sliding_window", None)
    everywhere = getattr(config, "layer_types", None) is None and getattr(config, "use_sliding_window", True)
    if window is not None and everywhere:
        raise ModelError(f"sliding-window attention ({window} tokens) is not supported by the recipe cache")
    if getattr(config, "attention_chunk_size", None) is not None:
        raise ModelError(f"chunked attention ({config.attention_chunk_size} tokens) is not supported")
    if getattr(config, "num_kv_shared_layers", None):
        raise ModelError(f"{config.num_kv_shared_layers} layers share another layer's cache, which is not supported")
    return kinds


def geometry_of(model: Any) -> Geometry:
    """What the model's attention layers store for each token. Raises ModelError for what recipes do not cover."""
    config, kinds = text_config(model), kinds_of(model)
    if getattr(config, "kv_lora_rank", None) is not None:
        raise ModelError("compressed latents (MLA) have no keys and values to store apart: not supported")
    if ATTENTION not in kinds:
        raise ModelError("no layer of the model keeps keys and values")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Geometry(layers=kinds.count(ATTENTION), kv_heads=kv_heads(config), head_dim=head_dim)


def kv_heads(config: Any) -> int:
    """KV heads of a layer, by the names that configurations have for them; as many as query heads if none does."""
    if getattr(config, "multi_query", False) and not getattr(config, "new_decoder_architecture", False):
        return 1
    named = (getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads", "num_attention_heads"))
    return int(next(heads for heads in named if heads is not None))


def ineligible(model: Any, *recipes: Recipe) -> str:
    """Why the model cannot have a cache of these recipes; empty if it can."""
    try:
        geometry_of(model)
        if any(recipe.prebias for recipe in recipes):
            key_bias_of(model)
    except ModelError as error:
        return str(error).splitlines()[0]
    return ""


def key_bias_of(model: Any) -> KeyBias:
    """The bias of the model's key projections and its RoPE.

    Raises ModelError where R(t) b is not what the bias adds to a key: no bias, a norm after it, a fused projection, a
    partial rotation, or frequencies that change with the length of the text.
    """
    geometry, config = geometry_of(model), text_config(model)
    layers = [module for _, module in model.named_modules() if hasattr(module, "k_proj")]
    biases = [layer.k_proj.bias for layer in layers if getattr(layer.k_proj, "bias", None) is not None]
    ropes = [module for _, module in model.named_modules() if hasattr(module, "inv_freq")]
    if len(biases) != geometry.layers:
        raise ModelError(f"pre-bias needs a key bias in each of {geometry.layers} layers, the model has {len(biases)}")
    if any(hasattr(layer, "k_norm") for layer in layers):
        raise ModelError("pre-bias: the model's keys are normalized after their bias, which then is no summand")
    if len(ropes) != 1 or 2 * len(ropes[0].inv_freq) != geometry.head_dim:
        raise ModelError(f"pre-bias needs one RoPE over all {geometry.head_dim} dimensions of a head")
    kind = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if kind not in STEADY_ROPES:
        steady = ", ".join(STEADY_ROPES)
        raise ModelError(f"pre-bias: RoPE of type `{kind}` changes with the text, allowed are {steady}")
    return KeyBias(
        bias_LHD=torch.stack([bias.detach().float().view(geometry.kv_heads, geometry.head_dim) for bias in biases]),
        frequencies=ropes[0].inv_freq.detach().float(),
        scaling=float(getattr(ropes[0], "attention_scaling", 1.0)),
    )
