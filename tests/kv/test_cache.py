"""The recipe cache: what it stores never changes, in whatever pieces it came, and bad scales are refused."""

import numpy as np
import pytest
import torch

from kassay.errors import KassayError
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.expected import quantized
from kassay.kv.geometry import Geometry
from kassay.kv.recipe import RECIPES, recipe_named
from tests.kv.caches import cache_of

GEOMETRY = Geometry(layers=2, kv_heads=2, head_dim=32)
SCALES = {"k": [0.01, 0.02], "v": [0.03, 0.04]}
TOKENS = 20


def operands(seed=5, tokens=TOKENS):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, GEOMETRY.kv_heads, tokens, GEOMETRY.head_dim)
    return [
        (3 * torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))
        for _ in range(GEOMETRY.layers)
    ]


def made(recipe, capacity=TOKENS):
    return cache_of(recipe, GEOMETRY, SCALES, capacity)


def pieces(recipe, cuts, capacity=TOKENS):
    """A cache that took the operands in pieces, and the last reconstruction of layer 0."""
    held = made(recipe, capacity)
    read = None
    for start, end in zip([0, *cuts], [*cuts, TOKENS], strict=True):
        for layer, (k, v) in enumerate(operands()):
            got = held.update(k[:, :, start:end], v[:, :, start:end], layer)
            read = got if layer == 0 else read
    return held, read


def snapshot(held, tokens):
    return {
        (s.layer, s.part): (s.tensor[:, :, :tokens] if s.tensor.ndim == 4 else s.tensor).clone()
        for s in held.storages()
    }


def assert_same_bits(one, two):
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].dtype == two[name].dtype
        assert torch.equal(one[name], two[name]), name


each_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


@each_recipe
@pytest.mark.parametrize("cuts", [[1], [7, 8, 19], list(range(1, TOKENS))], ids=["head", "uneven", "tokens"])
def test_pieces_equal_the_whole(recipe, cuts):
    if recipe.policy == "tensor":  # the one policy whose scale is for a whole write
        assert not torch.equal(pieces(recipe, [])[1][1], pieces(recipe, cuts)[1][1]) or recipe.value_format == "fp16"
        return
    whole, whole_read = pieces(recipe, [])
    cut, cut_read = pieces(recipe, cuts)
    assert_same_bits(snapshot(whole, TOKENS), snapshot(cut, TOKENS))
    assert all(torch.equal(a, b) for a, b in zip(whole_read, cut_read, strict=True))


@each_recipe
def test_old_tokens_are_never_requantized(recipe):
    held = made(recipe)
    for layer, (k, v) in enumerate(operands()):
        held.update(k[:, :, :10], v[:, :, :10], layer)
    before = snapshot(held, 10)
    for layer, (k, v) in enumerate(operands()):
        held.update(100 * k[:, :, 10:], 100 * v[:, :, 10:], layer)
    assert_same_bits(before, snapshot(held, 10))


@each_recipe
def test_fill_equals_update(recipe):
    filled = made(recipe)
    filled.fill(Prefilled(operands=operands()))
    assert_same_bits(snapshot(filled, TOKENS), snapshot(pieces(recipe, [])[0], TOKENS))


@each_recipe
def test_stored_bits_are_those_of_formats(recipe):
    held = pieces(recipe, [4])[0]
    found = {(s.layer, s.part): s.tensor.numpy() for s in held.storages()}
    for layer, pair in enumerate(operands()):
        for part, component, stored, x in zip(
            ("key", "value"), ("k", "v"), (recipe.key_format, recipe.value_format), pair, strict=True
        ):
            fixed = np.asarray(SCALES[component][layer], np.float32)
            offset = held.stored[layer].key_plane.rule.offset if part == "key" else None
            bias = None if offset is None else offset(0, TOKENS, x.device)[0].numpy()
            wanted = quantized(recipe, stored, x.numpy().astype(np.float16), (4, TOKENS - 4), fixed, bias)
            bits = np.uint16 if stored == "fp16" else np.uint8
            np.testing.assert_array_equal(found[layer, part + "s"].view(bits), wanted.data_BGSD.view(bits))
            assert (wanted.scale is None) == ((layer, part + "_scales") not in found)
            if wanted.scale is not None:
                np.testing.assert_array_equal(found[layer, part + "_scales"], wanted.scale)


