"""The seven arms and their names."""

import pytest

from kassay.errors import KassayError
from kassay.kv import formats
from kassay.kv.recipe import BITS, GROUP, RECIPES, SEVEN_ARMS, recipe_named


def test_the_seven_arms():
    names = [recipe.name for recipe in SEVEN_ARMS]
    assert names == ["native", "k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"]


def test_a_name_says_formats_and_policy():
    for recipe in SEVEN_ARMS[1:]:
        assert ("k16" in recipe.name) == (recipe.key_format == "fp16")
        assert ("v16" in recipe.name) == (recipe.value_format == "fp16")
        assert recipe.policy == {"f": "fixed", "d": "dynamic"}[recipe.name[-1]]
    assert (RECIPES[0].key_format, RECIPES[0].value_format, RECIPES[0].policy) == ("fp16", "fp16", "none")


def test_titles():
    assert [recipe_named(name).title for name in ("native", "k16v8-f", "k8v8-d")] == [
        "K16/V16 native",
        "K16/V8 fixed",
        "K8/V8 dynamic",
    ]


def test_an_unknown_name_lists_the_allowed_ones():
    with pytest.raises(KassayError, match=r"unknown recipe `k4v4`, allowed are native, k16v8-f.*k4v4-g32"):
        recipe_named("k4v4")


def test_names_are_unique_and_titles_too():
    assert len({recipe.name for recipe in RECIPES}) == len({recipe.title for recipe in RECIPES}) == len(RECIPES)


def test_further_titles():
    assert [recipe_named(name).title for name in ("prebias-k8v8-d", "ki8v16-d", "k4v4-g32", "k8v8-t")] == [
        "K8/V8 dynamic pre-bias",
        "Ki8/V16 dynamic",
        "K4/V4 group",
        "K8/V8 tensor",
    ]


def test_bits_and_group_are_those_of_the_formats():
    for name, bits in BITS.items():
        if bits < 16 and name != "e4m3fn":
            assert formats.format_named(name).bits == (6 if name == "int6" else bits)
    assert formats.format_named("int4-g32").group_size == GROUP


def test_the_16_bit_format_is_a_field():
    recipe = recipe_named("k16v8-f", "bf16")
    assert (recipe.name, recipe.key_format, recipe.value_format) == ("k16v8-f", "bf16", "e4m3fn")
    assert recipe.title == "K16/V8 fixed, BF16"
    assert recipe.on("fp16") == recipe_named("k16v8-f")
    assert recipe_named("k8v8-d", "bf16").sixteen == "bf16"
    with pytest.raises(KassayError, match="unknown 16-bit format `fp8`, allowed are fp16, bf16"):
        recipe.on("fp8")
