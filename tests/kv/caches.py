"""What a cache of any recipe needs beside operands: a geometry that every format packs, and a key bias."""

import torch

from kassay.kv.cache import RecipeCache, Scales
from kassay.kv.geometry import Geometry
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe


def bias_of(geometry: Geometry) -> KeyBias:
    """A key bias that is large in some dimensions, and ordinary frequencies."""
    shape = (geometry.layers, geometry.kv_heads, geometry.head_dim)
    generator = torch.Generator().manual_seed(17)
    half = torch.arange(geometry.head_dim // 2, dtype=torch.float32)
    frequencies = 10_000 ** (-2 * half / geometry.head_dim)
    return KeyBias(bias_LHD=8 * torch.randn(shape, generator=generator), frequencies=frequencies, scaling=1.0)


def cache_of(recipe: Recipe, geometry: Geometry, scales: Scales | None, capacity: int) -> RecipeCache:
    """An empty cache; a pre-bias recipe takes the keys' scales for its residuals too."""
    given = None if scales is None else {**scales, "k_residual": scales["k"]} if "k" in scales else scales
    return RecipeCache(recipe, geometry, given, capacity, key_bias=bias_of(geometry) if recipe.prebias else None)
