"""Prefill of quantized pages: a compact gather into a bounded 16-bit workspace, then the native prefill kernel.

Axes: T query tokens, packed; H query heads, G KV heads, D head dim, X pages of a sequence; S tokens of the workspace.

The workspace is allocated once; kassay.kernels.fill says how a batch that it does not hold is cut. Everything is read
back from pages, the tokens of this step too: what a request attends does not depend on how its prompt was cut.
What this moves for each token and component: the stored bytes once, 16 bits written, and 16 bits read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kernels.device.gather import gather_pages
from kassay.kernels.fill import Asked, Fill, fills
from kassay.kernels.host import Host
from kassay.kernels.launch import PACKED, scales, shape_of, steps, words
from kassay.kernels.native import Merge, Spans, attend
from kassay.kernels.shape import DecodeShape, require
from kassay.kv.paged import PagedLayer
from kassay.kv.plane import DTYPES

ROWS = 32  # of a program

Rows = slice | torch.Tensor  # places of query tokens: a range where they are neighbours


@dataclass(frozen=True, kw_only=True)
class Filling:
    """One fill, ready for every layer of a step."""

    fill: Fill
    pieces_L4: torch.Tensor  # int32: row of the table, first token, tokens, first token of the workspace
    spans: Spans
    queries: Rows


class Gathered:
    """Attention of several tokens of each sequence over its pages."""

    def __init__(self, shape: DecodeShape, host: Host, device: torch.device, workspace: int) -> None:
        """`workspace`: its tokens; two 16-bit planes of (tokens, G, D)."""
        require(host, shape)
        self.shape, self.host, self.device, self.workspace = shape, host, device, workspace
        size = (workspace, shape.kv_heads, shape.head_dim)
        self.k_SGD, self.v_SGD = (torch.empty(size, dtype=DTYPES[shape.recipe.sixteen], device=device) for _ in "kv")

    def plan(self, requests: Sequence[Asked]) -> tuple[Filling, ...]:
        """The fills of a step, for all its layers."""
        return tuple(self._filling(fill) for fill in fills(requests, self.workspace))

    def _filling(self, fill: Fill) -> Filling:
        rows, to = [], 0
        for piece in fill:
            rows.append([piece.row, piece.first_key, piece.keys, to])
            to += piece.keys
        return Filling(
            fill=fill,
            pieces_L4=torch.tensor(rows, dtype=torch.int32, device=self.device),
            spans=Spans.of([piece.queries for piece in fill], [piece.keys for piece in fill], self.device),
            queries=places([range(piece.first, piece.first + piece.queries) for piece in fill], self.device),
        )

    def gather(self, filling: Filling, layer: PagedLayer, table_BX: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """k_SGD and v_SGD of one fill: views of the workspace, valid until the next one.

        Raises KassayError for another shape, and for a table that is no int32 or lies elsewhere. Values of a table are
        not looked at.
        """
        if shape_of(layer, self.shape.query_heads) != self.shape:
            raise KassayError(f"this workspace is for {self.shape}, the layer is another")
        if table_BX.dtype != torch.int32 or table_BX.ndim != 2 or table_BX.stride(1) != 1:
            raise KassayError(f"the block table is {tuple(table_BX.shape)} of {table_BX.dtype}, wanted is int32")
        if table_BX.device != self.k_SGD.device or layer.keys.data_PSHW.device != self.k_SGD.device:
            raise KassayError(f"operands lie on {table_BX.device} and {layer.keys.data_PSHW.device}, the workspace not")
        width, stop = table_BX.shape[1] * self.shape.page_tokens, max(p.first_key + p.keys for p in filling.fill)
        if stop > width or max(piece.row for piece in filling.fill) >= len(table_BX):
            raise KassayError(f"a block table of {len(table_BX)} rows and {width} tokens does not cover {stop} tokens")
        grid = (-(-filling.spans.most_keys * self.shape.kv_heads // ROWS), len(filling.fill))
        none = filling.pieces_L4
        gather_pages[grid](
            words(layer.keys), words(layer.values), scales(layer.keys, none), scales(layer.values, none),
            self.k_SGD, self.v_SGD, table_BX, filling.pieces_L4, table_BX.stride(0),
            **(options(self.shape, self.host) | steps(layer))
        )  # fmt: skip
        used = filling.spans.keys[-1]
        return self.k_SGD[:used], self.v_SGD[:used]

    def __call__(
        self,
        plan: Sequence[Filling],
        q_THD: torch.Tensor,
        layer: PagedLayer,
        table_BX: torch.Tensor,
        out_THD: torch.Tensor,
        lse_TH: torch.Tensor,
    ) -> None:
        """Write the queries of the plan into out_THD and lse_TH; others are left as they are."""
        merges: dict[int, Merge] = {}
        for filling in plan:
            k_SGD, v_SGD = self.gather(filling, layer, table_BX)
            out, lse = attend(q_THD[filling.queries], k_SGD, v_SGD, filling.spans, causal=filling.fill[0].causal)
            if all(piece.alone for piece in filling.fill):
                out_THD[filling.queries], lse_TH[filling.queries] = out, lse
                continue
            starts = filling.spans.queries
            for piece, first, stop in zip(filling.fill, starts, starts[1:], strict=False):
                block, part = slice(piece.first, piece.first + piece.queries), (out[first:stop], lse[first:stop])
                if piece.first in merges:
                    merges[piece.first].add(*part)
                else:
                    merges[piece.first] = Merge(*part)
                if piece.causal:  # the last of its block
                    whole = merges.pop(piece.first)
                    out_THD[block], lse_TH[block] = whole.out_THD.to(out_THD.dtype), whole.lse_TH


def places(ranges: Sequence[range], device: torch.device) -> Rows:
    """Where ranges of packed tokens lie: a slice where each begins at the end of the one before."""
    if all(one.stop == other.start for one, other in pairwise(ranges)):
        return slice(ranges[0].start, ranges[-1].stop)
    return torch.tensor([at for each in ranges for at in each], device=device)


def options(shape: DecodeShape, host: Host) -> dict[str, Any]:
    """Compile-time arguments of the gather."""
    return {**shape.constants(), **PACKED, "BLOCK": ROWS, "ASM": host.converts_e4m3, "num_warps": 4}
