"""Rules of routes: what fits passes, and each reason against is named, all at once."""

from dataclasses import replace

import pytest

from kassay.errors import KassayError
from kassay.kv.recipe import RECIPES, recipe_named
from kassay.kv.support import FEATURES, MIXED_PREFILL, REFERENCE, Site, refusals, require, whole_pages

QWEN3_8B = Site(
    query_heads=32, kv_heads=8, head_dim=128, page_tokens=16, layout="NHD", capability=90, prompt_tokens=8_192
)
FIXED = recipe_named("k16v8-f")


def test_the_published_geometry_passes():
    assert refusals(MIXED_PREFILL, QWEN3_8B, FIXED) == ()
    require(MIXED_PREFILL, QWEN3_8B, FIXED)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_heads": 28, "kv_heads": 4}, "query and KV heads 28/4, allowed is 32/8"),
        ({"head_dim": 64}, "head dim 64, allowed is 128"),
        ({"page_tokens": 32}, "pages of 32, allowed is 16"),
        ({"page_tokens": None}, "pages of none, allowed is 16"),
        ({"layout": "HND"}, "page layout HND, allowed is NHD"),
        ({"capability": 80}, "compute capability 80, allowed is 90"),
        ({"capability": None}, "compute capability none, allowed is 90"),
        ({"prompt_tokens": 8_193}, "a prompt of 8193 tokens, allowed are 8192"),
        ({"features": frozenset({"chunked prefill"})}, "chunked prefill"),
    ],
)
def test_each_reason_is_named(changes, said):
    assert said in refusals(MIXED_PREFILL, replace(QWEN3_8B, **changes), FIXED)


def test_gathered_pages_are_counted():
    small = replace(MIXED_PREFILL, pages=(1,), most_prompt_tokens=None)
    assert refusals(small, replace(QWEN3_8B, page_tokens=1, prompt_tokens=4_096), FIXED) == ()
    assert refusals(small, replace(QWEN3_8B, page_tokens=1, prompt_tokens=4_097), FIXED) == (
        "4097 gathered pages, allowed are 4096",
    )


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_only_one_recipe_has_the_route(recipe):
    assert (refusals(MIXED_PREFILL, QWEN3_8B, recipe) == ()) == (recipe.name == "k16v8-f")
    assert refusals(REFERENCE, QWEN3_8B, recipe) == ()


def test_all_reasons_at_once():
    bad = replace(QWEN3_8B, head_dim=64, layout="HND", features=frozenset(FEATURES))
    with pytest.raises(KassayError) as raised:
        require(MIXED_PREFILL, bad, recipe_named("k8v8-d"))
    text = str(raised.value)
    assert text.startswith("recipe `k8v8-d` is ineligible on route `mixed prefill`: head dim 64, allowed is 128; ")
    for said in ("key and value formats e4m3fn/e4m3fn", "scale policy dynamic", *FEATURES):
        assert said in text


def test_heads_must_divide_and_features_must_be_known():
    assert "7 query heads are no multiple of 2 KV heads" in refusals(
        REFERENCE, replace(QWEN3_8B, query_heads=7, kv_heads=2), FIXED
    )
    with pytest.raises(KassayError, match="unknown features `flying`, allowed are sliding window"):
        refusals(REFERENCE, replace(QWEN3_8B, features=frozenset({"flying"})), FIXED)


def test_a_cartridge_ends_at_a_page_boundary():
    assert whole_pages(632, 8) == 79
    for positions, page in ((632, 16), (631, 8), (0, 8)):
        with pytest.raises(
            KassayError, match=f"a shared prefix of {positions} positions does not end at a boundary of pages of {page}"
        ):
            whole_pages(positions, page)
