"""What a recipe cache refuses to store or to be made from, and what its parts may never share."""

import pytest
import torch

from kassay.errors import KassayError
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.geometry import Geometry
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from tests.kv.caches import cache_of

GEOMETRY = Geometry(layers=3, kv_heads=2, head_dim=32)
SCALES = {"k": [0.0131, 0.02, 0.017], "v": [0.011, 0.009, 0.03]}
TOKENS = 21
every_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


def operands() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random k_BHTD and v_BHTD of all layers, two requests."""
    rng = torch.Generator().manual_seed(0)
    shape = (2, GEOMETRY.kv_heads, TOKENS, GEOMETRY.head_dim)
    return [
        (torch.randn(shape, generator=rng).half(), torch.randn(shape, generator=rng).half())
        for _ in range(GEOMETRY.layers)
    ]


def filled(recipe: Recipe, flipped: bool) -> RecipeCache:
    """A full cache, with the requests in order or the other way round."""
    cache = cache_of(recipe, GEOMETRY, SCALES, TOKENS)
    cache.fill(Prefilled(operands=[(k.flip(0), v.flip(0)) if flipped else (k, v) for k, v in operands()]))
    return cache


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -65520.0])
@pytest.mark.parametrize("component", ["k", "v"])
@every_recipe
def test_an_operand_that_fp16_cannot_hold_is_refused(recipe: Recipe, component: str, bad: float) -> None:
    """The clip of an 8-bit format would otherwise turn an overflow into a plausible code."""
    good_BHTD, bad_BHTD = torch.zeros(1, 2, 1, 32), torch.zeros(1, 2, 1, 32)
    bad_BHTD[0, 1, 0, 3] = bad
    pair = (bad_BHTD, good_BHTD) if component == "k" else (good_BHTD, bad_BHTD)
    with pytest.raises(KassayError, match="not finite in FP16"):
        cache_of(recipe, GEOMETRY, SCALES, 4).update(*pair, 0)


@pytest.mark.parametrize("name", ["k16v8-f", "k8v16-f", "k8v8-f"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (-0.1, "is -0.1, allowed is above 0"),
        (0.0, "is 0.0, allowed is above 0"),
        (float("nan"), "is nan, allowed is above 0"),
        (float("inf"), "is inf, allowed is above 0"),
        (1e-50, "is 1e-50, allowed is above 0 in FP32"),
        (1e39, r"is 1e\+39, allowed is above 0 in FP32"),
    ],
)
@pytest.mark.parametrize("component", ["k", "v"])
def test_a_scale_that_fp32_cannot_divide_by_is_refused(name: str, component: str, bad: float, said: str) -> None:
    scales = {"k": [0.1, 0.2, 0.3], "v": [0.1, 0.2, 0.3]}
    scales[component][1] = bad
    with pytest.raises(KassayError, match=f"recipe `{name}`: a scale of component `{component}` {said}"):
        RecipeCache(recipe_named(name), GEOMETRY, scales, 8)


@every_recipe
def test_no_two_parts_share_a_storage(recipe: Recipe) -> None:
    pointers = [part.tensor.untyped_storage().data_ptr() for part in filled(recipe, False).storages()]
    assert len(set(pointers)) == len(pointers)


@every_recipe
def test_permuted_requests_hold_permuted_bits(recipe: Recipe) -> None:
    for one, other in zip(filled(recipe, False).storages(), filled(recipe, True).storages(), strict=True):
        if one.tensor.dim():
            assert torch.equal(one.tensor.flip(0), other.tensor)
