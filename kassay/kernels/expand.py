"""Attention as the old INT4 law measured it: a head-expanding 16-bit baseline, and one program a query head.

Axes: B sequences, H query heads, G KV heads, D head dim, X pages of a sequence.

Of one K16/V16 call over grouped heads, in bytes of keys and values, G query heads to a KV head:

    grouped     1            our K16/V16: each byte is read once
    expanded    G            a copy of its own for each query head, there before the call
    expanding   1 + 2 G      the same copy made within the call, as repeat_kv makes it: read, written, read again

`EachHead` is fused INT4 with the published launch. All three take what `Decode` takes.
"""

from dataclasses import replace
from typing import Any

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.device.attention import attention_merge
from kassay.kernels.device.expand import attention_head, repeat_heads
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, scales, words
from kassay.kernels.shape import DecodeShape, require
from kassay.kernels.split import Cut, Tile, chunk_of
from kassay.kv.paged import PagedLayer, PagedShape

HEAD_TILE = Tile(tokens=32, warps=4, stages=2)  # of a single row: four words a lane


def expanded_shape(shape: DecodeShape) -> DecodeShape:
    """A KV head for every query head."""
    return replace(shape, kv_heads=shape.query_heads)


class Repeat:
    """Repeat the heads of a batch's pages into a layer of its own, pages in the order of the table."""

    def __init__(self, shape: DecodeShape, device: torch.device, batch: int, tokens: int) -> None:
        if shape.key_number or shape.value_number:
            raise KassayError(f"heads are repeated in 16 bits, recipe `{shape.recipe.name}` stores fewer")
        self.shape, self.pages = shape, -(-tokens // shape.page_tokens)
        pool = PagedShape(
            pages=batch * self.pages, page_tokens=shape.page_tokens, kv_heads=shape.query_heads,
            head_dim=shape.head_dim,
        )  # fmt: skip
        self.layer = PagedLayer(shape.recipe, pool, "meta")
        for plane in (self.layer.keys, self.layer.values):
            plane.data_PSHW = torch.empty_like(plane.data_PSHW, device=device)
        self.table_BX = torch.arange(pool.pages, dtype=torch.int32, device=device).view(batch, self.pages)

    def __call__(self, layer: PagedLayer, table_BX: torch.Tensor, lengths_B: torch.Tensor) -> PagedLayer:
        """The repeated layer, whose table is `table_BX` of this object."""
        to, shape = self.layer, self.shape
        repeat_heads[(self.pages, shape.kv_heads, len(lengths_B))](
            layer.keys.data_PSHW, layer.values.data_PSHW, to.keys.data_PSHW, to.values.data_PSHW, table_BX, lengths_B,
            table_BX.stride(0), **repeat_options(shape)
        )  # fmt: skip
        return to


class Expanding:
    """K16/V16 attention that repeats the heads within the call; made once, its copy overwritten by each call."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int, cut: Cut | None = None
    ) -> None:
        self.attend = Decode(expanded_shape(shape), host, device, batch, tokens, cut)
        self.repeat = Repeat(shape, device, batch, tokens)
        self.cut = self.attend.cut

    def __call__(
        self, q_BHD: torch.Tensor, layer: PagedLayer, table_BX: torch.Tensor, lengths_B: torch.Tensor,
        *outs: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """What `Decode` returns."""
        copy = self.repeat(layer, table_BX, lengths_B)
        return self.attend(q_BHD, copy, self.repeat.table_BX[: len(lengths_B)], lengths_B, *outs)


class EachHead:
    """Fused INT4 attention, one program a query head, whole contexts unless the cut has splits."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int, cut: Cut | None = None
    ) -> None:
        require(host, shape)
        if (shape.key_number, shape.value_number, shape.recipe.policy) != (3, 3, "dynamic"):
            raise KassayError(f"one program a query head reads dynamic INT4, not recipe `{shape.recipe.name}`")
        self.shape, self.host = shape, host
        cut = cut or Cut(tile=HEAD_TILE, splits=1)
        self.chunk = chunk_of(tokens, cut.splits, cut.tile.tokens)
        self.cut = replace(cut, splits=-(-max(1, tokens) // self.chunk))
        rows = batch * shape.query_heads * self.cut.splits if self.cut.splits > 1 else 0
        self.part = torch.empty(rows * shape.head_dim, dtype=torch.float32, device=device)
        self.part_lse = torch.empty(rows, dtype=torch.float32, device=device)

    def __call__(
        self, q_BHD: torch.Tensor, layer: PagedLayer, table_BX: torch.Tensor, lengths_B: torch.Tensor,
        out_BHD: torch.Tensor, lse_BH: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """What `Decode` returns."""
        several = self.cut.splits > 1
        outs = (self.part, self.part_lse) if several else (out_BHD, lse_BH)
        attention_head[(self.shape.query_heads, self.cut.splits, len(q_BHD))](
            q_BHD, words(layer.keys), words(layer.values), scales(layer.keys, lse_BH), scales(layer.values, lse_BH),
            table_BX, lengths_B, *outs, self.shape.head_dim**-0.5, self.chunk, table_BX.stride(0), self.cut.splits,
            **head_options(self.shape, self.host, self.cut)
        )  # fmt: skip
        if several:
            attention_merge[(len(q_BHD) * self.shape.query_heads,)](
                self.part, self.part_lse, out_BHD, lse_BH, self.cut.splits, D=self.shape.head_dim,
                BLOCK_C=triton.next_power_of_2(self.cut.splits), PDL=False, num_warps=4
            )  # fmt: skip
        return out_BHD, lse_BH


def repeat_options(shape: DecodeShape) -> dict[str, Any]:
    """Compile-time arguments of the repeating kernel."""
    return {
        "KV_HEADS": shape.kv_heads,
        "GROUP": shape.group,
        "D": shape.head_dim,
        "PAGE": shape.page_tokens,
        "num_warps": 4,
    }


def head_options(shape: DecodeShape, host: Host, cut: Cut) -> dict[str, Any]:
    """Compile-time arguments of the kernel of one query head."""
    return {
        "KV_HEADS": shape.kv_heads,
        "GROUP": shape.group,
        "D": shape.head_dim,
        "PAGE": shape.page_tokens,
        "SEVERAL": cut.splits > 1,
        "BLOCK_N": cut.tile.tokens,
        "ASM": host.converts_e4m3,
        "num_warps": cut.tile.warps,
        "num_stages": cut.tile.stages,
    }
