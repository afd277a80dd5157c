"""A paged cache under the oracle: what is written where, what attention reads through its block table, and its faults.

Axes: R sequences, H query heads, G KV heads, S stored tokens, T queries, D head dim, X pages of a sequence.

Real operands of a few requests are cut to lengths around page boundaries and written into a pool at random pages,
prompts at once and their last tokens one by one. Three kinds of reading: `fresh` (all tokens of a prompt ask), `decode`
(the last one asks), `mixed` (both in one batch); then the same tokens in other pages, in another order of writing and
of requests, must hold the same bits and return the same numbers. The code under test is PagedLayer and torch's sdpa on
what it gathers; the reference reads the pool by page and place in numpy, and knows no slot.

A fault changes the block table or a length that the code under test is given: what a scheduler may get wrong. In pages
of one token two that are swapped are the same tokens in another order, which a query sees alike, and no slot lies
behind the last token: neither is a fault there.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from kassay.backend import capture
from kassay.kv import oracle
from kassay.kv.oracle import Comparison, Component, Stored
from kassay.kv.paged import LayerScales, PagedLayer, PagedPlane, PagedShape, slots_of
from kassay.kv.plane import Offset, as_numpy
from kassay.kv.recipe import Recipe

PAGE_TOKENS = 16
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 48)  # around the boundaries; and each request whole
DECODED = 3  # last tokens of a sequence that are written one by one
SPARE_PAGES = 3  # of the pool, that no sequence has

Attended = tuple[np.ndarray, np.ndarray]  # out_HTD, lse_HT of one sequence


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one step of an engine is given: where each sequence lies, how long it is, and how many of its tokens ask."""

    table_RX: torch.Tensor
    lengths_R: torch.Tensor
    queries_R: tuple[int, ...]

    def same(self, other: "Batch") -> bool:
        """Whether the two say the same."""
        return torch.equal(self.table_RX, other.table_RX) and torch.equal(self.lengths_R, other.lengths_R)


@dataclass(frozen=True, kw_only=True)
class PageFault:
    """One mistake in what the code under test is given."""

    name: str
    title: str
    inject: Callable[[Batch, PagedShape], Batch]
    least_page_tokens: int  # of a page, below which it is none


@dataclass(frozen=True, kw_only=True)
class Operands:
    """What the sequences are made of: operands and queries of one layer, of each request."""

    k_BGSD: torch.Tensor
    v_BGSD: torch.Tensor
    q_BHTD: torch.Tensor

    def lengths(self) -> tuple[int, ...]:
        """Lengths of the sequences; sequence r is cut from request r modulo B."""
        whole = self.k_BGSD.shape[2]
        return tuple(length for length in LENGTHS if length < whole) + (whole,) * self.k_BGSD.shape[0]

    def queries(self, sequence: int, count: int) -> torch.Tensor:
        """q_HTD of the last `count` tokens of a sequence; real ones, repeated where there are fewer."""
        q_HTD = self.q_BHTD[sequence % self.q_BHTD.shape[0]]
        return q_HTD[:, [at % q_HTD.shape[1] for at in range(count)]]


