"""A cache for transformers' own models that keeps keys and values as a recipe says and never requantizes.

Axes: B sequences, H KV heads, T tokens, D head dim.

The writer's operand is the 16-bit tensor: keys after norm and RoPE, and values. An 8- or 4-bit component persists
codes and FP32 scales (kassay.kv.plane); a 16-bit one persists the operand. `update` returns the reconstruction of
the layer in the model's dtype; only one layer's reconstruction exists at a time. Attention of *every* token reads
the reconstruction: a prompt that must be attended fresh is prefilled with the native recipe and its operands are put
in by `fill`, which is what a serving engine does with whole fresh prompts.

Layers are counted by attention: a layer that keeps a state instead of tokens (convolution, linear attention) is
transformers' own, whatever the recipe, and `fill` copies its state.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, Cache, CacheLayerMixin

from kassay.errors import KassayError
from kassay.kv.geometry import Geometry
from kassay.kv.plane import DTYPES, Plane, Rule, Storage
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe

Operands = list[tuple[torch.Tensor, torch.Tensor]]  # per attention layer: k_BHTD, v_BHTD, 16 bit
Scales = dict[str, list[float]]  # component `k`, `v` or `k_residual` -> FP32 scale per attention layer

ATTENTION = "full_attention"
STATES = ("linear_attention", "conv", "moe", "mlp")  # transformers' kinds of layers that keep no token


@dataclass(frozen=True, kw_only=True)
class Prefilled:
    """What a native prefill leaves: what every recipe's writer is given, and the states of other layers."""

    operands: Operands
    states: dict[int, Any] = field(default_factory=dict)  # layer of the model -> transformers' layer

    @property
    def tokens(self) -> int:
        """Tokens of each sequence."""
        return self.operands[0][0].shape[2]


class RecipeLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers' own __init_subclass__
    """One attention layer of a RecipeCache, as transformers asks for it."""

    is_sliding = False
    is_compileable = False

    def __init__(self, keys: Plane, values: Plane) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.key_plane = keys
        self.value_plane = values
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing: the planes allocate when they first store."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k_BHTD and v_BHTD of the new tokens; the reconstruction of all tokens of this layer."""
        self.key_plane.append(key_states)
        self.value_plane.append(value_states)
        return self.key_plane.rebuilt(key_states.dtype), self.value_plane.rebuilt(value_states.dtype)

    def get_seq_length(self) -> int:
        """Stored tokens."""
        return self.key_plane.tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of `query_length` new tokens will see."""
        return self.key_plane.tokens + query_length, 0

    def get_max_length(self) -> int:
        """Capacity in tokens."""
        return self.key_plane.capacity

    def get_max_cache_shape(self) -> int:
        """Capacity in tokens, by its older name."""
        return self.key_plane.capacity


class RecipeCache(Cache):
    """A cache that stores what `recipe` says for a model of `geometry`.

    `layers`: attention layers that follow another recipe, for probes. `kinds`: what each layer of the model is, all
    attention if left out. `key_bias`: needed by pre-bias recipes.
    """

    def __init__(
        self,
        recipe: Recipe,
        geometry: Geometry,
        scales: Scales | None,
        capacity_tokens: int,
        *,
        layers: Mapping[int, Recipe] | None = None,
        kinds: Sequence[str] | None = None,
        key_bias: KeyBias | None = None,
    ) -> None:
        self.recipe = recipe
        self.by_layer = [(layers or {}).get(layer, recipe) for layer in range(geometry.layers)]
        for each in {each.name: each for each in self.by_layer}.values():
            check_scales(each, geometry, scales)
        self.stored = [
            RecipeLayer(
                plane(each, "key", scales, layer, capacity_tokens, key_bias),
                plane(each, "value", scales, layer, capacity_tokens, None),
            )
            for layer, each in enumerate(self.by_layer)
        ]
        super().__init__(layers=arranged(self.stored, kinds))

    def fill(self, context: Prefilled) -> None:
        """Store the operands of a native prefill, layer by layer, and copies of the other layers' states."""
        for layer, (k_BHTD, v_BHTD) in zip(self.stored, context.operands, strict=True):
            layer.key_plane.append(k_BHTD)
            layer.value_plane.append(v_BHTD)
        for index, state in context.states.items():
            self.layers[index] = copy.deepcopy(state)

    def prefilled(self) -> Prefilled:
        """What a native cache stores, as `fill` takes it. Raises KassayError for another recipe."""
        if any(each.policy != "none" for each in self.by_layer):
            raise KassayError(f"recipe `{self.recipe.name}` keeps codes: its operands cannot be had back")
        dtype = DTYPES[self.recipe.sixteen]
        operands = [(layer.key_plane.rebuilt(dtype), layer.value_plane.rebuilt(dtype)) for layer in self.stored]
        states = {index: layer for index, layer in enumerate(self.layers) if not isinstance(layer, RecipeLayer)}
        return Prefilled(operands=operands, states=states)

    def storages(self) -> list[Storage]:
        """Every persisted tensor of keys, values and scales, scalars of fixed scales included."""
        return [
            storage
            for index, layer in enumerate(self.stored)
            for held in (layer.key_plane.storages(index, "key"), layer.value_plane.storages(index, "value"))
            for storage in held
        ]


