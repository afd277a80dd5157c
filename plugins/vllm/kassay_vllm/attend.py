"""One layer's cache in a pool of byte pages, and attention over it: torch and kassay's kernels, nothing of vLLM.

Axes: N tokens of a batch, B sequences that decode, H query heads, G KV heads, D head dim, X pages of a sequence.

A prefill attends to the 16-bit keys and values that it brings; only what it stored is quantized, and the next decode
reads that. So does every published K16/V8 route with fresh prefill.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import torch

from kassay.errors import KassayError
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut
from kassay.kernels.store import store
from kassay.kernels.tuning import Book
from kassay.kv.paged import LayerScales, PagedLayer
from kassay.kv.plane import DTYPES, decode
from kassay_vllm.page import PageFormat
from kassay_vllm.routes import Route

# q, k, v, out, starts of q, longest q, starts of k, longest k: causal attention of sequences that lie one after another
Varlen = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor, int], None]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What all layers read of one batch. Decodes come first."""

    route: Route
    tokens: int  # new ones, a captured graph's padding included
    table_BX: torch.Tensor  # int32, of all requests
    lengths_B: torch.Tensor  # int32, new tokens included
    starts: torch.Tensor  # int32, prefills + 1: where each prefill's tokens begin behind those of decodes
    capturing: bool


@dataclass
class Counts:
    """What happened in this process: steps that were built, and layer 0's calls of Python, by route and decodes.

    A step of which layer 0 heard nothing was the replay of a captured graph.
    """

    built: Counter[tuple[str, int]] = field(default_factory=Counter)
    called: Counter[tuple[str, int]] = field(default_factory=Counter)
    captured: Counter[int] = field(default_factory=Counter)  # of decodes, while graphs are made: warm-up and capture
    fallbacks: int = 0  # prefills behind stored tokens

    def replayed(self) -> dict[int, int]:
        """Decodes of a batch -> replays of its graph."""
        return {size: left for (name, size), built in self.built.items()
                if name == "decode" and (left := built - self.called[name, size]) > 0}  # fmt: skip


class Plans:
    """The decode kernels by batch, with the workspaces that all layers share, one after another."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, tokens: int, sizes: set[int], *, uneven: bool,
        book: str | None,
    ) -> None:  # fmt: skip
        self.shape, self.host, self.device, self.tokens, self.sizes = shape, host, device, tokens, sizes
        self.uneven = uneven
        self.book = None if book is None else Book(Path(book))
        self._made: dict[int, tuple[Decode, torch.Tensor]] = {}

    def of(self, batch: int) -> tuple[Decode, torch.Tensor]:
        """The kernels of a batch and room for its log-normalizers; of a batch without a graph the next power of two."""
        size = batch if batch in self.sizes else 1 << (batch - 1).bit_length()
        if size not in self._made:
            lse = torch.empty((size, self.shape.query_heads), dtype=torch.float32, device=self.device)
            made = Decode(self.shape, self.host, self.device, size, self.tokens, uneven=self.uneven, book=self.book)
            self._made[size] = made, lse
        return self._made[size]

    def workspaces(self) -> list[torch.Tensor]:
        """What the decodes of all batches keep between steps."""
        return [one for made, lse in self._made.values() for one in (made.part, made.part_lse, lse)]

    def cuts(self) -> dict[int, Cut]:
        """How each batch is cut."""
        return {size: made.cut for size, (made, _) in sorted(self._made.items())}


class Cache:
    """The planes of one layer over its pool."""

    def __init__(self, format: PageFormat, pages: torch.Tensor, scales: LayerScales, host: Host, observe: bool) -> None:
        self.format, self.host, self.scales = format, host, scales
        self.pages = pages
        self.layer: PagedLayer = format.layer(pages, scales)
        self.kept: dict[str, torch.Tensor] | None = {} if observe else None
        self.last: dict[str, int] = {}  # what Python did last -> its number of tokens; a replay leaves it as it is

    def write(self, k_NGD: torch.Tensor, v_NGD: torch.Tensor, slots_N: torch.Tensor) -> None:
        """Quantize and store new tokens; slot -1 stores nothing. Later rows of k and v than slots are padding."""
        count = len(slots_N)
        store(self.layer, self.host, k_NGD[:count], v_NGD[:count], slots_N, checked=False)
        self.keep("write", count, k=k_NGD[:count], v=v_NGD[:count], slots=slots_N)

    def decode(self, q_BHD: torch.Tensor, step: Step, plans: Plans, out_BHD: torch.Tensor) -> None:
        """One new token of each sequence, which is stored already."""
        count = len(q_BHD)
        table, lengths = step.table_BX[:count], step.lengths_B[:count]
        kernels, lse = plans.of(count)
        kernels(q_BHD.contiguous(), self.layer, table, lengths, out_BHD, lse[:count])
        self.keep("decode", count, q=q_BHD, table=table, lengths=lengths, out=out_BHD)

    def gathered(self, table_X: torch.Tensor, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """k_NGD and v_NGD of a sequence's first tokens in its 16-bit format, as a decode would read them."""
        size = self.format.page_tokens
        pages = table_X[: math.ceil(tokens / size)].long()
        found = []
        for plane in (self.layer.keys, self.layer.values):
            data_XSGW = plane.data_PSHW[pages]
            if not plane.sixteen_bit:
                beside = plane.scale if plane.scale_PHSG is None else plane.scale_PHSG[pages].transpose(1, 2)
                assert beside is not None, "a bug: codes without a scale"
                data_XSGW = decode(data_XSGW, beside, plane.rule.stored).to(DTYPES[self.format.recipe.sixteen])
            found.append(data_XSGW.flatten(0, 1)[:tokens])
        return found[0], found[1]

    def keep(self, what: str, count: int, **tensors: torch.Tensor) -> None:
        """Copy operands where the oracle reads them, of each number of tokens into memory of its own.

        Memory is made before a graph is captured, by its warm-up; a replay then copies what it worked on.
        """
        if self.kept is None:
            return
        self.last[what] = count
        for name, tensor in tensors.items():
            place = f"{what} {count} {name}"
            if place not in self.kept:
                self.kept[place] = torch.empty_like(tensor, memory_format=torch.contiguous_format)
            self.kept[place].copy_(tensor)


