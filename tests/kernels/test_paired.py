"""Pairs of KV heads as one row, under the interpreter: the bits of the single heads, and what makes no pairs."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.host import INTERPRETER
from kassay.kernels.launch import Decode
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut, tiles_of
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import CPU, LSE, NORM, PAIRS, case_of

RECIPES = (
    "native",
    "k16v8-f",
    "k16v8-d",
    "k8v16-d",
    "k8v8-d",
    "ki8vi8-d",
    "k4v4-d",
    "prebias-k8v8-d",
    "prebias-k8v16-f",
)
RAGGED = [33, 0, 70, 1]


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("recipe", RECIPES)
def test_pairs_give_what_float64_gives_and_the_bits_of_the_single_heads(recipe: str, splits: int) -> None:
    case = case_of(recipe, (16, 4), 64, 16, RAGGED)
    found, single = case.run(splits, PAIRS), case.run(splits)
    norm, lse = case.errors(found)
    assert norm < NORM["fp16"] and lse < LSE
    assert torch.equal(found[0], single[0]) and torch.equal(found[1], single[1])


@pytest.mark.parametrize(
    ("heads", "page_tokens", "sixteen"),
    [((2, 2), 16, "fp16"), ((6, 2), 8, "fp16"), ((8, 4), 32, "fp16"), ((4, 2), 1, "fp16"), ((8, 2), 16, "bf16")],
)
def test_other_groups_pages_and_formats(heads: tuple[int, int], page_tokens: int, sixteen: str) -> None:
    case = case_of("k8v8-d", heads, 64, page_tokens, [40, 17], sixteen)
    norm, lse = case.errors(case.run(1, PAIRS))
    assert norm < NORM[sixteen] and lse < LSE


@pytest.mark.parametrize("side", ["keys", "values"])
def test_a_scale_of_the_other_head_is_beyond_the_tolerance(side: str) -> None:
    case = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    broken = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    getattr(broken.layer, side).scale_PHSG *= torch.tensor([1.0, 1.5])[None, :, None, None]
    norm, lse = case.errors(broken.run(1, PAIRS))
    assert not (norm < NORM["fp16"] and lse < LSE)


def test_what_makes_no_pairs_is_refused_and_never_chosen() -> None:
    for heads in ((6, 3), (10, 2), (71, 1)):
        shape = DecodeShape(
            recipe=recipe_named("native"), query_heads=heads[0], kv_heads=heads[1], head_dim=64, page_tokens=16
        )
        assert {tile.heads for tile in tiles_of(shape)} == {1}
        with pytest.raises(KassayError, match=f"{heads[0]} query heads on {heads[1]} KV heads make no rows of 2 heads"):
            Decode(shape, INTERPRETER, CPU, 1, 64, Cut(tile=PAIRS, splits=1))
