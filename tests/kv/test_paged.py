"""The paged layout: what lies in which slot, bit for bit against kassay.kv.formats, and what is refused.

Axes: B sequences, H KV heads, T tokens, D head dim, N tokens of a write, X pages of a sequence.
"""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from kassay.errors import KassayError
from kassay.kv import geometry
from kassay.kv.expected import quantized
from kassay.kv.paged import PAGE_TOKENS, LayerScales, PagedLayer, PagedShape, slots_of
from kassay.kv.pages import Pages
from kassay.kv.plane import DTYPES, as_numpy
from kassay.kv.recipe import RECIPES, Recipe, recipe_named
from tests.kv.caches import bias_of

H, D = 2, 64
FIXED = LayerScales(keys=0.011, values=0.007)
PAGED = [recipe for recipe in RECIPES if recipe.policy != "tensor"]
ONE = geometry.Geometry(layers=1, kv_heads=H, head_dim=D)


def layer_of(recipe: Recipe, pages: int, page_tokens: int = 16) -> PagedLayer:
    """An empty layer of that recipe."""
    shape = PagedShape(pages=pages, page_tokens=page_tokens, kv_heads=H, head_dim=D)
    offset = bias_of(ONE).offset(0) if recipe.prebias else None
    return PagedLayer(recipe, shape, scales=FIXED, key_offset=offset)


def operands(count: int, seed: int, sixteen: str = "fp16") -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values NHD of tokens whose sizes differ."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn((2, count, H, D), generator=generator)
    sizes = torch.exp(2 * torch.randn((2, count, H, 1), generator=generator))
    both = (drawn * sizes).to(DTYPES[sixteen])
    return both[0], both[1]


def wanted_of(recipe: Recipe, x_NHD: torch.Tensor, part: str, positions: torch.Tensor) -> Any:
    """What kassay.kv.formats stores of these tokens, as one sequence B=1."""
    stored = recipe.key_format if part == "keys" else recipe.value_format
    number = FIXED.keys if part == "keys" else FIXED.values
    offset = None
    if recipe.prebias and part == "keys":
        offset = bias_of(ONE).offset(0)(0, int(positions.max()) + 1, torch.device("cpu"))[0][:, positions].numpy()
    operand = as_numpy(x_NHD.transpose(0, 1)[None].contiguous())
    return quantized(recipe, stored, operand, [len(x_NHD)], np.float32(number), offset)


def check_bits(
    layer: PagedLayer, slots: torch.Tensor, k_NHD: torch.Tensor, v_NHD: torch.Tensor, at: torch.Tensor
) -> None:
    """Every slot holds the codes and scales of its token."""
    for part, plane, x_NHD in (("keys", layer.keys, k_NHD), ("values", layer.values, v_NHD)):
        wanted = wanted_of(layer.recipe, x_NHD, part, at)
        data, scale = plane.stored(slots[None])
        assert np.array_equal(as_numpy(data.contiguous()), wanted.data_BGSD), part
        if wanted.scale is not None:
            assert scale is not None
            assert np.array_equal(scale.numpy(), wanted.scale), part
        else:
            assert scale is None


