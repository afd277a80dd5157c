"""Decode attention under the interpreter, against float64 on the stored operands. Small shapes: it is slow."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.launch import Decode, host_of, shape_of
from kassay.kernels.shape import supports
from kassay.kernels.split import Cut, Tile, cut_of
from kassay.kernels.tuning import Book, key_of, source_version
from kassay.kernels.unfused import Unfused
from kassay.kv.paged import PAGE_TOKENS
from kassay.kv.recipe import RECIPES, recipe_named
from tests.kernels.cases import CPU, INTERPRETER, LSE, NORM, SMALL, Case, case_of

RAGGED = [33, 0, 70, 1]
SUPPORTED = [
    recipe.name
    for recipe in RECIPES
    if supports(INTERPRETER, replace(shape_of(case_of("native", (4, 2), 64, 16, [1]).layer, 4), recipe=recipe))
]


def check(case: Case, splits: int = 2, tile: Tile = SMALL) -> None:
    """Within the tolerances, whatever lies in slots without a token."""
    norm, lse = case.errors(case.run(splits, tile))
    assert norm < NORM[case.layer.recipe.sixteen], norm
    assert lse < LSE, lse


def test_the_recipes_of_the_field_are_supported() -> None:
    assert {"native", "k4v4-d", *(f"{stem}-{one}" for stem in ("k16v8", "k8v16", "k8v8") for one in "fd")} <= {
        *SUPPORTED
    }


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("recipe", SUPPORTED)
def test_every_recipe_over_ragged_sequences(recipe: str, splits: int) -> None:
    check(case_of(recipe, (6, 2), 128, 16, RAGGED), splits)


@pytest.mark.parametrize("recipe", ["native", "k16v8-d", "k8v8-f", "k4v4-d"])
@pytest.mark.parametrize("page_tokens", PAGE_TOKENS)
def test_every_page_size(recipe: str, page_tokens: int) -> None:
    check(case_of(recipe, (4, 2), 64, page_tokens, RAGGED))


@pytest.mark.parametrize("recipe", ["k16v8-d", "k4v4-d"])
@pytest.mark.parametrize("heads", [(3, 3), (5, 1), (14, 2), (71, 1)], ids=["mha", "five", "seven", "mqa71"])
def test_any_group_of_query_heads(heads: tuple[int, int], recipe: str) -> None:
    check(case_of(recipe, heads, 64, 16, [40, 17]))


@pytest.mark.parametrize("recipe", ["native", "k16v8-d", "k8v8-f", "k8v4-d"])
def test_bf16(recipe: str) -> None:
    check(case_of(recipe, (4, 2), 64, 16, RAGGED, "bf16"))


def test_lengths_around_the_steps_of_splits_and_pages() -> None:
    for length in (15, 16, 17, 31, 32, 33, 63, 64, 65):
        check(case_of("k8v8-d", (2, 1), 64, 16, [length, 65]), 3)


def test_requests_that_are_permuted_or_lie_elsewhere_give_the_same_bits() -> None:
    case = case_of("k16v8-d", (4, 2), 64, 16, RAGGED)
    out, lse = case.run(3)
    order = torch.tensor([2, 0, 3, 1])
    moved = replace(case, table_BX=case.table_BX[order], lengths_B=case.lengths_B[order], q_BHD=case.q_BHD[order])
    again, lse_again = moved.run(3)
    assert torch.equal(again, out[order])
    assert torch.equal(lse_again, lse[order])


@pytest.mark.parametrize("fault", ["value scales", "key scales", "page", "length", "head", "codes"])
def test_a_fault_is_beyond_the_tolerance(fault: str) -> None:
    """So that the tolerances above are no wave-through: each fault alone, and the reference stays as it was."""
    case = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    broken = case_of("k8v8-d", (4, 2), 64, 16, [40, 70])
    planes = broken.layer.keys, broken.layer.values
    if fault == "value scales":
        planes[1].scale_PHSG *= 1.002
    elif fault == "key scales":
        planes[0].scale_PHSG *= 2
    elif fault == "page":
        broken.table_BX[:, 0] = broken.table_BX[:, 1]
    elif fault == "length":
        broken.lengths_B -= 1
    elif fault == "head":
        broken.layer.keys.data_PSHW = planes[0].data_PSHW.flip(2).contiguous()
    else:
        planes[1].data_PSHW[broken.table_BX[0, 0].long(), 3, 0, 5] ^= 0x80
    norm, lse = case.errors(broken.run(2))
    assert not (norm < NORM["fp16"] and lse < LSE)


@pytest.mark.parametrize("recipe", ["k16v8-d", "k8v16-f", "k8v8-d", "ki8v16-d", "k4v4-d"])
def test_the_unfused_control_gives_the_same(recipe: str) -> None:
    case = case_of(recipe, (4, 2), 64, 16, RAGGED)
    for plane in (case.layer.keys, case.layer.values):  # a tail page is dequantized as a whole, and never read
        plane.data_PSHW.masked_fill_(plane.data_PSHW == 0x7F, 0) if not plane.sixteen_bit else None
    shape = shape_of(case.layer, 4)
    control = Unfused(shape, case.layer.shape, INTERPRETER, CPU, 4, 80, case.decode(2).cut)
    norm, lse = case.errors(control(case.q_BHD, case.layer, case.table_BX, case.lengths_B))
    assert norm < 2 * NORM["fp16"]  # the temporary is rounded once more
    assert lse < 2e-2


def test_a_launcher_takes_what_a_book_has_measured_and_the_rule_s_cut_else(tmp_path: Path) -> None:
    shape = shape_of(case_of("k16v8-d", (4, 2), 64, 16, [20]).layer, 4)
    book = Book(tmp_path / "book.json")
    kept = Cut(tile=Tile(tokens=16, warps=1, stages=2), splits=5)
    key = key_of(INTERPRETER, shape, 2, 80, source_version(triton.__version__), uneven=True)
    book.keep(key, kept, 1e-5)
    of_rule = cut_of(shape, INTERPRETER, 2, 80, uneven=True)
    assert Decode(shape, INTERPRETER, CPU, 2, 80, book=book).cut == kept != of_rule
    for other in (Decode(shape, INTERPRETER, CPU, 2, 80), Decode(shape, INTERPRETER, CPU, 3, 80, book=book)):
        assert other.cut.tile == of_rule.tile
    equal = Decode(shape, INTERPRETER, CPU, 2, 80, uneven=False, book=book)
    assert equal.cut.tile == cut_of(shape, INTERPRETER, 2, 80, uneven=False).tile


def test_a_step_of_a_part_of_a_page_is_refused() -> None:
    shape = shape_of(case_of("native", (4, 2), 64, 32, [20]).layer, 4)
    cut = Cut(tile=Tile(tokens=16, warps=1, stages=3), splits=1)
    with pytest.raises(KassayError, match="a step of 16 tokens is no whole pages of 32"):
        Decode(shape, INTERPRETER, CPU, 1, 80, cut)


def test_calls_are_refused_by_name() -> None:
    case = case_of("k16v8-d", (4, 2), 64, 16, [20, 3])
    decode = case.decode(1)
    with pytest.raises(KassayError, match=r"q is .* of torch.float32"):
        decode(case.q_BHD.float(), case.layer, case.table_BX, case.lengths_B)
    with pytest.raises(KassayError, match=r"up to 2 sequences of \(4, 64\)"):
        decode(case.q_BHD[:, :3].contiguous(), case.layer, case.table_BX, case.lengths_B)
    with pytest.raises(KassayError, match=r"block table is .* of torch.int64"):
        decode(case.q_BHD, case.layer, case.table_BX.long(), case.lengths_B)
    with pytest.raises(KassayError, match="block table of 16 tokens does not cover the 32"):
        decode(case.q_BHD, case.layer, case.table_BX[:, :1], case.lengths_B)
    with pytest.raises(KassayError, match=r"lengths are .* of torch.int64"):
        decode(case.q_BHD, case.layer, case.table_BX, case.lengths_B.long())
    with pytest.raises(KassayError, match="the layer is another"):
        decode(case.q_BHD, case_of("native", (4, 2), 64, 16, [20]).layer, case.table_BX, case.lengths_B)
    with pytest.raises(KassayError, match="q is not contiguous"):
        decode(case.q_BHD.transpose(0, 1).contiguous().transpose(0, 1), case.layer, case.table_BX, case.lengths_B)


def test_the_host_of_a_cpu_is_the_interpreter_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_of(CPU) == INTERPRETER
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(KassayError, match="TRITON_INTERPRET=1 interprets"):
        host_of(CPU)


def test_what_has_no_kernel_is_refused_by_name() -> None:
    case = case_of("native", (4, 2), 64, 16, [20])
    case.layer.recipe = recipe_named("k4v4-g32")
    with pytest.raises(KassayError, match="`k4v4-g32`: scale policy `group`"):
        case.decode(1)
