"""The writing kernel against kassay.kv.paged, whose bits are those of kassay.kv.formats by its own test."""

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.errors import KassayError
from kassay.kernels.store import store
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.plane import DTYPES
from kassay.kv.recipe import recipe_named
from tests.kernels.cases import INTERPRETER
from tests.kernels.test_attention import SUPPORTED

H, D = 3, 64
SCALES = LayerScales(keys=0.011, values=0.07)


def empty(recipe: str, sixteen: str = "fp16", page_tokens: int = 16) -> PagedLayer:
    """An empty layer of 96 slots."""
    shape = PagedShape(pages=96 // page_tokens, page_tokens=page_tokens, kv_heads=H, head_dim=D)
    return PagedLayer(recipe_named(recipe, sixteen), shape, scales=SCALES)


def operands(count: int, sixteen: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of very different sizes, one of zeros, one that a fixed scale clips; each a view into wider rows."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.exp(4 * torch.randn((2, count, 1, 1), generator=generator))
    drawn = (torch.randn((2, count, H, D), generator=generator) * sizes).clamp(-6e4, 6e4)
    drawn[:, 0] = 0
    drawn[:, 1, 0, 0] = torch.tensor([6e4, -6e4])
    wide = torch.zeros((2, count, 2 * H * D), dtype=DTYPES[sixteen])
    wide[:, :, : H * D] = drawn.reshape(2, count, -1).to(DTYPES[sixteen])
    both = wide[:, :, : H * D].unflatten(-1, (H, D))
    return both[0], both[1]


@pytest.mark.parametrize("sixteen", ["fp16", "bf16"])
@pytest.mark.parametrize("recipe", SUPPORTED)
def test_bits_are_the_reference_writer_s(recipe: str, sixteen: str) -> None:
    for page_tokens in (1, 16):
        wanted, got = empty(recipe, sixteen, page_tokens), empty(recipe, sixteen, page_tokens)
        k_NHD, v_NHD = operands(41, sixteen)
        slots = torch.randperm(96, generator=torch.Generator().manual_seed(5))[:41]
        slots[7] = -1
        wanted.write(k_NHD, v_NHD, slots)
        store(got, INTERPRETER, k_NHD, v_NHD, slots, checked=True)
        for one, other in zip(wanted.storages(0), got.storages(0), strict=True):
            assert torch.equal(one.tensor.flatten().view(torch.uint8), other.tensor.flatten().view(torch.uint8)), (
                one.part
            )


def test_bad_writes_are_refused_by_name_and_store_nothing() -> None:
    layer = empty("k16v8-d")
    k_NHD, v_NHD = operands(2, "fp16")

    def refused(match: str, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        with pytest.raises(KassayError, match=match):
            store(layer, INTERPRETER, keys, values, slots, checked=True)
        assert not layer.keys.data_PSHW.any()

    two = torch.tensor([0, 1])
    refused("slot 96 is out of range", k_NHD, v_NHD, torch.tensor([0, 96]))
    refused("slot 4 is given twice", k_NHD, v_NHD, torch.tensor([4, 4]))
    refused("slots are one contiguous axis of int64", k_NHD, v_NHD, two.int())
    refused("keys of a write are .* of torch.bfloat16", k_NHD.bfloat16(), v_NHD, two)
    refused("values of a write have strides", k_NHD, v_NHD.transpose(1, 2).contiguous().transpose(1, 2), two)
    refused("not finite", k_NHD, torch.full_like(v_NHD, float("inf")), two)
