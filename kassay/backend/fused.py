"""The fused backend: a small batch decoder for dense models, on our kernels, over a paged cache of their recipes.

Axes: B rows of the batch, T tokens of a prompt, S steps, V vocabulary.

A batch is rows of one table. `admit` prefills whole fresh prompts of one length behind the rows that are there, all but
their last token, which the first step feeds; so every output token is decoded through the recipe. `run` decodes so many
steps greedily, none of which ends a row: one CUDA graph for each size of a batch, replayed; ids, positions, lengths and
tables stay on the device, and nothing waits for it until `collect`. A batch smaller than its graph is padded with rows
that store nothing and read nothing. `keep` lets rows go between runs (kassay.backend.fused_cohorts admits
others in their place). Requests may share a frozen prefix (kassay.backend.fused_prefix): rows then hold their own
tokens alone, and the model's positions count from its end.

On a processor (TRITON_INTERPRET=1) the same steps run one by one, without graphs: for tests.
"""

import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kassay.backend.fused_cache import PagedCache, Scales
from kassay.backend.fused_prefix import Prefix, check_room
from kassay.backend.fused_step import Step, Where, turns_of
from kassay.backend.fused_weights import Weights, key_bias_of
from kassay.errors import KassayError
from kassay.kernels.cartridge import Shared
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.shape import DecodeShape, require
from kassay.kernels.split import Cut, cut_of
from kassay.kernels.timing import mark
from kassay.kv.paged import PagedShape
from kassay.kv.plane import scale_of
from kassay.kv.recipe import NATIVE, Recipe

