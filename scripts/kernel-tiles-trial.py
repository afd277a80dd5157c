"""Every cut of the decode kernels on a GPU, timed: what the rule of kassay.kernels.split is fitted to.

    python scripts/kernel-tiles-trial.py [--out FILE.json] [--book FILE.json] [--shapes 32x8192,…] [--others 32x8192,…]
                                         [--few]

Needs what scripts/kernel-trial.py needs. Six recipes are timed over the tiles of kassay.kernels.split and (but for
`--few`) others, over single KV heads and over pairs, with the splits that the rule chooses from, at Qwen3-8B's
attention (`--shapes`) and at other pages and heads (`--others`): the fastest of four replays of each, one after the
other. FILE holds, for each shape, what tests/kernels/test_split.py reads: tile, splits that hold a token, microseconds.
A line a recipe says the fastest cut and how far from it the rule's is. Exit 1 if a launcher does not find what the book
has.
"""

import argparse
import json
import multiprocessing
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.shape import LANES
from kassay.kernels.split import MATRIX_ROWS, Cut, Tile, candidates, cut_of, tiles_of
from kassay.kernels.timing import captured, microseconds
from kassay.kernels.tuned import precompile
from kassay.kernels.tuning import Book, key_of, source_version
from kassay.kernels.workload import Calls, Heads, Pool

QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
OTHERS = (
    replace(QWEN3_8B, page_tokens=8),
    replace(QWEN3_8B, page_tokens=1),
    replace(QWEN3_8B, page_tokens=32),
    replace(QWEN3_8B, head_dim=64),
    replace(QWEN3_8B, query_heads=28, kv_heads=4),
)
RECIPES = ("native", "k16v8-d", "k16v8-f", "k8v8-d", "k8v8-f", "k4v4-d")
OTHER_TILES = tuple(Tile(tokens=tokens, warps=warps, stages=stages) for tokens, warps, stages in (
    (128, 4, 2), (64, 4, 3), (64, 2, 2), (64, 1, 3), (64, 1, 2), (32, 2, 3), (32, 1, 4), (32, 1, 2), (16, 1, 4)
)) + tuple(Tile(tokens=tokens, warps=warps, stages=3, heads=2) for tokens, warps in (
    (128, 4), (128, 2), (64, 4), (64, 2), (32, 2), (32, 1), (16, 1)
))  # fmt: skip
SHAPES = "32x8192,1x8192,128x8192,8x32768,1x1024,32x1024,8x8192,128x1024,8x1024,1x32768"
CUDA = torch.device("cuda")


def tiles(heads: Heads, name: str, few: bool) -> list[Tile]:
    """The rule's, and others that a recipe's pages and words allow: of single heads, and of pairs."""
    shape = heads.shape(name)
    words = heads.head_dim // LANES[shape.value_number]
    found = tiles_of(shape)
    others = [t for t in OTHER_TILES if t.tokens % heads.page_tokens == 0 and MATRIX_ROWS * t.warps <= words * t.heads]
    return found + [tile for tile in others if tile not in found and (shape.pairs if tile.heads == 2 else not few)]


def measure(pool: Pool, batch: int, tokens: int, book: Path, few: bool) -> tuple[dict[str, Any], bool]:
    """One shape, and whether launchers find what the book has."""
    calls, heads, found = Calls(pool, [tokens] * batch), pool.heads, True
    row: dict[str, Any] = {**asdict(heads), "page": heads.page_tokens, "batch": batch, "tokens": tokens,
                           "tried_us": {}, "failed": {}}  # fmt: skip
    for name in RECIPES:
        shape, times = heads.shape(name), {}
        default = cut_of(shape, pool.host, batch, tokens, uneven=False)
        for cut in [default, *candidates(shape, pool.host, batch, tokens, tiles(heads, name, few))]:
            try:
                kernel = Decode(shape, pool.host, CUDA, batch, tokens, cut)
                graph = captured(calls.ours(name, kernel), calls.calls)
                times[kernel.cut] = min(microseconds(graph, calls.calls, 4)[1:])
            except (RuntimeError, KassayError) as error:  # shared memory
                row["failed"][f"{name} {cut}"] = str(error)[:200]
        best = min(times, key=lambda cut: times[cut])
        row["tried_us"][name] = [[told(cut), cut.splits, round(us, 2)] for cut, us in times.items()]
        key = key_of(pool.host, shape, batch, tokens, source_version(triton.__version__))
        Book(book).keep(key, best, times[best] * 1e-6)
        found &= Decode(shape, pool.host, CUDA, batch, tokens, uneven=False, book=Book(book)).cut.tile == best.tile
        behind = times[Decode(shape, pool.host, CUDA, batch, tokens, default).cut] / times[best]
        print(f"{heads} {batch}x{tokens} {name}: {times[best]:.1f} us with {told(best)} x{best.splits}, the rule's "
              f"{told(default.tile)} x{default.splits} {behind:.3f}", flush=True)  # fmt: skip
    return row, found


def told(cut: Cut | Tile) -> str:
    """A tile in a table: tokens of a step, warps, stages, and KV heads if they are read in pairs."""
    tile = cut if isinstance(cut, Tile) else cut.tile
    return f"{tile.tokens},{tile.warps},{tile.stages}" + (",2 heads" if tile.heads == 2 else "")


def sizes(text: str) -> list[tuple[int, int]]:
    """`32x8192,1x1024` as batches and contexts."""
    return [(int(batch), int(tokens)) for batch, tokens in (each.split("x") for each in text.split(",") if each)]


def main() -> int:
    """All shapes, a line a recipe."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=Path("kernel-tiles-trial.json"))
    asked.add_argument("--book", type=Path, default=Path("kernel-book.json"))
    asked.add_argument("--shapes", default=SHAPES)
    asked.add_argument("--others", default="32x8192")
    asked.add_argument("--few", action="store_true", help="only the rule's tiles over single KV heads")
    args = asked.parse_args()
    plan = [(QWEN3_8B, sizes(args.shapes)), *((heads, sizes(args.others)) for heads in OTHERS)]
    jobs = [(heads, name, tile) for heads, shapes in plan if shapes for name in RECIPES
            for tile in tiles(heads, name, args.few)]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(14) as workers:
        workers.map(precompile, jobs, chunksize=1)
    rows, all_found = [], True
    with torch.no_grad():
        for heads, shapes in [each for each in plan if each[1]]:
            slots = max(batch * (tokens + heads.page_tokens) for batch, tokens in shapes)
            pool = Pool(heads, RECIPES, slots, host_of(CUDA), CUDA)
            for batch, tokens in shapes:
                row, found = measure(pool, batch, tokens, args.book, args.few)
                rows.append(row)
                all_found &= found
                args.out.write_text(json.dumps({"search": rows}))
    return 0 if all_found else 1


if __name__ == "__main__":
    raise SystemExit(main())