def test_native_reconstruction_is_the_fp16_rounding():
    (k, v), _ = operands()
    read_k, read_v = made(recipe_named("native")).update(k, v, 0)
    assert torch.equal(read_k, k.half().float())
    assert torch.equal(read_v, v.half().float())


def test_values_beyond_the_fixed_range_saturate():
    held = made(recipe_named("k8v8-f"))
    big = torch.full((1, 2, 1, 32), 1000.0)
    k, v = held.update(big, -big, 0)
    assert torch.allclose(k, torch.tensor(448 * 0.01))
    assert torch.allclose(v, torch.tensor(-448 * 0.03))


@each_recipe
def test_beyond_the_capacity_is_an_error_and_changes_nothing(recipe):
    held = made(recipe, capacity=12)
    (k, v), _ = operands()
    held.update(k[:, :, :10], v[:, :, :10], 0)
    before = snapshot(held, 10)
    with pytest.raises(KassayError, match=r"cache of 12 tokens cannot take 10 \+ 3"):
        held.update(k[:, :, 10:13], v[:, :, 10:13], 0)
    assert held.get_seq_length() == 10
    assert_same_bits(before, snapshot(held, 10))


def test_storages_name_every_tensor():
    parts = {
        "native": {"keys": torch.float16, "values": torch.float16},
        "k16v8-f": {"keys": torch.float16, "values": torch.uint8, "value_scales": torch.float32},
        "k8v16-d": {"keys": torch.uint8, "values": torch.float16, "key_scales": torch.float32},
        "k8v8-d": {
            "keys": torch.uint8,
            "values": torch.uint8,
            "key_scales": torch.float32,
            "value_scales": torch.float32,
        },
    }
    for name, expected in parts.items():
        held = made(recipe_named(name), capacity=32)
        held.fill(Prefilled(operands=operands()))
        for layer in range(GEOMETRY.layers):
            found = {s.part: s for s in held.storages() if s.layer == layer}
            assert {part: s.tensor.dtype for part, s in found.items()} == expected
            assert all(s.tensor.shape[2] == 32 and s.tokens == TOKENS for s in found.values() if s.tensor.ndim == 4)
    pointers = [s.tensor.data_ptr() for s in held.storages()]
    assert len(pointers) == len(set(pointers))


def test_only_a_native_cache_gives_operands_back():
    native = made(recipe_named("native"))
    native.fill(Prefilled(operands=operands()))
    for (k, v), (k_back, v_back) in zip(operands(), native.prefilled().operands, strict=True):
        assert torch.equal(k.half(), k_back)
        assert torch.equal(v.half(), v_back)
    with pytest.raises(KassayError, match="recipe `k8v8-d` keeps codes"):
        made(recipe_named("k8v8-d")).prefilled()


@pytest.mark.parametrize(
    ("scales", "message"),
    [
        (None, "needs 2 scales of component `k`, got 0"),
        ({"k": [0.1, 0.1]}, "needs 2 scales of component `v`, got 0"),
        ({"k": [0.1], "v": [0.1, 0.1]}, "needs 2 scales of component `k`, got 1"),
        ({"k": [0.1, -0.1], "v": [0.1, 0.1]}, "a scale of component `k` is -0.1"),
        ({"k": [0.1, 0.1], "v": [0.0, 0.1]}, "a scale of component `v` is 0.0"),
        ({"k": [0.1, float("nan")], "v": [0.1, 0.1]}, "a scale of component `k` is nan"),
        ({"k": [0.1, 0.1], "v": [float("inf"), 0.1]}, "a scale of component `v` is inf"),
        ({"k": [0.1, 0.1], "v": [1.0, 1.0]}, "all scales of component `v` are 1"),
    ],
)
def test_bad_fixed_scales_are_refused(scales, message):
    for name in ("k16v8-f", "k8v16-f", "k8v8-f"):
        with pytest.raises(KassayError, match=message):
            RecipeCache(recipe_named(name), GEOMETRY, scales, TOKENS)


def test_other_policies_need_no_scales():
    for name in ("native", "k8v8-d"):
        RecipeCache(recipe_named(name), GEOMETRY, None, TOKENS)
