"""What a cache should hold of an operand, by kassay.kv.formats alone: the other side of a comparison bit for bit.

Axes: B sequences, G KV heads, S stored tokens, D head dim. numpy only; under test is kassay.kv.plane, in torch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kassay.kv import formats
from kassay.kv.oracle import Component
from kassay.kv.recipe import BITS, GROUP, Format, Policy, Recipe

Floats = npt.NDArray[np.float32]


def quantized(
    recipe: Recipe,
    stored: Format,
    operand_BGSD: npt.NDArray[Any],
    writes: Sequence[int],
    fixed: Floats | None,
    offset_GSD: Floats | None = None,
) -> Component:
    """One component of 16-bit operands that came in writes of so many tokens.

    `fixed`: the scale of a fixed policy; `offset_GSD`: what is taken off before and added after.
    """
    if BITS[stored] == 16:
        return Component(data_BGSD=operand_BGSD, scale=None, other_scale=None, decoded_as=stored)
    wide = operand_BGSD.astype(np.float32)
    wide = wide if offset_GSD is None else wide - offset_GSD
    number = formats.format_named(stored)
    scale = fixed if recipe.policy == "fixed" and fixed is not None else None
    if scale is None:
        scale = formats.scale_of(number, extent(recipe.policy, wide, writes))
    data = formats.encode(number, wide, scale, saturate=True)
    return Component(
        data_BGSD=data,
        scale=scale,
        other_scale=None,
        decoded_as=stored,
        offset_GSD=offset_GSD,
        operand_BGSD=wide,
    )


def extent(policy: Policy, wide_BGSD: Floats, writes: Sequence[int]) -> Floats:
    """Largest absolute values that scales are for: BGS1 a token and head, B1S1 a write, BGS(D/32) a group."""
    magnitude = np.abs(wide_BGSD)
    if policy == "group":
        return np.asarray(magnitude.reshape(*magnitude.shape[:-1], -1, GROUP).max(axis=-1))
    token_BGS1 = magnitude.max(axis=-1, keepdims=True)
    if policy != "tensor":
        return np.asarray(token_BGS1)
    cuts = np.cumsum(writes)[:-1]
    parts = [
        np.broadcast_to(part.max(axis=(1, 2), keepdims=True), (len(part), 1, part.shape[2], 1))
        for part in np.split(token_BGS1, cuts, axis=2)
    ]
    return np.concatenate(parts, axis=2)
