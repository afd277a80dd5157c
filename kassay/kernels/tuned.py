"""The best cut of a call on this device, found fairly, and whether a speed-up can be: what benchmarks of kernels share.

A search times one cut after the other, and each meets another clock than the next: its best are timed again in turns.
A speed-up above the byte limit of two arms that are both bound by memory says that its baseline is mistuned.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton

from kassay.kernels import tuning
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.split import Cut, Tile, candidates, cut_of, estimate_us
from kassay.kernels.timing import captured, interleaved, microseconds
from kassay.kernels.tuning import Book
from kassay.kernels.workload import SCALES, Calls, Heads
from kassay.kv.paged import PagedLayer, PagedShape
from kassay.kv.plane import DTYPES
from kassay.kv.recipe import recipe_named

SLACK = 1.01  # of a ratio over its byte limit
WORTH = 1.5  # of the rule's least estimate: what it put above was never the best in a search of 60 shapes and recipes
FINALISTS = 4
FINAL_ROUNDS = 7
UNEVEN_SPLITS = (2, 4, 8, 16)  # tried beside the rule's where lengths differ


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What a search found."""

    best: Cut
    default: Cut  # the rule's, without a search
    tried_us: dict[str, float]  # by cut: its fastest replay
    failed: dict[str, str]  # by cut: why it did not run


def precompile(job: tuple[Heads, str, Tile]) -> None:
    """Compile a recipe's kernels of one tile into Triton's cache, in a process of its own, on the GPU there is."""
    heads, name, tile = job
    device = torch.device("cuda")
    pages = 256 // heads.page_tokens
    pool = PagedShape(pages=pages, page_tokens=heads.page_tokens, kv_heads=heads.kv_heads, head_dim=heads.head_dim)
    recipe = recipe_named(name, heads.sixteen)
    layer = PagedLayer(recipe, pool, device, SCALES, heads.key_bias() if recipe.prebias else None)
    table = torch.arange(pages, dtype=torch.int32, device=device)[None]
    q = torch.zeros(1, heads.query_heads, heads.head_dim, device=device, dtype=DTYPES[heads.sixteen])
    for splits in (1, 2):
        try:
            kernel = Decode(heads.shape(name), host_of(device), device, 1, 256, Cut(tile=tile, splits=splits))
            kernel(q, layer, table, torch.tensor([256], dtype=torch.int32, device=device))
        except Exception as error:  # it comes again where it is recorded
            print(f"not compiled: {name} {tile}: {str(error)[:200]}", file=sys.stderr)


def cuts_of(calls: Calls, name: str, host: Host, *, uniform: bool) -> list[Cut]:
    """What is tried; where lengths differ, shorter splits too, as programs beyond the end of a sequence are free."""
    shape = calls.pool.heads.shape(name)
    size = (calls.batch, calls.tokens)
    estimates = {cut: estimate_us(shape, host, *size, cut) for cut in candidates(shape, host, *size)}
    cuts = [cut for cut, us in estimates.items() if us <= WORTH * min(estimates.values())]
    if not uniform:
        cuts += [Cut(tile=tile, splits=n) for tile in {cut.tile for cut in cuts} for n in UNEVEN_SPLITS]
    return list(dict.fromkeys([cut_of(shape, host, calls.batch, calls.tokens, uneven=not uniform), *cuts]))


def tuned_cut(
    calls: Calls, name: str, host: Host, *, uniform: bool = True, device: torch.device, book: Book | None = None
) -> Tuned:
    """Search, then a final in turns that the rule's cut enters too; a book, if given, keeps the best for launchers.

    Raises KassayError if no cut runs.
    """
    shape, size = calls.pool.heads.shape(name), (calls.batch, calls.tokens)
    tried: dict[str, float] = {}

    def seconds(cut: Cut) -> float:
        kernel = Decode(shape, host, device, *size, cut)
        tried[str(cut)] = min(microseconds(captured(calls.ours(name, kernel), calls.calls), calls.calls, 4)[1:])
        return tried[str(cut)] * 1e-6

    cuts = cuts_of(calls, name, host, uniform=uniform)
    _, _, failed = tuning.fastest(cuts, seconds)
    ran = sorted((cut for cut in cuts if str(cut) in tried), key=lambda cut: tried[str(cut)])
    finalists = list(dict.fromkeys([*ran[:FINALISTS], *(cut for cut in ran if cut == cuts[0])]))
    best = final(calls, name, host, finalists, device)
    if book is not None:
        version = tuning.source_version(triton.__version__)
        key = tuning.key_of(host, shape, *size, version, uneven=not uniform)
        book.keep(key, best, tried[str(best)] * 1e-6)
    return Tuned(
        best=best,
        default=cuts[0],
        tried_us=tried,
        failed={str(cut): why for cut, why in failed.items()},
    )


def final(calls: Calls, name: str, host: Host, cuts: Sequence[Cut], device: torch.device) -> Cut:
    """The fastest of a few cuts in turns."""
    shape = calls.pool.heads.shape(name)
    kernels = {str(cut): Decode(shape, host, device, calls.batch, calls.tokens, cut) for cut in cuts}
    graphs = {key: captured(calls.ours(name, kernel), calls.calls) for key, kernel in kernels.items()}
    times = interleaved(graphs, calls.calls, FINAL_ROUNDS)
    return min(cuts, key=lambda cut: statistics.median(times[str(cut)]))


def impossible(ratio: float, baseline_bytes: int, candidate_bytes: int) -> bool:
    """Whether a speed-up is above what the bytes allow; NaN is."""
    return not ratio <= SLACK * baseline_bytes / candidate_bytes
