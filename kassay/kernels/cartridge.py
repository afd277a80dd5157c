"""A shared cartridge: a frozen prefix of all requests, attended with each request's own pages by one softmax.

Axes: B sequences, H query heads, D head dim, X pages of a sequence, N tokens of the prefix.

The prefix has its own recipe (K16/V8, say, beside native pages) and is read once for a tile of up to 64 queries
(kassay.kernels.device.prefix). Its parts and those of the own pages are put together by their log-normalizers:

    out = sum_c e^(L_c - L) out_c,   L = log sum_c e^(L_c)

which is attention over all their tokens, whatever the parts are. A cartridge ends at a page boundary of the pages that
follow (632 positions are 79 pages of 8, and no whole pages of 16): kassay.kv.support.whole_pages. The own tokens stand
at positions from `positions` on; their table and lengths count them alone.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kernels.device.prefix import attention_prefix
from kassay.kernels.host import Host
from kassay.kernels.launch import PACKED, Decode, scales, shape_of, steps, words
from kassay.kernels.shape import FOLDS, LANES, LEAST_ROWS, DecodeShape, require
from kassay.kernels.split import Cut, Tile, chunk_of
from kassay.kernels.tuning import Book
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.recipe import Recipe
from kassay.kv.support import whole_pages

MOST_PARTS = 16  # of a prefix: each is written and read again, in FP32
LONG = 1 << 20  # queries of a KV head times positions, from which the larger of the tiles pays for unpacked values
STEPS = 16  # of the loop, after which a part with unpacked values ends
TILES = (Tile(tokens=128, warps=4, stages=3), Tile(tokens=64, warps=4, stages=3), Tile(tokens=32, warps=4, stages=2))


@dataclass(frozen=True, kw_only=True)
class PrefixCut:
    """How the part of the prefix is launched."""

    rows: int  # queries of a tile: a power of two from 16
    tile: Tile
    parts: int  # of the prefix


def most_rows(prefix: DecodeShape) -> int:
    """Queries of the largest tile that spills no register on sm_90: unpacked words take some."""
    if prefix.value_number == 0:
        return 64
    return 32 if prefix.key_number == 0 and LANES[prefix.value_number] == 2 else LEAST_ROWS


def prefix_cut_of(prefix: DecodeShape, host: Host, batch: int, positions: int) -> PrefixCut:
    """The cut without tuning: one wave of programs. Raises KassayError where no tile fits.

    Fitted to four shapes on one H200 (docs/findings/2026-11-30-cartridge-and-prefill.md): 64 queries a tile with values
    in 16 bits; where values are unpacked 16, whose short programs end sooner, and 32 from where a prefix is long.
    """
    queries, unpacked = batch * prefix.group, prefix.value_number != 0
    most = LEAST_ROWS if unpacked and queries * positions < LONG else most_rows(prefix)
    rows = min(most, max(LEAST_ROWS, 1 << (queries - 1).bit_length()))
    fitting = [tile for tile in TILES if prefix_shared_bytes(prefix, rows, tile) <= host.shared_bytes]
    if not fitting:
        raise KassayError(f"{host.name} has {host.shared_bytes} bytes of shared memory: no tile of a prefix fits")
    programs = prefix.kv_heads * -(-queries // rows)
    ended = -(-positions // (STEPS * fitting[0].tokens)) if unpacked else 1
    return PrefixCut(rows=rows, tile=fitting[0], parts=min(MOST_PARTS, max(1, host.processors // programs, ended)))


def prefix_shared_bytes(prefix: DecodeShape, rows: int, tile: Tile) -> int:
    """Shared memory of a program, as compiled for sm_90: all stages, queries, weights."""
    token = 2 * prefix.head_dim // LANES[prefix.key_number] + 2 * prefix.head_dim // LANES[prefix.value_number]
    return tile.stages * tile.tokens * token + 2 * rows * (prefix.head_dim + tile.tokens) + 1024


class Cartridge:
    """A frozen prefix of one layer: which pages of which planes."""

    def __init__(self, layer: PagedLayer, pages: Sequence[int], positions: int) -> None:
        """Raises KassayError for positions that end inside a page, and for pages that are not as many or not there."""
        count = whole_pages(positions, layer.shape.page_tokens)
        if len(pages) != count or len(set(pages)) != count or not all(0 <= p < layer.shape.pages for p in pages):
            raise KassayError(
                f"a prefix of {positions} positions is {count} pages of {layer.shape.page_tokens}, each once and below "
                f"{layer.shape.pages}; got {len(pages)}: {list(pages)[:8]}"
            )
        self.layer, self.pages, self.positions = layer, tuple(pages), positions
        self.pages_on = torch.tensor(self.pages, dtype=torch.int32, device=layer.keys.data_PSHW.device)

    @classmethod
    def of(
        cls, recipe: Recipe, k_NHD: torch.Tensor, v_NHD: torch.Tensor, page_tokens: int, scales: LayerScales | None
    ) -> "Cartridge":
        """From 16-bit keys and values, in pages of its own."""
        positions, kv_heads, head_dim = k_NHD.shape
        count = whole_pages(positions, page_tokens)
        pool = PagedShape(pages=count, page_tokens=page_tokens, kv_heads=kv_heads, head_dim=head_dim)
        layer = PagedLayer(recipe, pool, k_NHD.device, scales)
        layer.write(k_NHD, v_NHD, torch.arange(positions, device=k_NHD.device))
        return cls(layer, range(count), positions)

    def digest(self) -> str:
        """SHA-256 of what is stored: a prefix that is frozen keeps it."""
        found = hashlib.sha256()
        for plane in (self.layer.keys, self.layer.values):
            for each in (plane.data_PSHW, plane.scale_PHSG):
                if each is not None:
                    found.update(each[self.pages_on.long()].cpu().contiguous().view(torch.uint8).numpy().tobytes())
            if plane.scale is not None:
                found.update(plane.scale.cpu().numpy().tobytes())
        return found.hexdigest()

    def check_apart(self, layer: PagedLayer, table_BX: torch.Tensor, lengths_B: torch.Tensor) -> None:
        """Raise KassayError where a request's own pages are pages of the prefix: its tokens would count twice.

        Looks at values, so it waits for the device: not in a captured graph.
        """
        if layer is not self.layer:
            return
        own_BX = torch.arange(table_BX.shape[1], device=table_BX.device)[None] * layer.shape.page_tokens
        held = table_BX[own_BX < lengths_B[:, None]]
        if twice := sorted(set(held.tolist()) & set(self.pages)):
            raise KassayError(f"pages {twice[:8]} belong to the shared prefix and to a request: they would count twice")


class Shared:
    """Decode attention of each sequence over a shared prefix and its own pages."""

    def __init__(
        self, shape: DecodeShape, prefix: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int,
        positions: int, cut: Cut | None = None, book: Book | None = None, prefix_cut: PrefixCut | None = None,
    ) -> None:  # fmt: skip
        """`shape` of the own pages, `prefix` of the cartridge; `tokens` of the longest own part.

        Raises KassayError for shapes that do not fit each other, and for positions that end inside a page.
        """
        require(host, prefix)
        check_beside(shape, prefix)
        whole_pages(positions, shape.page_tokens)
        self.prefix, self.host, self.positions = prefix, host, positions
        self.cut = prefix_cut or prefix_cut_of(prefix, host, batch, positions)
        self.chunk = chunk_of(positions, self.cut.parts, self.cut.tile.tokens)
        self.parts = -(-positions // self.chunk)
        self.own = Decode(shape, host, device, batch, tokens, cut, book=book, beside=self.parts)

    def __call__(
        self,
        q_BHD: torch.Tensor,
        cartridge: Cartridge,
        layer: PagedLayer,
        table_BX: torch.Tensor,
        lengths_B: torch.Tensor,
        out_BHD: torch.Tensor | None = None,
        lse_BH: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """out_BHD and lse_BH as `Decode` returns them, over the prefix and the own tokens (which may be none)."""
        if cartridge.positions != self.positions:
            raise KassayError(f"a prefix of {cartridge.positions} positions, planned were {self.positions}")
        if shape_of(cartridge.layer, self.prefix.query_heads) != self.prefix:
            raise KassayError(f"these kernels are for a prefix of {self.prefix}, the cartridge is another")
        self.own.check(q_BHD, layer, table_BX, lengths_B)
        if cartridge.pages_on.device != q_BHD.device:
            raise KassayError(f"the cartridge lies on {cartridge.pages_on.device}, the queries on {q_BHD.device}")
        held, own = cartridge.layer, self.own
        grid = (self.prefix.kv_heads, self.parts, -(-len(q_BHD) * self.prefix.group // self.cut.rows))
        none = own.part_lse
        attention_prefix[grid](
            q_BHD, words(held.keys), words(held.values), scales(held.keys, none), scales(held.values, none),
            cartridge.pages_on, own.part, own.part_lse, self.prefix.head_dim**-0.5, self.positions, self.chunk,
            len(q_BHD), own.cut.splits, own.parts, **(self.options() | steps(held))
        )  # fmt: skip
        return own(q_BHD, layer, table_BX, lengths_B, out_BHD, lse_BH)

    def options(self) -> dict[str, Any]:
        """Compile-time arguments of the prefix kernel."""
        shape = self.prefix
        return {
            **shape.constants(),
            **PACKED,
            "GROUP": shape.group,
            "FOLD": FOLDS[shape.value_number] if shape.recipe.policy == "dynamic" else 0,
            "BLOCK_R": self.cut.rows,
            "BLOCK_N": self.cut.tile.tokens,
            "ASM": self.host.converts_e4m3,
            "WIDE": self.host.backend == "interpreter" and shape.recipe.sixteen == "bf16",
            "PDL": self.host.launches_dependents,
            "num_warps": self.cut.tile.warps,
            "num_stages": self.cut.tile.stages,
        }


def check_beside(shape: DecodeShape, prefix: DecodeShape) -> None:
    """Raise KassayError that names every way in which a prefix does not fit the pages beside it."""
    asked = (
        ("query heads", shape.query_heads, prefix.query_heads),
        ("KV heads", shape.kv_heads, prefix.kv_heads),
        ("head dim", shape.head_dim, prefix.head_dim),
        ("tokens of a page", shape.page_tokens, prefix.page_tokens),
        ("16-bit format", shape.recipe.sixteen, prefix.recipe.sixteen),
    )
    if found := [f"{what} {theirs}, the own pages have {mine}" for what, mine, theirs in asked if mine != theirs]:
        raise KassayError(f"a shared prefix does not fit: {'; '.join(found)}")
