"""What is left for dynamic scales on a GPU: more tiles and splits than the rule's, and two KV heads read as one.

    python scripts/kernel-paired-trial.py [--out FILE.json] [--shapes 8x32768,64x8192,32x8192] [--recipes native,…]

Needs what scripts/kernel-trial.py needs. Three kinds of each recipe, each searched for each shape, then in turns with
the others 21 times: *rule* (the tiles of kassay.kernels.split), *wide* (more tiles, and every number of splits up to
a wave of programs), *paired* (kassay.kernels.paired, whose queries are spread outside of the time). Ratios are over the
fastest K16/V16 of all kinds, so that a kind that speeds up both sides shows itself as none. Errors against float64 are
checked first. FILE has every round. Exit 1 if an output is wrong, or a ratio above its byte limit.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.ceiling import copy_ceiling
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.paired import Paired, own_half, paired_layer, paired_shape, spread
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut, Tile, candidates, estimate_us, holds, tiles_of
from kassay.kernels.timing import captured, interleaved, microseconds
from kassay.kernels.tuned import impossible
from kassay.kernels.workload import SCALES, Calls, Heads, Pool
from kassay.kv.paged import PagedLayer, PagedShape

QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
RECIPES = "native,k16v8-d,k16v8-f,k8v8-d,k8v8-f,k4v4-d"
SHAPES = "8x32768,64x8192,32x8192"
RULE, WIDE, PAIRED = "rule", "wide", "paired"
MORE = tuple(Tile(tokens=tokens, warps=warps, stages=stages) for tokens, warps, stages in (
    (128, 4, 2), (64, 2, 2), (64, 1, 3), (64, 1, 2), (32, 1, 4), (32, 1, 2), (16, 1, 4)
))  # fmt: skip
WORTH = 1.25  # of the least estimate of a kind: what is not tried (single heads; the rule knows no pairs)
FINALISTS, FINAL_ROUNDS, ROUNDS = 4, 7, 21
WORST = 5e-4  # relative error of an output
CUDA = torch.device("cuda")
Call = Callable[[int], object]


def shape_of_kind(name: str, kind: str) -> DecodeShape:
    """What the cuts of a kind are for."""
    shape = QWEN3_8B.shape(name)
    return paired_shape(shape) if kind == PAIRED else shape


def tiles_of_kind(name: str, kind: str) -> list[Tile]:
    """Tiles to search."""
    shape = shape_of_kind(name, kind)
    return tiles_of(shape) + ([tile for tile in MORE if holds(shape, tile)] if kind == WIDE else [])


def cuts_of(name: str, kind: str, host: Host, batch: int, tokens: int) -> list[Cut]:
    """Cuts to search."""
    shape = shape_of_kind(name, kind)
    found = candidates(shape, host, batch, tokens, tiles_of_kind(name, kind))
    if kind == WIDE:
        most = max(4, 8 * host.processors // (batch * shape.programs))
        found = [Cut(tile=tile, splits=n) for tile in dict.fromkeys(cut.tile for cut in found) for n in range(1, most)]
    if kind == PAIRED:
        return found
    estimates = {cut: estimate_us(shape, host, batch, tokens, cut) for cut in found}
    return [cut for cut, us in estimates.items() if us <= WORTH * min(estimates.values())]


def kernel_of(name: str, kind: str, host: Host, batch: int, tokens: int, cut: Cut) -> Decode:
    """The launcher of one cut."""
    return (Paired if kind == PAIRED else Decode)(QWEN3_8B.shape(name), host, CUDA, batch, tokens, cut)


def made(calls: Calls, name: str, kind: str, cut: Cut) -> Call:
    """A call by its number."""
    kernel = kernel_of(name, kind, calls.pool.host, calls.batch, calls.tokens, cut)
    if kind != PAIRED:
        return calls.ours(name, kernel)
    layer, q = paired_layer(calls.pool.layers[name]), spread(calls.q, QWEN3_8B.kv_heads)
    out, lse = torch.empty_like(q), torch.empty_like(calls.lse)

    def call(at: int) -> tuple[torch.Tensor, torch.Tensor]:
        return kernel(q, layer, calls.tables[at], calls.lengths, out, lse)

    return call


def error(calls: Calls, name: str, kind: str, cut: Cut) -> float:
    """Of the first and the last sequence, into poisoned memory."""
    calls.poison()
    got = made(calls, name, kind, cut)(0)
    if kind == PAIRED:
        assert isinstance(got, tuple), "a bug: a call of pairs returns its outputs"
        calls.out.copy_(own_half(got[0], QWEN3_8B.kv_heads))
        calls.lse.copy_(got[1])
    return max(calls.error(name, one)[0] for one in {0, calls.batch - 1})


def searched(calls: Calls, name: str, kind: str, row: dict[str, Any]) -> Cut:
    """The fastest cut of a kind: of all once, then of the best in turns."""
    times: dict[Cut, float] = {}
    for cut in cuts_of(name, kind, calls.pool.host, calls.batch, calls.tokens):
        try:
            times[cut] = min(microseconds(captured(made(calls, name, kind, cut), calls.calls), calls.calls, 3)[1:])
        except (RuntimeError, KassayError) as refused:  # shared memory
            row["failed"][f"{name} {kind} {cut}"] = str(refused)[:200]
    best = sorted(times, key=lambda cut: times[cut])[:FINALISTS]
    graphs = {str(cut): captured(made(calls, name, kind, cut), calls.calls) for cut in best}
    final = interleaved(graphs, calls.calls, FINAL_ROUNDS)
    row["tried"][f"{name} {kind}"] = len(times)
    return min(best, key=lambda cut: statistics.median(final[str(cut)]))


def measure(pool: Pool, recipes: list[str], batch: int, tokens: int) -> dict[str, Any]:
    """One shape: every kind of every recipe, in turns."""
    calls = Calls(pool, [tokens] * batch)
    row: dict[str, Any] = {"batch": batch, "tokens": tokens, "cuts": {}, "errors": {}, "failed": {}, "tried": {}}
    graphs = {}
    for name in recipes:
        for kind in (RULE, WIDE, PAIRED):
            cut, arm = searched(calls, name, kind, row), f"{name} {kind}"
            row["cuts"][arm], row["errors"][arm] = str(cut), error(calls, name, kind, cut)
            graphs[arm] = captured(made(calls, name, kind, cut), calls.calls)
    row["rounds_us"] = interleaved(graphs, calls.calls, ROUNDS)
    return row


def faults(row: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What is wrong or impossible, and the line of each arm."""
    times = row["rounds_us"]
    natives = [one for arm, one in times.items() if arm.startswith("native ")]
    base = min(natives, key=statistics.median)
    wrong, said = [arm for arm, one in row["errors"].items() if not one < WORST], []
    native = QWEN3_8B.call_bytes("native", row["batch"], row["batch"] * row["tokens"])
    for arm, one in times.items():
        ratio = statistics.median(slow / fast for slow, fast in zip(base, one, strict=True))
        own = QWEN3_8B.call_bytes(arm.split()[0], row["batch"], row["batch"] * row["tokens"])
        if not arm.startswith("native ") and impossible(ratio, native, own):
            wrong.append(f"{arm}: {ratio:.3f} is above the byte limit")
        said.append(f"  {arm:16s} {statistics.median(one):8.1f} us {ratio:6.3f}  {row['cuts'][arm]}")
    return wrong, said


