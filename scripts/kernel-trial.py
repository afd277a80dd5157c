"""Our kernels on a GPU: right against float64, then how fast, beside the device's ceilings and torch's own attention.

    python scripts/kernel-trial.py [--minutes 9] [--out FILE.json] [--sections check,uniform,ragged] [--shapes 32x8192]
                                   [--book FILE.json]
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --target-processes application-only --error-exitcode 9 \\
                                     python scripts/kernel-trial.py --sections small

Needs torch, triton, numpy, scipy and ml_dtypes beside this checkout. Qwen3-8B's attention, pages of 16 in random order,
FP16; 0.5 GB of K16/V16 between two reads of a byte. All arms of a shape are tuned, then replayed in turns, 21 times.
`small` checks every recipe at two small geometries, which is what a memory checker is put over.
A ratio above the byte limit says that the baseline is mistuned, and fails. Raw rounds go to FILE after every shape,
so a deadline costs what comes after it alone. Exit 1 if a kernel is wrong, or a ratio impossible.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton
from torch.nn.attention import SDPBackend

from kassay.errors import KassayError
from kassay.kernels.ceiling import copy_ceiling, gather_ceiling
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.split import Cut, Tile, tiles_of
from kassay.kernels.timing import Captured, captured, interleaved
from kassay.kernels.tuned import impossible, precompile, tuned_cut
from kassay.kernels.tuning import Book
from kassay.kernels.unfused import Unfused
from kassay.kernels.workload import SCALES, Calls, Heads, Pool
from kassay.kv.paged import PagedLayer, PagedShape

QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
OTHERS = (  # checked, not timed
    Heads(query_heads=40, kv_heads=8, head_dim=128, page_tokens=8),
    Heads(query_heads=6, kv_heads=6, head_dim=64, page_tokens=1),
    Heads(query_heads=71, kv_heads=1, head_dim=64, page_tokens=32),
    Heads(query_heads=14, kv_heads=2, head_dim=64, page_tokens=16, sixteen="bf16"),
)
FUSED = ("native", "k16v8-f", "k16v8-d", "k8v16-d", "k8v8-f", "k8v8-d", "ki8vi8-d", "k16v4-d", "k4v4-d")
PREBIASED = ("prebias-k8v16-d", "prebias-k8v8-f", "prebias-k8v8-d")  # attention alone: tests hold the writer's bits
CHECKED_RECIPES = FUSED + PREBIASED
TIMED = (*(name for name in FUSED if name != "ki8vi8-d"), "prebias-k8v8-d")  # INT8 moves the bytes of E4M3
UNFUSED = ("k16v8-d", "k4v4-d")
SDPA = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cudnn": SDPBackend.CUDNN_ATTENTION}
SHAPES = [(32, 8192), (1, 1024), (128, 8192), (8, 32768), (128, 1024), (8, 8192), (32, 1024), (1, 32768), (128, 32768),
          (64, 8192), (32, 32768), (64, 1024), (8, 1024), (1, 8192), (64, 32768)]  # fmt: skip
RAGGED = [(32, 512, 16384), (64, 256, 16384), (128, 256, 8192)]
SMALL = (QWEN3_8B, Heads(query_heads=14, kv_heads=2, head_dim=64, page_tokens=16))
SMALL_LENGTHS, SMALL_SPLITS = [100, 1, 17, 0, 33], (1, 3)
CHECKED = ([2048, 1, 17, 1000, 1999], [0, 8192, 4097], [333] * 16)
CHECKED_TILES = (Tile(tokens=64, warps=4, stages=3), Tile(tokens=32, warps=1, stages=3))  # of 1 and of 8 splits
WORST = {"fp16": 5e-4, "bf16": 5e-3}  # relative error of an output
WORST_LSE = 1e-3
CUDA = torch.device("cuda")
Say = Callable[[str], None]


def writer_differs(pool: Pool, name: str) -> int:
    """Bytes that the writing kernel stored otherwise than the reference does on a CPU, of 2,048 tokens."""
    count = 2048
    heads, layer = pool.heads, pool.layers[name]
    shape = PagedShape(pages=count // heads.page_tokens, page_tokens=heads.page_tokens, kv_heads=heads.kv_heads,
                       head_dim=heads.head_dim)  # fmt: skip
    wanted = PagedLayer(layer.recipe, shape, "cpu", SCALES)
    keys, values = (x[:count].cpu() for x in pool.operands())
    wanted.write(keys, values, torch.arange(count))
    differing = 0
    for one, other in ((layer.keys, wanted.keys), (layer.values, wanted.values)):
        pairs = [(one.data_PSHW, other.data_PSHW), (one.scale_PHSG, other.scale_PHSG)]
        for got, expected in pairs:
            if got is not None and expected is not None:
                same = got[: shape.pages].cpu().contiguous().view(torch.uint8) == expected.view(torch.uint8)
                differing += int((~same).sum())
    return differing


def check(results: dict[str, Any], say: Say, host: Host) -> None:
    """Every recipe on ragged lengths, one and many splits, twice the same bits, into poisoned memory."""
    rows: list[dict[str, Any]] = []
    writes: dict[str, int] = {}
    for heads in (QWEN3_8B, *OTHERS):
        pool = Pool(heads, CHECKED_RECIPES, 1 << 15, host, CUDA)
        writes |= {f"{heads.sixteen} {heads.head_dim} {name}": writer_differs(pool, name) for name in FUSED}
        for lengths in CHECKED:
            calls = Calls(pool, lengths)
            for name in CHECKED_RECIPES:
                for tile in checked_tiles(heads, name):
                    cut = Cut(tile=tile, splits=1 if tile.tokens == CHECKED_TILES[0].tokens else 8)
                    rows.append(checked(calls, name, host, cut))
    wrong = [row for row in rows if row["wrong"]]
    results |= {"check": rows, "writes": writes, "wrong": len(wrong) + sum(map(bool, writes.values()))}
    largest = {one: max((row["error"] for row in rows if row["sixteen"] == one), default=0.0) for one in WORST}
    say(f"check: {len(rows)} cases, largest errors {largest}, lse {max(row['lse'] for row in rows):.1e}, "
        f"{len(wrong)} wrong {wrong[:4]}; writers differ in {sum(writes.values())} bytes")  # fmt: skip


def checked_tiles(heads: Heads, name: str) -> list[Tile]:
    """Two tiles, over single heads and over pairs where heads make some."""
    pairs = [replace(tile, heads=2) for tile in CHECKED_TILES] if heads.shape(name).pairs else []
    return [*CHECKED_TILES, *pairs]


def small_tiles(heads: Heads, name: str) -> list[Tile]:
    """The largest and the smallest, of single heads and of pairs."""
    tiles = tiles_of(heads.shape(name))
    kinds = ([tile for tile in tiles if tile.heads == heads_read] for heads_read in (1, 2))
    return [kind[end] for kind in kinds if kind for end in (0, -1)]


def small(results: dict[str, Any], say: Say, host: Host) -> None:
    """Every recipe over few tokens, where every read beyond a plane would be one beyond its memory."""
    rows: list[dict[str, Any]] = []
    for heads in SMALL:
        pages = len(SMALL_LENGTHS) * -(-max(SMALL_LENGTHS) // heads.page_tokens)
        pool = Pool(heads, CHECKED_RECIPES, pages * heads.page_tokens, host, CUDA)
        calls = Calls(pool, SMALL_LENGTHS)
        for name in CHECKED_RECIPES:
            for tile in small_tiles(heads, name):
                rows += [checked(calls, name, host, Cut(tile=tile, splits=splits)) for splits in SMALL_SPLITS]
    wrong = [row for row in rows if row["wrong"]]
    results |= {"small": rows, "wrong": results["wrong"] + len(wrong)}
    largest = max(row["error"] for row in rows)
    say(f"small: {len(rows)} cases, largest error {largest:.1e}, {len(wrong)} wrong {wrong[:4]}")


def checked(calls: Calls, name: str, host: Host, cut: Cut) -> dict[str, Any]:
    """One case."""
    heads = calls.pool.heads
    kernel = Decode(heads.shape(name), host, CUDA, calls.batch, calls.tokens, cut)
    runs = []
    for _ in range(2):
        calls.poison()
        kernel.part.fill_(float("nan"))
        kernel.part_lse.fill_(float("nan"))
        calls.ours(name, kernel)(0)
        runs.append((calls.out.clone(), calls.lse.clone()))
    errors = [calls.error(name, one) for one in range(calls.batch)]
    same = all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
    fine = same and all(e < WORST[heads.sixteen] and lse < WORST_LSE for e, lse in errors)  # NaN is not below
    return {"recipe": name, "query_heads": heads.query_heads, "kv_heads": heads.kv_heads, "head_dim": heads.head_dim,
            "page": heads.page_tokens, "sixteen": heads.sixteen, "longest": calls.tokens, "splits": kernel.cut.splits,
            "heads_read": cut.tile.heads, "error": max(e for e, _ in errors), "lse": max(lse for _, lse in errors),
            "same_bits": same, "wrong": not fine}  # fmt: skip


def arms_of(calls: Calls, host: Host, row: dict[str, Any], book: Book | None) -> dict[str, Captured]:
    """Tuned graphs of all arms of a shape; cuts, errors and what is absent go into the row."""
    graphs: dict[str, Captured] = {}
    heads, size = calls.pool.heads, (calls.batch, calls.tokens)
    for name in TIMED:
        found = tuned_cut(calls, name, host, uniform=row["uniform"], device=CUDA, book=book)
        best, default = found.best, found.default
        row["cuts"][name] = {"tuned": str(best), "default": str(default), "tried_us": found.tried_us}
        row["failed"] |= {f"{name} {cut}": why[:200] for cut, why in found.failed.items()}
        for arm, cut in {name: best, **({f"{name} default": default} if default != best else {})}.items():
            kernel = Decode(heads.shape(name), host, CUDA, *size, cut)
            calls.poison()
            calls.ours(name, kernel)(0)
            row["errors"][arm] = max(calls.error(name, one)[0] for one in (0, calls.batch - 1))
            graphs[arm] = captured(calls.ours(name, kernel), calls.calls)
            for other in UNFUSED if arm == "native" and row["uniform"] else ():
                control = Unfused(heads.shape(other), calls.pool.shape, host, CUDA, *size, cut)
                graphs[f"{other} unfused"] = captured(calls.ours(other, control), calls.calls)
    for arm, backend in SDPA.items() if row["uniform"] else ():
        try:
            graphs[arm] = captured(calls.torch_s(backend), calls.calls)
        except RuntimeError as error:
            row["failed"][arm] = str(error)[:200]
    return graphs


def measure(results: dict[str, Any], say: Say, pool: Pool, lengths: list[int], book: Book | None) -> None:
    """One shape: tune, replay in turns, one line."""
    calls, heads = Calls(pool, lengths), pool.heads
    row: dict[str, Any] = {"batch": calls.batch, "longest": calls.tokens, "tokens": calls.total,
                           "uniform": len(set(lengths)) == 1, "calls": calls.calls, "cuts": {}, "errors": {},
                           "failed": {}}  # fmt: skip
    began = time.monotonic()
    row["rounds_us"] = interleaved(arms_of(calls, pool.host, row, book), calls.calls, 21)
    row["gather_TB_s"] = gather_ceiling(calls)
    row["seconds"] = time.monotonic() - began
    results["shapes"].append(row)
    results["wrong"] += sum(not error < WORST["fp16"] for error in row["errors"].values())
    base, native = row["rounds_us"]["native"], heads.call_bytes("native", calls.batch, calls.total)
    words = []
    for arm, times in row["rounds_us"].items():
        ratio = statistics.median(one / other for one, other in zip(base, times, strict=True))
        if arm in TIMED and impossible(ratio, native, heads.call_bytes(arm, calls.batch, calls.total)):
            results["impossible"] += 1
            arm += " IMPOSSIBLE"
        words.append(f"{arm} {ratio:.3f}")
    us = statistics.median(base)
    say(f"B {calls.batch} T {calls.tokens} ({calls.total} tokens) K16/V16 {us:.1f} us {native / us / 1e6:.2f} TB/s of "
        f"{row['gather_TB_s']:.2f}, error {max(row['errors'].values()):.1e} | " + ", ".join(words))  # fmt: skip


def run(args: argparse.Namespace, results: dict[str, Any], say: Say, left_s: Callable[[], float]) -> None:
    """All sections, until the deadline."""
    host = host_of(CUDA)
    results |= {"device": host.name, "torch": torch.__version__, "triton": triton.__version__, "argv": sys.argv[1:]}
    sections, jobs = args.sections.split(","), []
    if "uniform" in sections or "ragged" in sections:
        jobs += [(QWEN3_8B, name, tile) for name in TIMED for tile in tiles_of(QWEN3_8B.shape(name))]
    if "small" in sections:
        jobs += [
            (heads, name, tile) for heads in SMALL for name in CHECKED_RECIPES for tile in small_tiles(heads, name)
        ]
    if "check" in sections:
        checks = [(heads, name) for heads in (QWEN3_8B, *OTHERS) for name in CHECKED_RECIPES]
        jobs += [(heads, name, tile) for heads, name in checks for tile in checked_tiles(heads, name)]
    with multiprocessing.get_context("spawn").Pool(14) as workers:
        workers.map(precompile, jobs, chunksize=1)
    say(f"{host}: {len(jobs)} tiles compiled")
    if "small" in sections:
        small(results, say, host)
        return
    results["copy_TB_s"] = {"cool": copy_ceiling(CUDA)}
    if "check" in sections:
        check(results, say, host)
    work = []
    if "uniform" in sections:
        work += [[int(tokens)] * int(batch) for batch, tokens in (each.split("x") for each in args.shapes.split(","))]
    if "ragged" in sections:
        draws = torch.Generator().manual_seed(1)
        work += [torch.randint(a, b + 1, (batch,), generator=draws).tolist() for batch, a, b in RAGGED]
    pool = Pool(QWEN3_8B, TIMED, max([len(each) * (max(each) + 15) for each in work] + [1 << 15]), host, CUDA)
    say(f"pool of {pool.shape.slots} tokens written, copy {results['copy_TB_s']} TB/s")
    for lengths in work:
        if left_s() < 30:
            say(f"out of time: {len(work) - len(results['shapes'])} shapes were left out")
            break
        try:
            measure(results, say, pool, lengths, None if args.book is None else Book(args.book))
        except (KassayError, RuntimeError) as error:
            results["wrong"] += 1
            say(f"B {len(lengths)} T {max(lengths)} failed: {error}")
    results["copy_TB_s"]["hot"] = copy_ceiling(CUDA)


def main() -> int:
    """The trial and its verdict."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=9.0)
    asked.add_argument("--out", type=Path, default=Path("kernel-trial.json"))
    asked.add_argument("--sections", default="check,uniform,ragged")
    asked.add_argument("--shapes", default=",".join(f"{batch}x{tokens}" for batch, tokens in SHAPES))
    asked.add_argument("--book", type=Path, help="keep the fastest cuts here, for launchers (kassay.kernels.tuning)")
    args = asked.parse_args()
    began = time.monotonic()
    results: dict[str, Any] = {"shapes": [], "wrong": 0, "impossible": 0}

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)
        args.out.write_text(json.dumps(results))

    with torch.no_grad():
        run(args, results, say, lambda: 60 * args.minutes - (time.monotonic() - began))
    say(f"copy {results.get('copy_TB_s')} TB/s; {results['wrong']} wrong, {results['impossible']} above the byte limit")
    return 1 if results["wrong"] or results["impossible"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
