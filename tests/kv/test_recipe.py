"""The seven arms and their names."""

import pytest

from kassay.errors import KassayError
from kassay.kv.recipe import RECIPES, recipe_named


def test_the_seven_arms():
    names = [recipe.name for recipe in RECIPES]
    assert names == ["native", "k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"]


def test_a_name_says_formats_and_policy():
    for recipe in RECIPES[1:]:
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
    with pytest.raises(KassayError, match=r"unknown recipe `k4v4`, allowed are native, k16v8-f.*k8v8-d"):
        recipe_named("k4v4")
