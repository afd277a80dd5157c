"""Each fault does what its name says, leaves the clean operands alone, and applies to the right recipes."""

from copy import deepcopy
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from kassay.kv.mutation import MUTATIONS, PAGE, inert
from kassay.kv.oracle import Component, Stored
from kassay.kv.recipe import RECIPES, recipe_named

TOKENS = 52
BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


def component(rng, stored, policy, heads=2):
    shape = (2, heads, TOKENS, 8)
    if stored == "fp16":
        data = rng.normal(size=shape).astype(np.float16)
        return Component(data_BGSD=data, scale=None, other_scale=None, decoded_as="fp16")
    data = rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    if policy == "fixed":
        scale, other = (np.asarray(value, np.float32) for value in rng.uniform(0.1, 1, size=2))
        return Component(data_BGSD=data, scale=scale, other_scale=other, decoded_as="e4m3fn")
    scale = rng.uniform(0.1, 1, size=(*shape[:3], 1)).astype(np.float32)
    return Component(data_BGSD=data, scale=scale, other_scale=None, decoded_as="e4m3fn")


def stored_of(name, heads=2):
    recipe, rng = recipe_named(name), np.random.default_rng(9)
    return Stored(
        keys=component(rng, recipe.key_format, recipe.policy, heads),
        values=component(rng, recipe.value_format, recipe.policy, heads),
        q_BHTD=rng.normal(size=(2, 4, 5, 8)).astype(np.float32),
        first_query=TOKENS - 5,
        causal=True,
    )


def inject(name, stored):
    return BY_NAME[name].inject(stored)


def differing(one, two):
    """Which (request, head, token) differ in stored bits."""
    bits = f"u{one.data_BGSD.itemsize}"
    changed = np.argwhere(one.data_BGSD.view(bits) != two.data_BGSD.view(bits))
    return {tuple(at[:3]) for at in changed.tolist()}


def test_names_are_unique_and_many():
    assert len(BY_NAME) == len(MUTATIONS) >= 12


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_fault_changes_something_and_leaves_the_clean_alone(recipe):
    clean = stored_of(recipe.name)
    before = deepcopy(clean)
    for mutation in MUTATIONS:
        if mutation.applies(recipe):
            assert not inert(clean, mutation.inject(clean)), mutation.name
            assert inert(before, clean), mutation.name
    assert inert(clean, deepcopy(clean))


def test_which_recipes_a_fault_applies_to():
    def names(mutation):
        return {recipe.name for recipe in RECIPES if BY_NAME[mutation].applies(recipe)}

    every = {recipe.name for recipe in RECIPES}
    assert names("key_scale_doubled") == {"k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"}
    assert names("value_scale_doubled") == {"k16v8-f", "k16v8-d", "k8v8-f", "k8v8-d"}
    assert names("neighbour_scale") == names("e4m3fnuz_decoding") == every - {"native"}
    for mutation in ("stale_page", "zeroed_page", "slot_off_by_one", "tail_truncated", "causal_mask_missing"):
        assert names(mutation) == every


def test_stale_page_takes_data_and_scales_of_the_other_request():
    clean = stored_of("k8v8-d")
    faulty = inject("stale_page", clean)
    for one, two in ((clean.keys, faulty.keys), (clean.values, faulty.values)):
        np.testing.assert_array_equal(two.data_BGSD[0, :, PAGE], one.data_BGSD[1, :, PAGE])
        np.testing.assert_array_equal(two.scale[1, :, PAGE], one.scale[0, :, PAGE])
        assert {token for _, _, token in differing(one, two)} <= set(range(16, 32))


def test_zeroed_page_and_zeroed_values():
    clean = stored_of("k16v8-f")
    page = inject("zeroed_page", clean)
    assert not page.keys.data_BGSD[:, :, PAGE].any()
    assert {token for _, _, token in differing(clean.values, page.values)} == set(range(16, 32))
    zeroed = inject("values_zeroed", clean)
    assert np.mean(~zeroed.values.data_BGSD.any(axis=-1)) == pytest.approx(0.4, abs=0.03)
    assert not differing(clean.keys, zeroed.keys)


def test_tail_and_slots():
    clean = stored_of("k8v8-d")
    assert inject("tail_truncated", clean).keys.scale.shape[2] == 48
    whole = replace(clean, keys=replace(clean.keys, data_BGSD=clean.keys.data_BGSD[:, :, :48]))
    assert inject("tail_truncated", whole).keys.data_BGSD.shape[2] == 32
    moved = inject("slot_off_by_one", clean).values
    np.testing.assert_array_equal(moved.data_BGSD[:, :, 1:], clean.values.data_BGSD[:, :, :-1])
    np.testing.assert_array_equal(moved.scale[:, :, 1:], clean.values.scale[:, :, :-1])


@pytest.mark.parametrize("name", ["native", "k8v8-f"])
def test_one_corrupted_code_is_one_bit(name):
    clean = stored_of(name)
    for mutation, part in (("key_code_corrupted", "keys"), ("value_code_corrupted", "values")):
        one, two = (getattr(stored, part).data_BGSD for stored in (clean, inject(mutation, clean)))
        changed = one.view(f"u{one.itemsize}") ^ two.view(f"u{two.itemsize}")
        assert np.bitwise_count(changed).sum() == 1
        assert np.isfinite(
            two.view(ml_dtypes.float8_e4m3fn if two.itemsize == 1 else np.float16).astype(float)
        ).all()


def test_neighbour_scale():
    fixed = stored_of("k8v8-f")
    assert inject("neighbour_scale", fixed).keys.scale == fixed.keys.other_scale
    dynamic = stored_of("k8v8-d")
    np.testing.assert_array_equal(
        inject("neighbour_scale", dynamic).keys.scale[:, 0], dynamic.keys.scale[:, 1]
    )


def test_the_neighbour_of_a_single_head_is_inert():
    clean = stored_of("k8v8-d", heads=1)
    assert inert(clean, inject("neighbour_scale", clean))
