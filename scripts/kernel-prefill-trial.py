"""Prefill from pages against the fresh route, and prefixes shared against not shared, timed on a GPU.

    python scripts/kernel-prefill-trial.py [--minutes 2] [--out FILE.json] [--sections prefill,prefix,cuts]

Needs torch, triton, numpy, scipy and ml_dtypes beside this checkout; scripts/kernel-prefill-check.py says whether the
kernels are right. FP16; arms of a shape are replayed in turns, and a ratio is the median over rounds of the first arm's
time over another's. Raw rounds go to FILE after every shape.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
import triton

from kassay.errors import KassayError
from kassay.kernels.cartridge import Cartridge, PrefixCut, Shared
from kassay.kernels.ceiling import copy_ceiling
from kassay.kernels.fill import Asked
from kassay.kernels.gather import Gathered
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.native import Spans, attend
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Tile
from kassay.kernels.timing import Captured, captured, interleaved
from kassay.kernels.workload import Heads, Pool
from kassay.kv.paged import PagedLayer

DEVICE = torch.device("cuda")
QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
PAGES_OF_8 = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=8)  # the published cartridge: 632 positions
PREFIXES = [(64, 4096, 1024), (64, 8192, 256), (16, 8192, 1024), (128, 1024, 1024), (32, 16384, 1024)]  # B, shared, own
PROMPTS = [(1, 8192), (8, 1024), (4, 4096), (2, 16384)]  # prompts of so many tokens
PUBLISHED = [(64, 632, 256), (16, 632, 256)]
CUT = [(64, 632, 256), (64, 8192, 256), (64, 4096, 1024), (16, 8192, 1024)]
ROWS = (16, 32, 64)
PREFIX_TILES = tuple(Tile(tokens=n, warps=w, stages=s) for n, w, s in ((64, 4, 3), (128, 4, 3), (64, 2, 3)))
GRAPH_BYTES, MOST_CALLS = 4e9, 16  # of K16/V16 that a graph reads, and calls
Results = dict[str, Any]
Say = Callable[[str], None]
Call = Callable[[int], object]


def timed(results: Results, say: Say, row: Results, arms: dict[str, Call], calls: int, rounds: int = 15) -> None:
    """Replay arms in turns, one line: ratios of the first over each."""
    graphs: dict[str, Captured] = {}
    for name, call in arms.items():
        try:
            graphs[name] = captured(call, calls)
        except (RuntimeError, KassayError) as error:
            row.setdefault("failed", {})[name] = str(error)[:300]
    row["rounds_us"] = interleaved(graphs, calls, rounds)
    results["shapes"].append(row)
    base = next(iter(row["rounds_us"].values()))
    words = []
    for arm, us in row["rounds_us"].items():
        ratio = statistics.median(a / b for a, b in zip(base, us, strict=True))
        words.append(f"{arm} {statistics.median(us):.1f} us ({ratio:.3f})")
    say(" ".join(f"{key} {value}" for key, value in row.items() if key != "rounds_us") + ": " + ", ".join(words))


def prompts(results: Results, say: Say, pool: Pool, batch: int, tokens: int) -> None:
    """Whole prompts natively on the model's operands, against the same prompts read back from pages."""
    heads, total = pool.heads, batch * tokens
    table = pool.order[: total // heads.page_tokens].view(batch, -1)
    counts = (heads.query_heads, heads.kv_heads, heads.kv_heads)
    q, k, v = (torch.randn(total, n, heads.head_dim, device=DEVICE).half() for n in counts)
    out, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=DEVICE)
    spans = Spans.of([tokens] * batch, [tokens] * batch, DEVICE)
    asked = [Asked(row=at, first=at * tokens, queries=tokens, context=tokens) for at in range(batch)]
    arms: dict[str, Call] = {"fresh": lambda at: attend(q, k, v, spans, causal=True)}

    def add(label: str, name: str, workspace: int) -> None:
        made, layer = Gathered(heads.shape(name), pool.host, DEVICE, workspace), pool.layers[name]
        plan = made.plan(asked)
        arms[f"{name} gathered{label}"] = lambda at: made(plan, q, layer, table, out, lse)
        if not label:
            arms[f"{name} gather alone"] = lambda at: made.gather(plan[0], layer, table)

    for name in ("native", "k16v8-d", "k4v4-d"):
        add("", name, total)
    add(", a quarter at once", "k16v8-d", total // 4)
    timed(results, say, {"what": "prefill", "batch": batch, "tokens": tokens}, arms, 2)


def prefix(results: Results, say: Say, pool: Pool, batch: int, shared: int, own: int) -> None:
    """A prefix in each sequence's own pages, in shared pages read by each, and read once for a tile of queries."""
    heads, page = pool.heads, pool.heads.page_tokens
    calls = max(1, min(MOST_CALLS, int(GRAPH_BYTES) // (4096 * (shared + batch * own))))

    def window(at: int, rows: int, tokens: int) -> torch.Tensor:
        """Pages of so many sequences: other ones for each call, as far as the pool goes."""
        count = rows * tokens // page
        first = at * count % max(1, pool.shape.pages - count)
        return pool.order[first : first + count].view(rows, -1)

    q = torch.randn(batch, heads.query_heads, heads.head_dim, device=DEVICE).half()
    outs = (torch.empty_like(q), torch.empty(q.shape[:2], device=DEVICE))
    whole, alone = (torch.full((batch,), n, dtype=torch.int32, device=DEVICE) for n in (shared + own, own))
    mine = [window(at + 1, batch, own) for at in range(calls)]
    pages = [pool.order.flip(0)[at * shared // page : (at + 1) * shared // page] for at in range(calls)]
    joined = [torch.cat([p[None].expand(batch, -1), m], 1).contiguous() for p, m in zip(pages, mine, strict=True)]
    copies = [window(at, batch, shared + own) for at in range(calls)]
    arms: dict[str, Call] = {}

    def add(name: str) -> None:
        layer = pool.layers[name]
        kernel = Decode(heads.shape(name), pool.host, DEVICE, batch, shared + own, uneven=False)
        arms[f"{name} own copies"] = lambda at: kernel(q, layer, copies[at], whole, *outs)
        arms[f"{name} shared pages"] = lambda at: kernel(q, layer, joined[at], whole, *outs)

    def add_shared(name: str, frozen: str) -> None:
        held = [Cartridge(pool.layers[frozen], each.tolist(), shared) for each in pages]
        both = Shared(heads.shape(name), heads.shape(frozen), pool.host, DEVICE, batch, own, shared)
        layer = pool.layers[name]
        arms[f"{name} + {frozen} once"] = lambda at: both(q, held[at], layer, mine[at], alone, *outs)

    for name in ("native", "k16v8-d"):
        add(name)
    for pair in (("native", "native"), ("native", "k16v8-d"), ("k16v8-d", "k16v8-d")):
        add_shared(*pair)
    row = {"what": "prefix", "batch": batch, "shared": shared, "own": own, "page": page}
    timed(results, say, row, arms, calls)


def compile_prefix(job: tuple[Heads, str, PrefixCut]) -> None:
    """Compile a prefix kernel into Triton's cache, in a process of its own."""
    heads, name, cut = job
    pool = Pool(heads, tuple(dict.fromkeys(("native", name))), 1024, host_of(DEVICE), DEVICE)
    shape, layer = heads.shape(name), pool.layers[name]
    q = torch.zeros(64, heads.query_heads, heads.head_dim, device=DEVICE, dtype=torch.float16)
    table = torch.zeros(64, 256 // heads.page_tokens, dtype=torch.int32, device=DEVICE)
    lengths = torch.ones(64, dtype=torch.int32, device=DEVICE)
    try:
        both = Shared(shape, shape, pool.host, DEVICE, 64, 256, 512, prefix_cut=cut)
        both(q, Cartridge(layer, range(512 // heads.page_tokens), 512), layer, table, lengths)
    except (RuntimeError, KassayError) as error:
        print(f"not compiled: {name} {cut}: {str(error)[:200]}", file=sys.stderr)


def apart(arms: dict[str, Call], out: torch.Tensor) -> float:
    """How far arms that should give the same are from the first, relative; NaN stays."""
    found, first = [], None
    for call in arms.values():
        out.fill_(float("nan"))
        call(0)
        first = out.double() if first is None else first
        found.append((out.double() - first).norm() / first.norm())
    return float(torch.stack(found).max())


def cuts(results: Results, say: Say, pool: Pool, batch: int, shared: int, own: int) -> None:
    """Cuts of the prefix kernel."""
    heads, page, calls = pool.heads, pool.heads.page_tokens, 8
    q = torch.randn(batch, heads.query_heads, heads.head_dim, device=DEVICE).half()
    outs = (torch.empty_like(q), torch.empty(q.shape[:2], device=DEVICE))
    lengths = torch.full((batch,), own, dtype=torch.int32, device=DEVICE)
    count = batch * own // page
    mine = [pool.order[at * count : (at + 1) * count].view(batch, -1) for at in range(calls)]
    pages = [pool.order.flip(0)[at * shared // page : (at + 1) * shared // page].tolist() for at in range(calls)]
    for name in ("native", "k16v8-d"):
        layer, shape = pool.layers[name], heads.shape(name)
        held = [Cartridge(layer, each, shared) for each in pages]
        arms: dict[str, Call] = {}

        def add(cut: PrefixCut | None, shape: DecodeShape = shape, layer: PagedLayer = layer,
                held: list[Cartridge] = held, arms: dict[str, Call] = arms) -> None:  # fmt: skip
            both = Shared(shape, shape, pool.host, DEVICE, batch, own, shared, prefix_cut=cut)
            tile = both.cut.tile
            arms[f"{both.cut.rows} rows {tile.tokens},{tile.warps},{tile.stages} x{both.parts}"] = lambda at: both(
                q, held[at], layer, mine[at], lengths, *outs)  # fmt: skip

        add(None)
        for rows in ROWS:
            programs = heads.kv_heads * -(-batch * shape.group // rows)
            for tile in PREFIX_TILES:
                for waves in (1, 2, 4):
                    parts = max(1, min(16, waves * pool.host.processors // programs))
                    add(PrefixCut(rows=rows, tile=tile, parts=parts))
        row = {"what": "cuts", "recipe": name, "batch": batch, "shared": shared, "own": own, "page": page}
        row["largest_difference"] = apart(arms, outs[0])
        timed(results, say, row, arms, calls, rounds=7)


def main() -> int:
    """The trial and its verdict."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=2.0)
    asked.add_argument("--out", type=Path, default=Path("kernel-prefill-trial.json"))
    asked.add_argument("--sections", default="prefill,prefix")
    args, began = asked.parse_args(), time.monotonic()
    sections = args.sections.split(",")
    results: Results = {"shapes": [], "torch": torch.__version__, "triton": triton.__version__}

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)
        args.out.write_text(json.dumps(results))

    if "cuts" in sections:
        jobs = [(heads, name, PrefixCut(rows=rows, tile=tile, parts=4)) for heads in (QWEN3_8B, PAGES_OF_8)
                for name in ("native", "k16v8-d") for rows in ROWS for tile in PREFIX_TILES]  # fmt: skip
        with multiprocessing.get_context("spawn").Pool(14) as workers:
            workers.map(compile_prefix, jobs, chunksize=3)
        say(f"{len(jobs)} prefix kernels compiled")
    torch.manual_seed(1)
    with torch.no_grad():
        host = host_of(DEVICE)
        pool = Pool(QWEN3_8B, ("native", "k16v8-d", "k4v4-d"), 1 << 20, host, DEVICE)
        eights = Pool(PAGES_OF_8, ("native", "k16v8-d"), 1 << 18, host, DEVICE)
        results |= {"device": host.name, "copy_TB_s": copy_ceiling(DEVICE)}
        say(f"{host.name}, copy {results['copy_TB_s']:.2f} TB/s")
        work: list[Callable[[], None]] = []
        if "prefill" in sections:
            work += [partial(prompts, results, say, pool, *each) for each in PROMPTS]
        if "prefix" in sections:
            work += [partial(prefix, results, say, eights, *each) for each in PUBLISHED]
            work += [partial(prefix, results, say, pool, *each) for each in PREFIXES]
        if "cuts" in sections:
            work += [partial(cuts, results, say, eights if each[1] == 632 else pool, *each) for each in CUT]
        for at, each in enumerate(work):
            if time.monotonic() - began > 60 * args.minutes:
                say(f"out of time: {len(work) - at} shapes were left out")
                break
            each()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