class Pool:
    """A pool that holds the sequences at pages of its own choice."""

    def __init__(self, recipe: Recipe, given: Operands, scales: LayerScales, offset: Offset | None, seed: int) -> None:
        self.given = given
        self.lengths = given.lengths()
        pages = [-(-length // PAGE_TOKENS) for length in self.lengths]
        kv_heads, _, head_dim = given.k_BGSD.shape[1:]
        self.shape = PagedShape(
            pages=sum(pages) + SPARE_PAGES, page_tokens=PAGE_TOKENS, kv_heads=kv_heads, head_dim=head_dim
        )
        self.layer = PagedLayer(recipe, self.shape, scales=scales, key_offset=offset)
        generator = torch.Generator().manual_seed(seed)
        free = iter(torch.randperm(self.shape.pages, generator=generator).tolist())
        self.table_RX = torch.zeros((len(pages), max(pages)), dtype=torch.int32)
        for row, count in enumerate(pages):
            self.table_RX[row, :count] = torch.tensor([next(free) for _ in range(count)], dtype=torch.int32)
        self.spare = list(free)
        self._fill_with_old_tokens()
        self._write(range(len(pages)) if seed % 2 else range(len(pages) - 1, -1, -1))

    def _fill_with_old_tokens(self) -> None:
        """What an earlier request left: real tokens, in every slot."""
        requests, _, tokens, _ = self.given.k_BGSD.shape
        slots_N = torch.arange(self.shape.slots)
        source = ((slots_N + 1) % requests, (7 * slots_N + 3) % tokens)
        k_NGD, v_NGD = (x.transpose(1, 2)[source] for x in (self.given.k_BGSD, self.given.v_BGSD))
        self.layer.write(k_NGD, v_NGD, slots_N, source[1])

    def _write(self, order: Iterable[int]) -> None:
        lengths_R = torch.tensor(self.lengths)
        slots_RT = slots_of(self.table_RX, lengths_R, self.shape)
        for row in order:
            request, length = row % self.given.k_BGSD.shape[0], self.lengths[row]
            prompt = max(1, length - DECODED)
            for start, stop in ((0, prompt), *((at, at + 1) for at in range(prompt, length))):
                k_NGD = self.given.k_BGSD[request, :, start:stop].transpose(0, 1)
                v_NGD = self.given.v_BGSD[request, :, start:stop].transpose(0, 1)
                self.layer.write(k_NGD, v_NGD, slots_RT[row, start:stop], torch.arange(start, stop))

    def batch(self, kind: str) -> Batch:
        """A step of that kind over all sequences."""
        asks = {"fresh": (True,), "decode": (False,), "mixed": (True, False)}[kind]
        queries = tuple(length if asks[row % len(asks)] else 1 for row, length in enumerate(self.lengths))
        return Batch(table_RX=self.table_RX, lengths_R=torch.tensor(self.lengths), queries_R=queries)

    def attended(self, batch: Batch, rows: Iterable[int] | None = None) -> Iterator[Attended]:
        """The code under test, sequence by sequence; `rows` says which they are if not in order."""
        k_RGSD, v_RGSD = self.layer.gather(batch.table_RX, batch.lengths_R, torch.float32)
        asked = zip(rows or range(len(self.lengths)), batch.lengths_R.tolist(), batch.queries_R, strict=True)
        for row, (sequence, length, count) in enumerate(asked):
            q_HTD = self.given.queries(sequence, count)
            yield capture.attend(q_HTD[None], k_RGSD[row : row + 1, :, :length], v_RGSD[row : row + 1, :, :length])

    def held(self, row: int) -> tuple[Component, Component]:
        """Keys and values of one sequence, read by page and place in numpy."""
        pages = [int(self.table_RX[row, at // PAGE_TOKENS]) for at in range(self.lengths[row])]
        places = [at % PAGE_TOKENS for at in range(self.lengths[row])]
        return component(self.layer.keys, pages, places), component(self.layer.values, pages, places)

    def expected(self, row: int, count: int) -> oracle.Reference:
        """Float64 attention of the last `count` tokens on what is stored."""
        keys, values = self.held(row)
        q_1HTD = self.given.queries(row, count)[None].numpy()
        first = self.lengths[row] - count
        return oracle.reference_of(Stored(keys=keys, values=values, q_BHTD=q_1HTD, first_query=first, causal=True))


def component(plane: PagedPlane, pages: list[int], places: list[int]) -> Component:
    """The stored numbers of tokens at these pages and places, as a component 1GSD."""
    data_PSHW = as_numpy(plane.data_PSHW)
    data = np.stack([data_PSHW[page, place] for page, place in zip(pages, places, strict=True)], axis=1)[None]
    scale = None if plane.scale is None else plane.scale.numpy()
    if plane.scale_PHSG is not None:
        scale_PHSG = plane.scale_PHSG.numpy()
        scale = np.stack([scale_PHSG[page, :, place] for page, place in zip(pages, places, strict=True)], axis=1)[None]
    offset = plane.rule.offset
    rotated = None if offset is None else offset(0, len(pages), torch.device("cpu"))[0].numpy()
    return Component(data_BGSD=data, scale=scale, other_scale=None, decoded_as=plane.rule.stored, offset_GSD=rotated)


def compared(pool: Pool, batch: Batch, clean: Batch) -> dict[str, Comparison]:
    """Output and log-normalizer of every sequence against the reference of the clean batch; the worst of each."""
    worst: dict[str, Comparison] = {}
    for row, (out, lse) in enumerate(pool.attended(batch)):
        wanted = pool.expected(row, clean.queries_R[row])
        for quantity, got, should in (("output", out, wanted.out_BHTD), ("log_normalizer", lse, wanted.lse_BHT)):
            result = oracle.compare(got, should, peak_tolerance=wanted.peak_tolerance)
            if quantity not in worst or result.worst_ratio > worst[quantity].worst_ratio:
                worst[quantity] = result
    return worst


def same_bits(one: Pool, other: Pool) -> Comparison:
    """Stored codes and scales of every sequence in two pools, and what attention returns from them: the worst.

    The second pool's sequences are asked in the other order.
    """
    results = []
    for row in range(len(one.lengths)):
        for mine, theirs in zip(one.held(row), other.held(row), strict=True):
            results.append(oracle.compare_bits(mine.data_BGSD, theirs.data_BGSD))
            if mine.scale is not None and theirs.scale is not None:
                results.append(oracle.compare_bits(np.atleast_1d(mine.scale), np.atleast_1d(theirs.scale)))
    batch = other.batch("decode")
    turned = Batch(table_RX=batch.table_RX.flip(0), lengths_R=batch.lengths_R.flip(0), queries_R=batch.queries_R[::-1])
    rows = range(len(one.lengths) - 1, -1, -1)
    pairs = zip(one.attended(one.batch("decode")), reversed(list(other.attended(turned, rows))), strict=True)
    results += [oracle.compare_bits(a, b) for mine, theirs in pairs for a, b in zip(mine, theirs, strict=True)]
    return max(results, key=lambda result: result.max_abs_error)


def disjoint(pool: Pool) -> Comparison:
    """Whether no two planes share a storage: counts those that do."""
    held = [storage.tensor.untyped_storage().data_ptr() for storage in pool.layer.storages(0)]
    return oracle.compare_bits(np.array([len(set(held))]), np.array([len(held)]))


def faults_in(page_tokens: int) -> list["PageFault"]:
    """The faults that pages of so many tokens may have."""
    return [fault for fault in PAGE_FAULTS if fault.least_page_tokens <= page_tokens]


def swapped_pages(batch: Batch, shape: PagedShape) -> Batch:
    """The first two pages of each sequence that has two change places."""
    table_RX = batch.table_RX.clone()
    rows = batch.lengths_R > shape.page_tokens
    table_RX[rows, :2] = table_RX[rows, :2].flip(1)
    return replace(batch, table_RX=table_RX)


def of_next_request(batch: Batch, shape: PagedShape) -> Batch:
    """The second page of each of two whole requests is the other one's: stale, or handed out twice.

    Not the first or the last, which hold the same text in all requests where a task begins or asks alike.
    """
    table_RX = batch.table_RX.clone()
    table_RX[-1, 1], table_RX[-2, 1] = batch.table_RX[-2, 1], batch.table_RX[-1, 1]
    return replace(batch, table_RX=table_RX)


def of_earlier_request(batch: Batch, shape: PagedShape) -> Batch:
    """The first page of the last sequence is one that no sequence has: it holds tokens of an earlier one."""
    table_RX = batch.table_RX.clone()
    used = set()
    for row, length in enumerate(batch.lengths_R.tolist()):
        used |= set(table_RX[row, : -(-length // shape.page_tokens)].tolist())
    table_RX[-1, 0] = min(set(range(shape.pages)) - used)
    return replace(batch, table_RX=table_RX)


def rows_moved(batch: Batch, shape: PagedShape) -> Batch:
    """Each whole request reads the other one's pages: the table's rows are off by one."""
    table_RX = batch.table_RX.clone()
    table_RX[-2:] = table_RX[-2:].flip(0)
    return replace(batch, table_RX=table_RX)


def one_token_short(batch: Batch, shape: PagedShape) -> Batch:
    """The newest token is left out where there is more than one."""
    lengths_R = torch.where(batch.lengths_R > 1, batch.lengths_R - 1, batch.lengths_R)
    return replace(batch, lengths_R=lengths_R)


def one_token_long(batch: Batch, shape: PagedShape) -> Batch:
    """One slot too many is read where the page has one: what lies there is no token of the sequence."""
    room = batch.lengths_R % shape.page_tokens != 0
    return replace(batch, lengths_R=torch.where(room, batch.lengths_R + 1, batch.lengths_R))


PAGE_FAULTS: tuple[PageFault, ...] = tuple(
    PageFault(name=name, title=title, inject=inject, least_page_tokens=least)
    for name, title, inject, least in (
        ("pages_swapped", "two pages of a sequence swapped", swapped_pages, 2),
        ("page_of_another_request", "one page of another request", of_next_request, 1),
        ("page_of_an_earlier_request", "a page that was freed and not written again", of_earlier_request, 1),
        ("table_row_off_by_one", "block table of the neighbour request", rows_moved, 1),
        ("newest_token_missing", "one token too few", one_token_short, 1),
        ("one_slot_too_many", "one slot beyond the last token", one_token_long, 2),
    )
)
