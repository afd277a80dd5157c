"""A page of bytes: how much it holds, that planes are where they should be, and that kernels keep to them."""

from dataclasses import replace
from itertools import product

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay_vllm.page import PageFormat
from kassay_vllm.settings import ARMS

from kassay.errors import KassayError
from kassay.kernels.host import INTERPRETER
from kassay.kernels.launch import Decode, shape_of
from kassay.kernels.split import Cut
from kassay.kernels.store import store
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.recipe import recipe_named
from tests.vllm.pools import CPU, FIXED, SMALL, D, G, H, cache_of, drawn

QWEN3_8B = {"kv_heads": 8, "head_dim": 128}


@pytest.mark.parametrize(
    ("recipe", "page_bytes"),
    [("native", 65536), ("k16v8-f", 49152), ("k16v8-d", 49664), ("k8v8-f", 32768), ("k8v8-d", 33792)],
)
def test_bytes_of_a_page_of_qwen3_8b(recipe: str, page_bytes: int) -> None:
    assert PageFormat(recipe=recipe_named(recipe), **QWEN3_8B).page_bytes == page_bytes


def test_equal_bytes_hold_a_third_more_tokens_within_one_block() -> None:
    """4/3 for one scale a layer; 512 / 388 with one a token and head."""
    budget, native = 36 * 2**30, PageFormat(recipe=recipe_named("native"), **QWEN3_8B)
    for recipe, limit in (("k16v8-f", 4 / 3), ("k16v8-d", 512 / 388)):
        compact = PageFormat(recipe=recipe_named(recipe), **QWEN3_8B)
        assert budget // compact.page_bytes == pytest.approx(budget / native.page_bytes * limit, abs=1)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("recipe", "sixteen"), [*((name, "fp16") for name in ARMS), ("native", "bf16"), ("k16v8-d", "bf16")]
)
def test_writer_and_decode_agree_with_packed_planes_bit_for_bit(recipe: str, sixteen: str) -> None:
    cache = cache_of(recipe, pages=9, sixteen=sixteen)
    shape = PagedShape(pages=9, page_tokens=16, kv_heads=G, head_dim=D)
    packed = PagedLayer(recipe_named(recipe, sixteen), shape, scales=FIXED.get(recipe, LayerScales()))
    lengths, table = torch.tensor([37, 20]).int(), torch.tensor([[7, 2, 5], [1, 8, 3]]).int()
    slots = torch.cat([torch.arange(32, 48) + 80, torch.arange(16) + 32, torch.arange(5) + 80, torch.arange(16) + 16,
                       torch.arange(4) + 128])  # pages 7, 2, the begin of 5, page 1, the begin of 8  # fmt: skip
    kind = torch.float16 if sixteen == "fp16" else torch.bfloat16
    k, v = drawn(len(slots), G, D, seed=2, sixteen=kind), drawn(len(slots), G, D, seed=3, sixteen=kind)
    before = cache.pages.clone()
    cache.write(k, v, slots)
    store(packed, INTERPRETER, k, v, slots, checked=True)
    planes = [(cache.layer.keys, packed.keys), (cache.layer.values, packed.values)]
    for ours, theirs in planes:
        got = ours.data_PSHW.reshape(9 * 16, -1)[slots].view(torch.uint8)
        assert torch.equal(got, theirs.data_PSHW.reshape(9 * 16, -1)[slots].view(torch.uint8))
        if theirs.scale_PHSG is not None:
            assert ours.scale_PHSG is not None
            assert torch.equal(*(p.scale_PHSG[slots // 16, :, slots % 16] for p in (ours, theirs)))
    touched = torch.zeros(9, dtype=torch.bool)
    touched[slots // 16] = True
    assert torch.equal(before[~touched], cache.pages[~touched]), "a page that no slot names was written"
    assert int((before != cache.pages).sum()) <= len(slots) * cache.format.page_bytes // 16

    q = drawn(2, H, D, seed=4, sixteen=kind)
    found = []
    for layer, heads in product((cache.layer, packed), (1, 2)):
        cut = Cut(tile=replace(SMALL, heads=heads), splits=2)
        found.append(Decode(shape_of(layer, H), INTERPRETER, CPU, 2, 48, cut)(q, layer, table, lengths)[0])
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert bool(found[0].isfinite().all())


def test_pools_of_another_form_are_refused() -> None:
    format = PageFormat(recipe=recipe_named("k16v8-d"), kv_heads=G, head_dim=D)
    pool = torch.zeros((3, format.page_bytes), dtype=torch.uint8)
    with pytest.raises(KassayError, match=r"a pool is .* wanted is uint8"):
        format.layer(pool[:, :-16], LayerScales())
    with pytest.raises(KassayError, match="its pages must follow each other"):
        format.layer(pool.repeat(1, 2)[:, : format.page_bytes], LayerScales())
    with pytest.raises(KassayError, match="a fixed scale is None"):
        fixed = PageFormat(recipe=recipe_named("k16v8-f"), kv_heads=G, head_dim=D)
        fixed.layer(pool[:, :6144].contiguous(), LayerScales())
