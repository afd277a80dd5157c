"""Bytes against the published figures (statistics.md 2.8) and against what a cache really holds."""

import pytest
import torch

from kassay.kv.cache import Prefilled
from kassay.kv.geometry import Geometry, slots, token_bytes
from kassay.kv.recipe import RECIPES, recipe_named
from tests.kv.caches import cache_of

QWEN3_8B = Geometry(layers=36, kv_heads=8, head_dim=128)
BUDGET_BYTES = 40 * 2**30


@pytest.mark.parametrize(
    ("name", "expected"),
    [("native", 147_456), ("k16v8-f", 110_592), ("k8v16-f", 110_592), ("k8v8-f", 73_728)],
)
def test_published_token_bytes(name, expected):
    assert token_bytes(QWEN3_8B, recipe_named(name)) == expected


def test_dynamic_scales_count():
    fixed, dynamic = (token_bytes(QWEN3_8B, recipe_named(name)) for name in ("k8v8-f", "k8v8-d"))
    assert dynamic == 76_032
    assert dynamic / fixed - 1 == 0.03125
    assert token_bytes(QWEN3_8B, recipe_named("k16v8-d")) == 110_592 + 4 * 36 * 8


def test_published_slots_of_40_gib():
    held = {
        name: slots(QWEN3_8B, recipe_named(name), budget_bytes=BUDGET_BYTES, page_tokens=16)
        for name in ("native", "k16v8-f")
    }
    assert held == {"native": 291_264, "k16v8-f": 388_352}
    for name, count in held.items():
        assert count * token_bytes(QWEN3_8B, recipe_named(name)) == 42_948_624_384


def test_published_worker_blocks():
    blocks = {
        name: slots(QWEN3_8B, recipe_named(name), budget_bytes=42_911_868_928, page_tokens=16) // 16
        for name in ("native", "k16v8-f", "k8v8-d")
    }
    assert blocks == {"native": 18_188, "k16v8-f": 24_251, "k8v8-d": 35_274}


def test_only_whole_pages():
    page_bytes = 16 * token_bytes(QWEN3_8B, recipe_named("native"))
    native = recipe_named("native")
    assert slots(QWEN3_8B, native, budget_bytes=page_bytes - 1, page_tokens=16) == 0
    assert slots(QWEN3_8B, native, budget_bytes=2 * page_bytes - 1, page_tokens=16) == 16


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_cache_holds_what_geometry_says(recipe):
    geometry = Geometry(layers=3, kv_heads=2, head_dim=64)
    held = cache_of(recipe, geometry, {"k": [0.1] * 3, "v": [0.2] * 3}, 10)
    held.fill(Prefilled(operands=[(torch.randn(1, 2, 10, 64), torch.randn(1, 2, 10, 64))] * 3))
    per_token = sum(s.tensor.nbytes for s in held.storages() if s.tensor.ndim == 4)
    assert per_token == 10 * token_bytes(geometry, recipe)