def precompile(job: tuple[str, str, Tile]) -> None:
    """Compile a kind's kernels of one tile into Triton's cache, in a process of its own."""
    name, kind, tile = job
    pages = 256 // QWEN3_8B.page_tokens
    pool = PagedShape(pages=pages, page_tokens=16, kv_heads=QWEN3_8B.kv_heads, head_dim=QWEN3_8B.head_dim)
    layer = PagedLayer(QWEN3_8B.shape(name).recipe, pool, CUDA, SCALES)
    q = torch.zeros(1, QWEN3_8B.query_heads, QWEN3_8B.head_dim, device=CUDA, dtype=torch.float16)
    table = torch.arange(pages, dtype=torch.int32, device=CUDA)[None]
    if kind == PAIRED:
        layer, q = paired_layer(layer), spread(q, QWEN3_8B.kv_heads)
    for splits in (1, 2):
        try:
            kernel = kernel_of(name, kind, host_of(CUDA), 1, 256, Cut(tile=tile, splits=splits))
            kernel(q, layer, table, torch.tensor([256], dtype=torch.int32, device=CUDA))
        except Exception as failed:  # it comes again where it is recorded
            print(f"not compiled: {name} {kind} {tile}: {str(failed)[:200]}", file=sys.stderr)


def main() -> int:
    """All shapes, a line an arm."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=Path("kernel-paired-trial.json"))
    asked.add_argument("--shapes", default=SHAPES)
    asked.add_argument("--recipes", default=RECIPES, help="`native` among them")
    asked.add_argument("--workers", type=int, default=14)
    args, began = asked.parse_args(), time.monotonic()
    recipes = args.recipes.split(",")
    sizes = [(int(batch), int(tokens)) for batch, tokens in (each.split("x") for each in args.shapes.split(","))]
    jobs = [(name, kind, tile) for name in recipes for kind in (WIDE, PAIRED) for tile in tiles_of_kind(name, kind)]
    with multiprocessing.get_context("spawn").Pool(args.workers) as workers:
        workers.map(precompile, jobs, chunksize=1)
    print(f"{time.monotonic() - began:.1f} s: {len(jobs)} tiles compiled", flush=True)
    results: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "shapes": [], "wrong": []}
    with torch.no_grad():
        results["copy_TB_s"] = copy_ceiling(CUDA)
        slots = max(batch * (tokens + QWEN3_8B.page_tokens) for batch, tokens in sizes)
        pool = Pool(QWEN3_8B, recipes, slots, host_of(CUDA), CUDA)
        for batch, tokens in sizes:
            row = measure(pool, recipes, batch, tokens)
            results["shapes"].append(row)
            wrong, said = faults(row)
            results["wrong"] += wrong
            args.out.write_text(json.dumps(results))
            print(f"{time.monotonic() - began:.1f} s: {batch}x{tokens}", *said, *wrong, sep="\n", flush=True)
    return 1 if results["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