PREFILL_TOKENS = 16384  # of one pass: larger ones are no faster, and their activations grow
FOLDED_TOKENS = 256  # of the prompt over which drawn weights get their fixed scales
WARM_STEPS = 1  # before a graph is captured: Triton compiles, cuBLAS takes its workspace


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a decoder is made for."""

    batch: int
    row_tokens: int  # of a row at its end, prompt and output, without a shared prefix
    steps: int  # between two collections
    page_tokens: int = 16
    pages: int | None = None  # of the pool of a layer; None: as many as all rows need
    shared: int | None = None  # pools for all layers (kassay.backend.fused_cache); None: one each
    uneven: bool = True  # whether rows of a step differ in length: how a call is cut
    sizes: tuple[int, ...] | None = None  # of batches that have a graph; None: powers of two


class Decoder:
    """One model under one recipe."""

    def __init__(
        self,
        weights: Weights,
        recipe: Recipe,
        plan: Plan,
        scales: Scales | None = None,
        prefix: Prefix | None = None,
    ) -> None:
        geometry, device = weights.geometry, weights.embedding.device
        before = 0 if prefix is None else prefix.positions
        if (positions := before + plan.row_tokens) > geometry.positions:
            raise KassayError(f"the model has {geometry.positions} positions, and {positions} are asked for")
        if plan.shared is not None and not weights.drawn:
            raise KassayError("layers that share pools read each other's cache: only drawn weights may")
        self.weights, self.recipe, self.plan, self.device = weights, recipe, plan, device
        self.host: Host = host_of(device)
        self.shape = DecodeShape(
            recipe=recipe, query_heads=geometry.query_heads, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim,
            page_tokens=plan.page_tokens,
        )  # fmt: skip
        require(self.host, self.shape, prebias=prefix is None)
        self.prefix = prefix
        if prefix is not None:
            check_room(prefix, geometry.layers, self.shape, weights.embedding.dtype, device)
        self.cache = empty_cache(weights, recipe, plan, scales)
        self.step = Step(weights, self.cache, self.host, turns_of(geometry, positions, device)[before:], prefix)
        self.ids_B = torch.zeros(plan.batch, dtype=torch.int64, device=device)
        self.rows_B = torch.arange(plan.batch, dtype=torch.int32, device=device)
        self.lengths_B, self.live_B = torch.zeros_like(self.rows_B), torch.zeros_like(self.rows_B)
        self.positions_B = torch.full_like(self.rows_B, -1)
        self.tokens_SB = torch.zeros((plan.steps, plan.batch), dtype=torch.int64, device=device)
        self.at_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.steps = 0  # since the last collection
        self.prefilled_tokens = 0  # in all
        self.marked: list[torch.Tensor] = []
        self.attends: dict[int, Decode | Shared] = {}
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.first: torch.cuda.CUDAGraph | None = None  # all graphs share its memory: no two run at once

    @property
    def rows(self) -> int:
        """Rows that hold a sequence."""
        return len(self.cache.held)

    def size_of(self, rows: int) -> int:
        """The size of the graph that decodes so many rows."""
        powers = tuple(1 << at for at in range(self.plan.batch.bit_length()) if 1 << at < self.plan.batch)
        sizes = sorted(self.plan.sizes or (*powers, self.plan.batch))
        at = bisect_left(sizes, rows)
        if at == len(sizes):
            raise KassayError(f"no graph for {rows} rows, there are sizes up to {sizes[-1]}")
        return sizes[at]

    def admit(self, ids_BT: torch.Tensor, output_tokens: int) -> list[int]:
        """Rows of whole fresh prompts of one length, two tokens or more, each with room for its output."""
        count, tokens = ids_BT.shape
        if tokens < 2:
            raise KassayError(f"a prompt has {tokens} tokens, 2 are the fewest: the last one is decoded")
        rows = self.cache.admit([tokens - 1 + output_tokens] * count)
        here = slice(rows[0], rows[-1] + 1)
        self.ids_B[here] = ids_BT[:, -1].to(self.device)
        self.positions_B[here] = tokens - 1
        self.lengths_B[here] = tokens
        self.live_B[here] = 1
        context_BT = ids_BT[:, :-1].to(self.device)
        each = max(1, PREFILL_TOKENS // (tokens - 1))
        positions_T = torch.arange(tokens - 1, dtype=torch.int32, device=self.device)
        for first in range(0, count, each):
            part_BT = context_BT[first : first + each]
            rows_B = self.rows_B[rows[first] : rows[first] + len(part_BT)]
            where = Where(
                positions_N=positions_T.repeat(len(part_BT)), rows_N=rows_B.repeat_interleave(tokens - 1)
            )  # fmt: skip
            self.step.prefill(part_BT, where)
            self.prefilled_tokens += part_BT.numel()
        return rows

    def assume(self, rows: int, context_tokens: int, output_tokens: int, ids_B: torch.Tensor) -> None:
        """Rows whose context is taken as it lies in the pages (PagedCache.draw): for studies of speed alone."""
        if not self.weights.drawn:
            raise KassayError("a context that no prompt wrote goes with drawn weights only")
        self.keep([])
        self.cache.admit([context_tokens + output_tokens] * rows)
        self.ids_B[:rows] = ids_B.to(self.device)
        self.positions_B[:rows] = context_tokens
        self.lengths_B[:rows] = context_tokens + 1
        self.live_B[:rows] = 1

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows, in this order; the others' pages are free again."""
        self.cache.keep(rows)
        order = torch.tensor(list(rows), dtype=torch.int64, device=self.device)
        for state, empty in ((self.ids_B, 0), (self.positions_B, -1), (self.lengths_B, 0), (self.live_B, 0)):
            kept = state[order]
            state.fill_(empty)
            state[: len(rows)] = kept

    def mark(self) -> None:
        """Remember where the rows stand."""
        self.marked = [state.clone() for state in (self.ids_B, self.positions_B, self.lengths_B)]

    def rewind(self) -> None:
        """Go back to the mark: what is decoded again is stored again in the same places."""
        for state, kept in zip((self.ids_B, self.positions_B, self.lengths_B), self.marked, strict=True):
            state.copy_(kept)

    def attention(self, size: int, cut: Cut | None = None) -> Decode | Shared:
        """Attention of batches of that size, cut by the rule unless a cut is given."""
        tokens = self.plan.row_tokens
        cut = cut or cut_of(self.shape, self.host, size, tokens, uneven=self.plan.uneven)
        if self.prefix is None:
            return Decode(self.shape, self.host, self.device, size, tokens, cut)
        return Shared(
            self.shape, self.prefix.shape, self.host, self.device, size, tokens, self.prefix.positions, cut
        )  # fmt: skip

    def cuts(self) -> dict[int, Cut]:
        """How attention to the own pages is cut, by the size of a batch."""
        return {size: (one.own if isinstance(one, Shared) else one).cut for size, one in sorted(self.attends.items())}

    def logits(self, size: int, *, attention: bool = True) -> torch.Tensor:
        """logits_BV of the next tokens of the first `size` rows."""
        if size not in self.attends:
            self.attends[size] = self.attention(size)
        where = Where(positions_N=self.positions_B[:size], rows_N=self.rows_B[:size])
        return self.step.decode(
            self.ids_B[:size], where, self.lengths_B[:size], self.attends[size], attention=attention
        )  # fmt: skip

    def advance(self, size: int, *, attention: bool = True) -> None:
        """One decode step of the first `size` rows, as a graph holds it."""
        next_B = self.logits(size, attention=attention).argmax(-1)
        self.ids_B[:size] = next_B
        self.tokens_SB[:, :size].index_copy_(0, self.at_1, next_B[None])
        self.at_1 += 1
        self.positions_B[:size] += self.live_B[:size]
        self.lengths_B[:size] += self.live_B[:size]

    def graph(self, size: int) -> torch.cuda.CUDAGraph:
        """The graph of one step of that size; made once, and what it needs to be made leaves no trace."""
        if size not in self.graphs:
            self.graphs[size] = self.captured(size)
        return self.graphs[size]

    def captured(self, size: int, *, attention: bool = True) -> torch.cuda.CUDAGraph:
        """A new graph of one step."""
        states = (self.ids_B, self.positions_B, self.lengths_B, self.at_1)
        before = [state.clone() for state in states]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_STEPS):
                for state, kept in zip(states, before, strict=True):
                    state.copy_(kept)
                self.advance(size, attention=attention)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=None if self.first is None else self.first.pool()):
            self.advance(size, attention=attention)
        self.first = self.first or graph
        for state, kept in zip(states, before, strict=True):
            state.copy_(kept)
        return graph

    def run(self, steps: int) -> None:
        """Decode so many steps of all rows; the device is not waited for."""
        self._count(steps)
        size = self.size_of(self.rows)
        if self.device.type != "cuda":
            for _ in range(steps):
                self.advance(size)
            return
        graph = self.graph(size)
        for _ in range(steps):
            graph.replay()

    def _count(self, steps: int) -> None:
        if self.steps + steps > self.plan.steps:
            raise KassayError(f"{self.steps} + {steps} steps, this decoder was made for {self.plan.steps}")
        self.steps += steps

    def timed_ns(self, steps: int) -> int:
        """Nanoseconds of so many steps: between two events of a GPU, which is idle before, or by the clock."""
        if self.device.type != "cuda":
            started = time.monotonic_ns()
            self.run(steps)
            return time.monotonic_ns() - started
        graph = self.graph(self.size_of(self.rows))
        self._count(steps)
        return self.replayed_ns(graph, steps)

    def replayed_ns(self, graph: torch.cuda.CUDAGraph, steps: int) -> int:
        """Nanoseconds of so many replays, which count as no steps of the rows."""
        torch.cuda.synchronize(self.device)
        began, ended = mark(), mark()
        began.record()
        for _ in range(steps):
            graph.replay()
        ended.record()
        ended.synchronize()
        return round(1e6 * float(began.elapsed_time(ended)))

    def collect(self) -> torch.Tensor:
        """tokens_SB of all steps since the last collection, on the host: waits for the device."""
        found = self.tokens_SB[: self.steps, : self.rows].cpu()
        self.steps = 0
        self.at_1.zero_()
        return found


