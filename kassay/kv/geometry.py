"""How many bytes a cache takes: per token, per slot, per budget. Scale bytes included; no estimate.

token bytes = layers * kv_heads * head_dim * (key bytes + value bytes)
              + 4 * layers * kv_heads for each 8-bit component whose scales are per token and head
"""

from dataclasses import dataclass

from kassay.kv.recipe import BITS, Recipe

SCALE_BYTES = 4  # FP32


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What a model's attention layers store for each token."""

    layers: int
    kv_heads: int
    head_dim: int


def token_bytes(geometry: Geometry, recipe: Recipe) -> int:
    """Bytes that one token takes in all layers."""
    formats = (recipe.key_format, recipe.value_format)
    codes = geometry.layers * geometry.kv_heads * geometry.head_dim * sum(BITS[used] // 8 for used in formats)
    scaled = sum(BITS[used] == 8 for used in formats) if recipe.policy == "dynamic" else 0
    return codes + SCALE_BYTES * geometry.layers * geometry.kv_heads * scaled


def slots(geometry: Geometry, recipe: Recipe, *, budget_bytes: int, page_tokens: int) -> int:
    """Token slots that fit a budget, whole pages only."""
    return budget_bytes // (token_bytes(geometry, recipe) * page_tokens) * page_tokens
