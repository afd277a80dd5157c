"""Tiles of the decode kernel beside those that kassay.kernels.split picks from, on a GPU; and the book of tuned cuts.

    python scripts/kernel-tiles-trial.py [--out FILE.json] [--book FILE.json] [--shapes 32x8192,128x8192,8x32768]

Needs what scripts/kernel-trial.py needs. K16/V16 and K16/V8 are searched over the tiles of kassay.kernels.split and
over others; the best three of each go into one final, in turns. A ratio is the median over rounds of the time of the
first, K16/V16's tuned one, over an arm's. Raw rounds go to FILE. Exit 1 if a launcher does not find what a book has.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.split import TILES, Cut, Tile, candidates
from kassay.kernels.timing import captured, interleaved, microseconds
from kassay.kernels.tuned import precompile
from kassay.kernels.tuning import Book, key_of, source_version
from kassay.kernels.workload import Calls, Heads, Pool

HEADS = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)  # Qwen3-8B
NAME = "k16v8-d"
OTHER_TILES = tuple(Tile(tokens=tokens, warps=warps, stages=stages) for tokens, warps, stages in (
    (32, 1, 4), (16, 1, 4), (64, 1, 3), (32, 2, 4), (64, 2, 4)))  # fmt: skip
FINALISTS = 3
CUDA = torch.device("cuda")


def measure(pool: Pool, batch: int, tokens: int, book: Path) -> dict[str, Any]:
    """One shape."""
    calls, version = Calls(pool, [tokens] * batch), source_version(triton.__version__)
    row: dict[str, Any] = {"batch": batch, "tokens": tokens, "tried_us": {}, "failed": {}, "found": True}
    arms: dict[str, Callable[[int], object]] = {}
    for name in ("native", NAME):
        shape = HEADS.shape(name)
        for label, tiles in (("", TILES), (" other", OTHER_TILES)):
            times: dict[Cut, float] = {}
            for cut in candidates(shape, pool.host, batch, tokens, tiles):
                try:
                    graph = captured(calls.ours(name, Decode(shape, pool.host, CUDA, batch, tokens, cut)), calls.calls)
                    times[cut] = min(microseconds(graph, calls.calls, 4)[1:])
                except (RuntimeError, KassayError) as error:  # shared memory
                    row["failed"][f"{name} {cut}"] = str(error)[:200]
            row["tried_us"] |= {f"{name}{label} {told(cut)}": us for cut, us in times.items()}
            best = sorted(times, key=lambda cut: times[cut])[:FINALISTS]
            for cut in best:
                kernel = Decode(shape, pool.host, CUDA, batch, tokens, cut)
                arms[f"{name}{label} {told(cut)}"] = calls.ours(name, kernel)
            if not label:
                key = key_of(pool.host, shape, batch, tokens, version)
                Book(book).keep(key, best[0], times[best[0]] * 1e-6)
                taken = Decode(shape, pool.host, CUDA, batch, tokens, uneven=False, book=Book(book))
                row["found"] &= taken.cut.tile == best[0].tile
    graphs = {arm: captured(call, calls.calls) for arm, call in arms.items()}
    row["rounds_us"] = interleaved(graphs, calls.calls, 21)
    return row


def told(cut: Cut) -> str:
    """A cut in a table."""
    return f"{cut.tile.tokens},{cut.tile.warps},{cut.tile.stages} x{cut.splits}"


def main() -> int:
    """All shapes, a line each."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=Path("kernel-tiles-trial.json"))
    asked.add_argument("--book", type=Path, default=Path("kernel-book.json"))
    asked.add_argument("--shapes", default="32x8192,128x8192,8x32768")
    args = asked.parse_args()
    shapes = [(int(batch), int(tokens)) for batch, tokens in (each.split("x") for each in args.shapes.split(","))]
    jobs = [(HEADS, name, tile) for name in ("native", NAME) for tile in (*TILES, *OTHER_TILES)]
    with multiprocessing.get_context("spawn").Pool(14) as workers:
        workers.map(precompile, jobs, chunksize=1)
    rows = []
    with torch.no_grad():
        slots = max(batch * tokens for batch, tokens in shapes)
        pool = Pool(HEADS, ("native", NAME), slots, host_of(CUDA), CUDA)
        for batch, tokens in shapes:
            rows.append(measure(pool, batch, tokens, args.book))
            args.out.write_text(json.dumps(rows))
            base = next(iter(rows[-1]["rounds_us"].values()))
            words = [
                f"{arm} {statistics.median(a / b for a, b in zip(base, us, strict=True)):.4f}"
                for arm, us in rows[-1]["rounds_us"].items()
            ]
            print(f"B {batch} T {tokens} {statistics.median(base):.1f} us: {'; '.join(words)}", flush=True)
    return 0 if all(row["found"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