@pytest.mark.parametrize("sixteen", ["fp16", "bf16"])
@pytest.mark.parametrize("page_tokens", PAGE_TOKENS)
@pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)
def test_bits_are_those_of_the_formats_in_any_slots(recipe: Recipe, page_tokens: int, sixteen: str) -> None:
    layer = layer_of(recipe.on(sixteen), pages=-(-96 // page_tokens), page_tokens=page_tokens)
    k_NHD, v_NHD = operands(41, 1, sixteen)
    slots = torch.randperm(96, generator=torch.Generator().manual_seed(2))[:41]
    at = torch.randperm(50, generator=torch.Generator().manual_seed(3))[:41]
    for piece in torch.arange(41).split([1, 15, 17, 8]):
        layer.write(k_NHD[piece], v_NHD[piece], slots[piece], at[piece])
    check_bits(layer, slots, k_NHD, v_NHD, at)


@pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)
def test_a_gather_is_the_reconstruction_wherever_the_tokens_lie(recipe: Recipe) -> None:
    lengths = torch.tensor([33, 1, 16, 17])  # a page boundary, tails of one token, a full page
    k_NHD, v_NHD = operands(int(lengths.sum()), 4)
    seen = []
    for seed in (5, 6):
        layer = layer_of(recipe, pages=12)
        pages = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
        table = torch.full((4, 3), -7)  # what is beyond a sequence's pages is never read
        for row, count in enumerate((3, 1, 1, 2)):
            table[row, :count], pages = pages[:count], pages[count:]
        slots = slots_of(table, lengths, layer.shape)
        at = torch.arange(33).expand(4, -1)[slots >= 0]
        layer.write(k_NHD, v_NHD, slots[slots >= 0], at)
        seen.append(layer.gather(table, lengths, torch.float32))
        order = torch.tensor([2, 0, 3, 1])
        permuted = layer.gather(table[order], lengths[order], torch.float32)
        assert all(torch.equal(one, other[order]) for one, other in zip(permuted, seen[-1], strict=True))
        wanted = wanted_of(recipe, k_NHD[:33], "keys", at[:33])
        assert seen[-1][0].shape == (4, H, 33, D)
        assert not seen[-1][0][1, :, 1:].any()
        if wanted.scale is None:
            assert np.array_equal(seen[-1][0][0].numpy(), wanted.data_BGSD[0].astype(np.float32))
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))


@pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)
def test_stored_codes_stay_as_they_are_and_a_reused_slot_holds_the_new_token_alone(recipe: Recipe) -> None:
    layer, pages = layer_of(recipe, pages=2), Pages(2)
    k_NHD, v_NHD = operands(48, 7)
    at = torch.arange(48)
    first, second = pages.take(1), pages.take(1)
    layer.write(k_NHD[:16], v_NHD[:16], first[0] * 16 + at[:16], at[:16])
    layer.write(300 * k_NHD[16:32].clamp(-9, 9), v_NHD[16:32], second[0] * 16 + at[:16], at[16:32])
    check_bits(layer, first[0] * 16 + at[:16], k_NHD[:16], v_NHD[:16], at[:16])
    pages.give_back(first)
    third = pages.take(1)
    assert third == first
    layer.write(k_NHD[32:], v_NHD[32:], third[0] * 16 + at[:16], at[32:])
    check_bits(layer, third[0] * 16 + at[:16], k_NHD[32:], v_NHD[32:], at[32:])


@pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)
def test_a_skipped_token_stores_nothing_whatever_it_holds(recipe: Recipe) -> None:
    layer = layer_of(recipe, pages=1)
    k_NHD, v_NHD = operands(4, 8)
    k_NHD[1], v_NHD[3] = float("nan"), float("inf")
    before = [storage.tensor.clone() for storage in layer.storages(0)]
    layer.write(k_NHD, v_NHD, torch.full((4,), -1), torch.arange(4))
    assert all(torch.equal(kept.tensor, was) for kept, was in zip(layer.storages(0), before, strict=True))
    slots = torch.tensor([3, -1, 9, -1])
    layer.write(k_NHD, v_NHD, slots, torch.arange(4))
    kept = slots >= 0
    check_bits(layer, slots[kept], k_NHD[kept], v_NHD[kept], torch.arange(4)[kept])
    others = [slot for slot in range(16) if slot not in (3, 9)]
    assert not layer.keys.data_PSHW.view(16, -1)[others].any()


