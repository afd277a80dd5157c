"""Pages under the oracle: clean readings pass, other places hold the same bits, and each fault is caught."""

import numpy as np
import pytest
import torch

from kassay.backend.paged_cases import PAGE_FAULTS, Operands, Pool, compared, disjoint, same_bits
from kassay.kv.geometry import Geometry
from kassay.kv.paged import LayerScales
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from tests.kv.caches import bias_of

PAGED = [recipe for recipe in RECIPES if recipe.policy != "tensor"]
each_recipe = pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)


def operands(tokens: int = 60) -> Operands:
    """Two requests of random operands, four query heads on two KV heads."""
    generator = torch.Generator().manual_seed(8)
    k, v = (torch.randn((2, 2, tokens, 32), generator=generator).half() for _ in range(2))
    return Operands(k_BGSD=k, v_BGSD=v, q_BHTD=torch.randn((2, 4, 9, 32), generator=generator))


def pool(recipe: Recipe, seed: int = 0) -> Pool:
    """The operands in a pool."""
    offset = None
    if recipe.prebias:
        offset = bias_of(Geometry(layers=1, kv_heads=2, head_dim=32)).offset(0)
    return Pool(recipe, operands(), LayerScales(keys=0.02, values=0.011), offset, seed)


@each_recipe
@pytest.mark.parametrize("kind", ["fresh", "decode", "mixed"])
def test_clean_readings_pass(recipe: Recipe, kind: str) -> None:
    held = pool(recipe)
    batch = held.batch(kind)
    for result in compared(held, batch, batch).values():
        assert result.within and result.worst_ratio < 0.5


@each_recipe
def test_other_places_and_orders_hold_the_same_bits(recipe: Recipe) -> None:
    one, other = pool(recipe), pool(recipe, seed=1)
    assert not torch.equal(one.table_RX, other.table_RX)
    assert same_bits(one, other).within
    assert disjoint(one).within


@each_recipe
@pytest.mark.parametrize("fault", PAGE_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_is_caught(recipe: Recipe, fault) -> None:
    held = pool(recipe)
    clean = held.batch("decode")
    faulty = fault.inject(clean, held.shape)
    assert not torch.equal(clean.table_RX, faulty.table_RX) or not torch.equal(clean.lengths_R, faulty.lengths_R)
    assert not all(result.within for result in compared(held, faulty, clean).values())


def test_a_corrupted_slot_is_no_longer_the_same() -> None:
    one, other = pool(recipe_named("k16v8-d")), pool(recipe_named("k16v8-d"), seed=1)
    page = int(other.table_RX[-1, 0])
    other.layer.values.data_PSHW[page, 3, 1, 5] ^= 1
    assert not same_bits(one, other).within


def test_planes_that_share_a_storage_are_noticed() -> None:
    held = pool(recipe_named("native"))
    held.layer.values.data_PSHW = held.layer.keys.data_PSHW
    assert not disjoint(held).within


def test_lengths_stand_around_the_page_boundaries() -> None:
    held = pool(recipe_named("native"))
    assert {1, 15, 16, 17, 31, 32, 33} <= set(held.lengths)
    assert held.lengths[-2:] == (60, 60)
    mixed = held.batch("mixed")
    assert {count == 1 for count in mixed.queries_R} == {True, False}
    assert np.all([count in (1, length) for count, length in zip(mixed.queries_R, held.lengths, strict=True)])