def empty_cache(weights: Weights, recipe: Recipe, plan: Plan, scales: Scales | None) -> PagedCache:
    """The pages of all layers and rows."""
    geometry = weights.geometry
    pages = plan.pages or plan.batch * -(-plan.row_tokens // plan.page_tokens)
    pool = PagedShape(
        pages=pages, page_tokens=plan.page_tokens, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim
    )  # fmt: skip
    return PagedCache(
        recipe, pool, geometry.layers, weights.embedding.device, scales, rows=plan.batch, row_tokens=plan.row_tokens,
        shared=plan.shared, key_bias=key_bias_of(weights, recipe),
    )  # fmt: skip


def folded_scales(weights: Weights, seed: int = 0) -> Scales:
    """Fixed scales of drawn weights: the largest key and value of each layer over one drawn prompt, over 448."""
    plan = Plan(batch=1, row_tokens=FOLDED_TOKENS, steps=1)
    decoder = Decoder(weights, NATIVE, plan)
    generator = torch.Generator().manual_seed(seed)
    decoder.admit(torch.randint(weights.geometry.vocabulary, (1, FOLDED_TOKENS), generator=generator), 1)
    lengths = torch.tensor([FOLDED_TOKENS - 1], device=decoder.device)
    scales: Scales = {"k": [], "v": []}
    for layer in decoder.cache.layers:
        for name, x_BGTD in zip("kv", layer.gather(decoder.cache.table_BX, lengths, torch.float32), strict=True):
            scales[name].append(float(scale_of(x_BGTD.abs().amax())))
    return scales
