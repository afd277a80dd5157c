"""Pairs of KV heads as one, under the interpreter: the outputs of the single heads, and what makes no pairs."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.host import INTERPRETER
from kassay.kernels.launch import shape_of
from kassay.kernels.paired import Paired, own_half, paired_layer, paired_shape, spread
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import CPU, LSE, NORM, SMALL, Case, case_of

RECIPES = ("native", "k16v8-f", "k16v8-d", "k8v16-d", "k8v8-d", "ki8vi8-d", "k4v4-d")
RAGGED = [33, 0, 70, 1]


def run(case: Case, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-normalizer of the single heads, from poisoned memory."""
    kv_heads, q = case.layer.shape.kv_heads, spread(case.q_BHD, case.layer.shape.kv_heads)
    longest = case.table_BX.shape[1] * case.layer.shape.page_tokens
    shape, cut = shape_of(case.layer, case.q_BHD.shape[1]), Cut(tile=SMALL, splits=splits)
    kernel = Paired(shape, INTERPRETER, CPU, len(q), longest, cut)
    kernel.part.fill_(float("nan"))
    kernel.part_lse.fill_(float("nan"))
    out, lse = torch.full_like(q, float("nan")), torch.full(q.shape[:2], float("nan"))
    kernel(q, paired_layer(case.layer), case.table_BX, case.lengths_B, out, lse)
    return own_half(out, kv_heads), lse


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("recipe", RECIPES)
def test_pairs_give_what_float64_gives_of_the_single_heads(recipe: str, splits: int) -> None:
    case = case_of(recipe, (16, 4), 64, 16, RAGGED)
    norm, lse = case.errors(run(case, splits))
    assert norm < NORM["fp16"] and lse < LSE


@pytest.mark.parametrize(("heads", "page_tokens"), [((2, 2), 16), ((6, 2), 8), ((8, 4), 32), ((4, 2), 1)])
def test_other_groups_and_pages(heads: tuple[int, int], page_tokens: int) -> None:
    case = case_of("k8v8-d", heads, 64, page_tokens, [40, 17])
    norm, lse = case.errors(run(case, 1))
    assert norm < NORM["fp16"] and lse < LSE


@pytest.mark.parametrize("side", ["keys", "values"])
def test_a_scale_of_the_other_head_is_beyond_the_tolerance(side: str) -> None:
    case = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    broken = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    getattr(broken.layer, side).scale_PHSG *= torch.tensor([1.0, 1.5])[None, :, None, None]
    norm, lse = case.errors(run(broken, 1))
    assert not (norm < NORM["fp16"] and lse < LSE)


def test_what_makes_no_pairs_is_refused() -> None:
    for heads in ((6, 3), (10, 2), (71, 1)):
        shape = DecodeShape(
            recipe=recipe_named("native"), query_heads=heads[0], kv_heads=heads[1], head_dim=64, page_tokens=16
        )
        with pytest.raises(KassayError, match="make no pairs"):
            paired_shape(shape)