@pytest.mark.parametrize("recipe", PAGED, ids=lambda recipe: recipe.name)
def test_bytes_agree_with_the_geometry_and_storages_are_disjoint(recipe: Recipe) -> None:
    layer = layer_of(recipe, pages=5)
    storages = [storage.tensor for storage in layer.storages(0)]
    held = sum(tensor.untyped_storage().nbytes() for tensor in storages)
    scalars = geometry.SCALE_BYTES * geometry.fixed_scales(ONE, recipe)
    assert held == 80 * geometry.token_bytes(ONE, recipe) + scalars
    spans = [(tensor.data_ptr(), tensor.data_ptr() + tensor.untyped_storage().nbytes()) for tensor in storages]
    for one, other in itertools.combinations(spans, 2):
        assert one[1] <= other[0] or other[1] <= one[0]


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([0, 32], "slot 32 is out of range, allowed are 0 to 31"),
        ([0, -2], "slot -2 is out of range"),
        ([5, 5], "slot 5 is given twice"),
    ],
)
def test_bad_slots_are_refused_by_name_and_nothing_is_stored(slots: list[int], message: str) -> None:
    layer = layer_of(recipe_named("k16v8-d"), pages=2)
    with pytest.raises(KassayError, match=message):
        layer.write(*operands(2, 9), torch.tensor(slots))
    assert not layer.keys.data_PSHW.any()


def test_operands_are_refused_whole_and_by_name() -> None:
    layer = layer_of(recipe_named("k16v8-d"), pages=2)
    k_NHD, v_NHD = operands(2, 9)
    with pytest.raises(KassayError, match=r"values of a write are \(2, 2, 63\)"):
        layer.write(k_NHD, v_NHD[..., :63], torch.tensor([0, 1]))
    with pytest.raises(KassayError, match="int64"):
        layer.write(k_NHD, v_NHD, torch.tensor([0, 1], dtype=torch.int32))
    v_NHD[1, 1, 5] = float("inf")
    with pytest.raises(KassayError, match="not finite"):
        layer.write(k_NHD, v_NHD, torch.tensor([0, 1]))
    assert not layer.keys.data_PSHW.any()


def test_recipes_and_pools_without_a_paged_form_are_refused_by_name() -> None:
    with pytest.raises(KassayError, match="`k8v8-t` scales what one write brings"):
        layer_of(recipe_named("k8v8-t"), pages=1)
    with pytest.raises(KassayError, match="pages of 4 tokens are not supported"):
        layer_of(recipe_named("native"), pages=1, page_tokens=4)
    shape = PagedShape(pages=1, page_tokens=16, kv_heads=H, head_dim=D)
    with pytest.raises(KassayError, match="`prebias-k8v8-d` subtracts the key bias, and no offset"):
        PagedLayer(recipe_named("prebias-k8v8-d"), shape)
    with pytest.raises(KassayError, match="`k8v8-d` subtracts no key bias"):
        PagedLayer(recipe_named("k8v8-d"), shape, key_offset=bias_of(ONE).offset(0))
    with pytest.raises(KassayError, match="`k8v8-f`: a fixed scale is None"):
        PagedLayer(recipe_named("k8v8-f"), shape, scales=LayerScales(values=1.0))
    with pytest.raises(KassayError, match="needs the position of each of 2 tokens"):
        layer_of(recipe_named("prebias-k8v8-d"), pages=1).write(*operands(2, 1), torch.tensor([0, 1]))


def test_block_tables_are_checked_where_they_are_read() -> None:
    shape = PagedShape(pages=3, page_tokens=16, kv_heads=H, head_dim=D)
    with pytest.raises(KassayError, match="names pages 0 to 3 of 3"):
        slots_of(torch.tensor([[0, 3]]), torch.tensor([17]), shape)
    with pytest.raises(KassayError, match="does not cover 1 sequences of up to 33"):
        slots_of(torch.tensor([[0, 1]]), torch.tensor([33]), shape)
    assert slots_of(torch.tensor([[2, 9]]), torch.tensor([2]), shape).tolist() == [[32, 33]]


def test_pages_are_held_once() -> None:
    pages = Pages(3)
    taken = pages.take(2)
    with pytest.raises(KassayError, match="2 pages were asked for, 1 of 3"):
        pages.take(2)
    for wrong in ([taken[0], taken[0]], [2]):
        with pytest.raises(KassayError, match="given back once"):
            pages.give_back(wrong)
    pages.give_back(taken)
    assert pages.free == 3
    assert sorted(pages.take(3)) == [0, 1, 2]
