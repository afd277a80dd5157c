"""The control that the sources describe: dequantize to a temporary, then attend in 16 bits.

It moves the codes once, and the temporary twice: K16/V8 1.76 times the bytes of K16/V16, INT4 2.27 times.
"""

from dataclasses import replace
from typing import Any

import torch

from kassay.kernels.device.dequantize import dequantize_pages
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, scales, shape_of, words
from kassay.kernels.shape import DecodeShape, require
from kassay.kernels.split import Cut
from kassay.kv.paged import PagedLayer, PagedPlane, PagedShape
from kassay.kv.recipe import NATIVE

ROWS = 32  # of a step


class Unfused:
    """Like `Decode`, over a temporary of the whole pool: made once, overwritten by each call."""

    def __init__(
        self, shape: DecodeShape, pool: PagedShape, host: Host, device: torch.device,
        batch: int, tokens: int, cut: Cut | None = None,
    ) -> None:  # fmt: skip
        require(host, shape)
        native = replace(shape, recipe=NATIVE.on(shape.recipe.sixteen))
        self.attend = Decode(native, host, device, batch, tokens, cut)
        self.page_tokens = pool.page_tokens
        self.host = host
        quantized = (shape.key_number != 0, shape.value_number != 0)
        self.temporary = PagedLayer(native.recipe, pool, "meta")
        held = [PagedLayer(native.recipe, pool, device if is_quantized else "meta") for is_quantized in quantized]
        self.temporary.keys, self.temporary.values = held[0].keys, held[1].values

    def __call__(
        self,
        q_BHD: torch.Tensor,
        layer: PagedLayer,
        table_BX: torch.Tensor,
        lengths_B: torch.Tensor,
        *outs: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What `Decode` returns; pages used by two sequences are dequantized twice."""
        self.temporary.keys = self._sixteen(layer, layer.keys, self.temporary.keys, table_BX, lengths_B)
        self.temporary.values = self._sixteen(layer, layer.values, self.temporary.values, table_BX, lengths_B)
        return self.attend(q_BHD, self.temporary, table_BX, lengths_B, *outs)

    def _sixteen(
        self, layer: PagedLayer, plane: PagedPlane, to: PagedPlane, table: torch.Tensor, lengths: torch.Tensor
    ) -> PagedPlane:
        if plane.sixteen_bit:
            return plane
        pages = -(-self.attend.tokens // self.page_tokens)
        dequantize_pages[(pages, len(lengths))](
            words(plane), scales(plane, lengths), to.data_PSHW, table, lengths, table.stride(0),
            **options(shape_of(layer, layer.shape.kv_heads), plane, self.host)
        )  # fmt: skip
        return to


def options(shape: DecodeShape, plane: PagedPlane, host: Host) -> dict[str, Any]:
    """Compile-time arguments of the dequantizer."""
    number = shape.key_number if plane.rule.stored == shape.recipe.key_format else shape.value_number
    return {
        "KV_HEADS": shape.kv_heads,
        "D": shape.head_dim,
        "PAGE": shape.page_tokens,
        "FORMAT": number,
        "DYNAMIC": plane.scale_PHSG is not None,
        "BLOCK": ROWS,
        "ASM": host.converts_e4m3,
        "num_warps": 4,
    }