def attend(
    cache: Cache, q_NHD: torch.Tensor, k_NGD: torch.Tensor, v_NGD: torch.Tensor, out_NHD: torch.Tensor,
    step: Step, plans: Plans, varlen: Varlen,
) -> None:  # fmt: skip
    """Attention of a batch into out_NHD. Raises KassayError for what no route reads."""
    route, first = step.route, step.route.decode_tokens
    if route.decodes:
        cache.decode(q_NHD[:first], step, plans, out_NHD[:first])
    if not route.prefills:
        return
    new = slice(first, step.tokens)
    q, k, v, out = q_NHD[new], k_NGD[new], v_NGD[new], out_NHD[new]
    if not any(route.stored):
        varlen(q, k, v, out, step.starts, route.longest, step.starts, route.longest)
        cache.keep("fresh", step.tokens - first, q=q, k=k, v=v, out=out, starts=step.starts)
        return
    k_all, v_all, starts, longest = continued(cache, k, v, step)
    varlen(q, k_all, v_all, out, step.starts, route.longest, starts, longest)


def continued(
    cache: Cache, k_NGD: torch.Tensor, v_NGD: torch.Tensor, step: Step
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Keys and values of each prefill, gathered stored ones and then its own; where each begins; the longest."""
    bounds = step.starts.tolist()
    parts_k, parts_v, starts = [], [], [0]
    for index, stored in enumerate(step.route.stored):
        own = slice(bounds[index], bounds[index + 1])
        if stored:
            before = cache.gathered(step.table_BX[step.route.decodes + index], stored)
            parts_k.append(before[0])
            parts_v.append(before[1])
        parts_k.append(k_NGD[own])
        parts_v.append(v_NGD[own])
        starts.append(starts[-1] + stored + own.stop - own.start)
    longest = max(after - before for before, after in pairwise(starts))
    placed = torch.tensor(starts, dtype=torch.int32, device=k_NGD.device)
    return torch.cat(parts_k), torch.cat(parts_v), placed, longest


def refuse_continued(route: Route, allowed: bool) -> None:
    """Raise KassayError for a prefill behind stored tokens where the settings refuse the fallback."""
    if any(route.stored) and not allowed:
        raise KassayError(
            f"a prefill of {route.longest} tokens continues {max(route.stored)} stored ones, and no kernel reads mixed "
            "pages for that",
            hint='enable_chunked_prefill=False and enable_prefix_caching=False, or {"kassay": {"continued": "gather"}}',
        )
