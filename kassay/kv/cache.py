"""A cache for transformers' own models that keeps keys and values as a recipe says and never requantizes.

Axes: B sequences, H KV heads, T tokens, D head dim.

The writer's operand is the 16-bit tensor: keys after norm and RoPE, and values, rounded to FP16. An 8-bit
component persists uint8 codes and FP32 scales; a 16-bit one persists FP16. `update` returns the
reconstruction of the layer in the model's dtype; only one layer's reconstruction exists at a time. Attention
of *every* token reads the reconstruction: a prompt that must be attended fresh is prefilled with the native
recipe and its operands are put in by `fill`, which is what a serving engine does with whole fresh prompts.

The bits of codes and scales equal kassay.kv.formats (numpy), by test.
"""

import math
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from kassay.errors import KassayError
from kassay.kv.formats import LARGEST, RECIPROCAL, SCALE_FLOOR
from kassay.kv.geometry import Geometry
from kassay.kv.recipe import Format, Policy, Recipe

Operands = list[tuple[torch.Tensor, torch.Tensor]]  # per layer: k_BHTD, v_BHTD, FP16
Scales = dict[str, list[float]]  # component `k` or `v` -> FP32 scale per layer

# An E4M3 code shifted into FP16's fields is its value times 2^-8, as FP16's bias is larger by 8. On one core
# this takes 0.6 ns an element, torch's own float8 conversion 3.1 and a table of 256 entries 4.0.
SHIFT = 7
CLEAR_DOUBLED_SIGN = -0x4001  # bit 14, where the sign extension of int8 left a copy of the sign
BIAS_DIFFERENCE = 256.0


def scale_of(amax: torch.Tensor) -> torch.Tensor:
    """FP32 scale of a largest absolute value, any shape."""
    return amax.float().clamp(min=SCALE_FLOOR) * torch.tensor(
        float(RECIPROCAL), dtype=torch.float32, device=amax.device
    )


def encode(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """E4M3FN codes (uint8, shape of x) of an operand; `scale` (FP32) broadcasts against x."""
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)


def fp16_operand(x: torch.Tensor) -> torch.Tensor:
    """A writer's operand in FP16. Raises KassayError for NaN and overflow, which the clip would hide."""
    operand = x.to(torch.float16)
    low, high = torch.aminmax(operand)
    if not (math.isfinite(float(low)) and math.isfinite(float(high))):
        raise KassayError("a key or value is not finite in FP16 (largest 65504): these recipes cannot store it")
    return operand


