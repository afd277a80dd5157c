"""The weights of a dense decoder: read from a checkpoint's safetensors, or drawn where only speed is asked for.

Axes: W inputs, V vocabulary, D head dim; a product's weights are outputs x inputs, as torch's linear takes them.

Projections that read the same rows are one matrix: queries, keys and values; gate and up. Drawn weights are from one
seeded normal distribution (norms are 1), which keeps activations finite through any depth; they answer nothing, and
`drawn` says so to whoever would ask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from kassay.backend.fused_geometry import Dense, GeometryError, geometry_named, geometry_of
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe

DRAWN_SIZE = 0.02  # standard deviation of drawn weights: transformers' own initializer_range
SHOWN = 4  # names of an error

Take = Callable[[str, tuple[int, ...]], torch.Tensor]  # name and shape -> the tensor


@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """One layer; None where the geometry has no such tensor."""

    first_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    head_norms: tuple[torch.Tensor, torch.Tensor] | None  # of queries and of keys
    out: torch.Tensor
    out_bias: torch.Tensor | None
    second_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A whole decoder."""

    geometry: Dense
    embedding: torch.Tensor  # V x hidden
    layers: tuple[LayerWeights, ...]
    last_norm: torch.Tensor
    head: torch.Tensor  # V x hidden; the embedding itself where they are tied
    drawn: bool  # from a seed: nothing that it answers is a model's answer

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor, tied ones once."""
        found = [self.embedding, self.last_norm, self.head]
        for layer in self.layers:
            for held in vars(layer).values():
                found += held if isinstance(held, tuple) else [held]
        return list({id(one): one for one in found if one is not None}.values())


def read(directory: Path, compute: torch.dtype, device: torch.device) -> Weights:
    """The weights of a checkpoint's folder. Raises GeometryError for what is missing, left over or of another shape."""
    geometry = geometry_of(directory)
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise GeometryError(f"{directory} has no safetensors: other formats of weights are not read")
    found: dict[str, torch.Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
        except SafetensorError as error:
            raise GeometryError(f"{path} cannot be read: {error}") from error
    missing: list[str] = []

    def take(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = found.pop(name, None)
        if tensor is None or tuple(tensor.shape) != shape:
            missing.append(f"{name} is {'absent' if tensor is None else tuple(tensor.shape)}, wanted is {shape}")
            return torch.empty(0)
        return tensor.to(device=device, dtype=compute)

    if geometry.tied:
        found.pop("lm_head.weight", None)
    made = assembled(geometry, take, drawn=False)
    missing += [f"{name} is not known" for name in found if not name.endswith("inv_freq")]
    if missing:
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise GeometryError(f"{directory.name}: {'; '.join(missing[:SHOWN])}{more}")
    return made


def drawn(
    name: str, compute: torch.dtype, device: torch.device, *, layers: int | None = None, seed: int = 0
) -> Weights:
    """Weights of a geometry by name, or of its first `layers`, from a seed."""
    geometry = geometry_named(name)
    if layers is not None:
        geometry = Dense(**{**vars(geometry), "layers": layers})
    generator = torch.Generator(device).manual_seed(seed)

    def take(named: str, shape: tuple[int, ...]) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=compute, device=device)
        return tensor.fill_(1.0) if "norm" in named else tensor.normal_(0.0, DRAWN_SIZE, generator=generator)

    return assembled(geometry, take, drawn=True)


def assembled(geometry: Dense, take: Take, *, drawn: bool) -> Weights:
    """The decoder of tensors by transformers' names."""
    embedding = take("model.embed_tokens.weight", (geometry.vocabulary, geometry.hidden))
    layers = tuple(layer_of(geometry, take, f"model.layers.{index}.") for index in range(geometry.layers))
    last_norm = take("model.norm.weight", (geometry.hidden,))
    head = embedding if geometry.tied else take("lm_head.weight", (geometry.vocabulary, geometry.hidden))
    return Weights(
        geometry=geometry, embedding=embedding, layers=layers, last_norm=last_norm, head=head, drawn=drawn
    )  # fmt: skip


def layer_of(geometry: Dense, take: Take, prefix: str) -> LayerWeights:
    """One layer; what transformers keeps apart is joined."""
    attention, width, head_dim = f"{prefix}self_attn.", geometry.hidden, geometry.head_dim
    queries, keys = geometry.query_heads * head_dim, geometry.kv_heads * head_dim
    parts = {"q": queries, "k": keys, "v": keys}
    qkv = torch.cat([take(f"{attention}{part}_proj.weight", (size, width)) for part, size in parts.items()])
    bias = None
    if geometry.qkv_bias:
        bias = torch.cat([take(f"{attention}{part}_proj.bias", (size,)) for part, size in parts.items()])
    norms = None
    if geometry.head_norms:
        norms = (take(f"{attention}q_norm.weight", (head_dim,)), take(f"{attention}k_norm.weight", (head_dim,)))
    wide = (geometry.intermediate, width)
    return LayerWeights(
        first_norm=take(f"{prefix}input_layernorm.weight", (width,)),
        qkv=qkv,
        qkv_bias=bias,
        head_norms=norms,
        out=take(f"{attention}o_proj.weight", (width, queries)),
        out_bias=take(f"{attention}o_proj.bias", (width,)) if geometry.out_bias else None,
        second_norm=take(f"{prefix}post_attention_layernorm.weight", (width,)),
        gate_up=torch.cat([take(f"{prefix}mlp.gate_proj.weight", wide), take(f"{prefix}mlp.up_proj.weight", wide)]),
        down=take(f"{prefix}mlp.down_proj.weight", (width, geometry.intermediate)),
    )


def key_bias_of(weights: Weights, recipe: Recipe) -> KeyBias | None:
    """What a recipe takes off keys: their projections' bias and what turns it; None of recipes that are not pre-biased.

    Raises GeometryError for a decoder whose keys have no bias, or a norm after it.
    """
    if not recipe.prebias:
        return None
    geometry, biases = weights.geometry, [layer.qkv_bias for layer in weights.layers]
    if geometry.head_norms:
        raise GeometryError("pre-bias: the model's keys are normalized after their bias, which then is no summand")
    if any(bias is None for bias in biases):
        raise GeometryError(f"pre-bias needs a key bias in each layer, and this {geometry.family} has none")
    heads = (geometry.kv_heads, geometry.head_dim)
    sizes = (geometry.query_heads * geometry.head_dim, geometry.kv_heads * geometry.head_dim)
    keys = [bias[sizes[0] : sum(sizes)].float().view(heads) for bias in biases if bias is not None]
    return KeyBias(bias_LHD=torch.stack(keys), frequencies=frequencies_of(geometry, keys[0].device), scaling=1.0)


def frequencies_of(geometry: Dense, device: torch.device) -> torch.Tensor:
    """Radians a token of each pair, FP32."""
    return torch.tensor(geometry.rope.frequencies(geometry.head_dim), dtype=torch.float32, device=device)