def arranged(stored: Sequence[RecipeLayer], kinds: Sequence[str] | None) -> list[Any]:
    """The layers of the model in order. Raises KassayError for a kind that is neither attention nor a state."""
    if kinds is None:
        return list(stored)
    if others := sorted(set(kinds) - {ATTENTION, *STATES}):
        raise KassayError(f"layers of type `{'`, `'.join(others)}` are neither {ATTENTION} nor a state")
    if list(kinds).count(ATTENTION) != len(stored):
        raise KassayError(
            f"{len(stored)} attention layers were described, the model has {list(kinds).count(ATTENTION)}"
        )
    attention = iter(stored)
    return [next(attention) if kind == ATTENTION else DYNAMIC_LAYER_TYPE_MAPPING[kind]() for kind in kinds]


def component_of(recipe: Recipe, part: Literal["key", "value"]) -> str:
    """The calibrated component whose scale a fixed recipe's part needs."""
    return "v" if part == "value" else "k_residual" if recipe.prebias else "k"


def plane(
    recipe: Recipe,
    part: Literal["key", "value"],
    scales: Scales | None,
    layer: int,
    capacity_tokens: int,
    key_bias: KeyBias | None,
) -> Plane:
    """The plane of one component. Raises KassayError for a pre-bias recipe without a key bias."""
    stored = recipe.key_format if part == "key" else recipe.value_format
    policy = recipe.policy_of(stored)
    scale = scales[component_of(recipe, part)][layer] if policy == "fixed" and scales else None
    offset = None
    if recipe.prebias and part == "key":
        if key_bias is None:
            raise KassayError(f"recipe `{recipe.name}` subtracts the key bias, and this model has none that it knows")
        offset = key_bias.offset(layer)
    rule = Rule(stored=stored, policy=policy, sixteen=recipe.sixteen, scale=scale, offset=offset)
    return Plane(rule, capacity_tokens)


def check_scales(recipe: Recipe, geometry: Geometry, scales: Scales | None) -> None:
    """Raise KassayError unless a fixed recipe comes with one credible scale per attention layer and component."""
    if recipe.policy != "fixed":
        return
    for component in (component_of(recipe, "key"), component_of(recipe, "value")):
        given = (scales or {}).get(component, [])
        if len(given) != geometry.layers:
            raise KassayError(
                f"recipe `{recipe.name}` needs {geometry.layers} scales of component `{component}`, got {len(given)}"
            )
        used = torch.tensor(given, dtype=torch.float32)
        if bad := [scale for scale, kept in zip(given, used.tolist(), strict=True) if not 0 < kept < math.inf]:
            raise KassayError(
                f"recipe `{recipe.name}`: a scale of component `{component}` is {bad[0]}, allowed is above 0 in FP32"
            )
        if all(scale == 1.0 for scale in given):
            raise KassayError(
                f"recipe `{recipe.name}`: all scales of component `{component}` are 1, "
                "which is a placeholder and no calibration"
            )
