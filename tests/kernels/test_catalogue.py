"""What the catalogue of kernels names, without compiling any."""

import pytest

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.kernels import catalogue


def test_every_supported_recipe_has_its_kernels_and_pairs_only_where_the_rule_has_some() -> None:
    named = [(name, head_dim) for name, head_dim, _ in catalogue.kernels()]
    recipes = catalogue.supported()
    assert {"native", "k16v8-f", "k4v4-d", "prebias-k8v8-d"} <= set(recipes)
    for recipe in recipes:
        for head_dim in catalogue.HEAD_DIMS:
            for splits in catalogue.SPLITS:
                assert (f"attention {recipe} {splits}", head_dim) in named
    pairs = {(name.split()[1], head_dim) for name, head_dim in named if name.endswith(" pairs")}
    assert ("k16v8-f", 128) in pairs and ("native", 64) in pairs
    assert ("native", 128) not in pairs, "rows of 256 bytes gain nothing"
    assert ("prebias-k8v8-d", 128) in pairs and ("prebias-k8v16-d", 128) not in pairs, "values of 256 bytes a head"


def test_pre_biased_keys_have_attention_and_two_writers_and_nothing_else() -> None:
    named = [name for name, _, _ in catalogue.kernels(["prebias-k8v8-d"], (128,)) if "prebias" in name]
    attention = [f"attention prebias-k8v8-d {what}" for what in ("1", "1 pairs", "4", "4 pairs")]
    assert named == [*attention, "write prebias-k8v8-d", "turn prebias-k8v8-d plain"]