def decode(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """FP32 values of finite codes; exact up to the one rounding of the product with the scale."""
    halves = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(SHIFT).bitwise_and_(CLEAR_DOUBLED_SIGN)
    return halves.view(torch.float16).float().mul_(scale * BIAS_DIFFERENCE)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """One tensor that a cache persists."""

    layer: int
    part: str  # `keys`, `values`, `key_scales` or `value_scales`
    tensor: torch.Tensor  # the whole backing, capacity included
    tokens: int  # of it in use


class Plane:
    """One component of one layer: preallocated for `capacity` tokens, appended to, read as a whole."""

    def __init__(self, stored: Format, policy: Policy, scale: float | None, capacity: int) -> None:
        self.stored = stored
        self.dynamic = stored == "e4m3fn" and policy == "dynamic"
        self.capacity = capacity
        self.tokens = 0
        self.data_BHTD = torch.empty(0)
        self.scale_BHT1 = torch.empty(0)
        self.scale = None if scale is None else torch.tensor(scale, dtype=torch.float32)

    def append(self, x_BHTD: torch.Tensor) -> None:
        """Store the operand's tokens behind those that are there. Raises KassayError beyond the capacity."""
        operand_BHTD = fp16_operand(x_BHTD)
        b, h, t, d = operand_BHTD.shape
        if self.data_BHTD.numel() == 0:
            self._allocate(b, h, d, x_BHTD.device)
        if self.tokens + t > self.capacity:
            raise KassayError(f"cache of {self.capacity} tokens cannot take {self.tokens} + {t}")
        place = slice(self.tokens, self.tokens + t)
        if self.stored == "fp16":
            self.data_BHTD[:, :, place] = operand_BHTD
        else:
            if self.dynamic:
                self.scale_BHT1[:, :, place] = scale_of(operand_BHTD.abs().amax(dim=-1, keepdim=True))
            self.data_BHTD[:, :, place] = encode(operand_BHTD, self._scale_at(place))
        self.tokens += t

    def _allocate(self, b: int, h: int, d: int, device: torch.device) -> None:
        dtype = torch.float16 if self.stored == "fp16" else torch.uint8
        self.data_BHTD = torch.zeros((b, h, self.capacity, d), dtype=dtype, device=device)
        if self.dynamic:
            self.scale_BHT1 = torch.ones((b, h, self.capacity, 1), dtype=torch.float32, device=device)
        if self.scale is not None:
            # With a divisor on the CPU a GPU multiplies by its reciprocal: 2.7e-5 of the codes would differ.
            self.scale = self.scale.to(device)

    def rebuilt(self, dtype: torch.dtype) -> torch.Tensor:
        """All stored tokens as k_BHTD or v_BHTD in `dtype`."""
        place = slice(0, self.tokens)
        if self.stored == "fp16":
            return self.data_BHTD[:, :, place].to(dtype)
        return decode(self.data_BHTD[:, :, place], self._scale_at(place)).to(dtype)

    def _scale_at(self, place: slice) -> torch.Tensor:
        if self.dynamic:
            return self.scale_BHT1[:, :, place]
        assert self.scale is not None, "a bug: a fixed plane was made without its scale"
        return self.scale


class RecipeLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers' own __init_subclass__
    """One layer of a RecipeCache, as transformers asks for it."""

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
    """A cache that stores what `recipe` says for a model of `geometry`."""

    def __init__(self, recipe: Recipe, geometry: Geometry, scales: Scales | None, capacity_tokens: int) -> None:
        check_scales(recipe, geometry, scales)
        self.recipe = recipe
        self.stored = [
            RecipeLayer(
                plane(recipe.key_format, recipe.policy, scales, "k", layer, capacity_tokens),
                plane(recipe.value_format, recipe.policy, scales, "v", layer, capacity_tokens),
            )
            for layer in range(geometry.layers)
        ]
        super().__init__(layers=list(self.stored))

    def fill(self, operands: Operands) -> None:
        """Store the operands of a native prefill, layer by layer."""
        for layer, (k_BHTD, v_BHTD) in zip(self.stored, operands, strict=True):
            layer.key_plane.append(k_BHTD)
            layer.value_plane.append(v_BHTD)

    def operands(self) -> Operands:
        """What a native cache stores, as `fill` takes it. Raises KassayError for another recipe."""
        if self.recipe.policy != "none":
            raise KassayError(f"recipe `{self.recipe.name}` keeps codes: its operands cannot be had back")
        return [
            (layer.key_plane.rebuilt(torch.float16), layer.value_plane.rebuilt(torch.float16)) for layer in self.stored
        ]

    def storages(self) -> list[Storage]:
        """Every persisted tensor, scalars of fixed scales included."""
        found = []
        for index, layer in enumerate(self.stored):
            for part, held in (("key", layer.key_plane), ("value", layer.value_plane)):
                found.append(Storage(layer=index, part=f"{part}s", tensor=held.data_BHTD, tokens=held.tokens))
                if held.dynamic:
                    found.append(
                        Storage(layer=index, part=f"{part}_scales", tensor=held.scale_BHT1, tokens=held.tokens)
                    )
                elif held.scale is not None:
                    found.append(Storage(layer=index, part=f"{part}_scales", tensor=held.scale, tokens=1))
        return found


def plane(
    stored: Format, policy: Policy, scales: Scales | None, component: str, layer: int, capacity_tokens: int
) -> Plane:
    """The plane of one component; only an 8-bit one under a fixed policy has a scale."""
    fixed = stored == "e4m3fn" and policy == "fixed" and scales is not None
    return Plane(stored, policy, scales[component][layer] if fixed and scales else None, capacity_tokens)


def check_scales(recipe: Recipe, geometry: Geometry, scales: Scales | None) -> None:
    """Raise KassayError unless a fixed recipe comes with one credible scale per layer and component."""
    if recipe.policy != "fixed":
        return
    for component in ("k", "v"):
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
