"""Decode attention on a GPU: our kernels, torch's and FlashInfer's, in one process and in turns, beside the memory.

    make bench-attention        or        python -m benchmarks.attention [--out FOLDER] [--minutes 9]
                                          [--shapes 32x8192,…] [--others 32x8192,…] [--seed 1]

Every arm of ours is tuned for each of `--shapes` (Qwen3-8B's attention); `--others` times other heads, head dim 64,
other pages and BF16 with the rule's cuts, untuned. All arms of a shape are then replayed once in each of 21 rounds. The
device's copy is measured before and after, a read of the pages with each shape. A ratio above the byte limit means that
the baseline is mistuned: it is an error, it is said, and the exit code is 1, as for a wrong output. attention.json is
written after every shape, attention.png at the end. Needs torch, triton, numpy, scipy, ml_dtypes and matplotlib.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import triton
from torch.nn.attention import SDPBackend

from benchmarks import attention_flashinfer, attention_table
from kassay.errors import KassayError
from kassay.kernels.ceiling import copy_ceiling, gather_ceiling
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.split import cut_of, tiles_of
from kassay.kernels.timing import Captured, captured, interleaved
from kassay.kernels.tuned import precompile, tuned_cut
from kassay.kernels.unfused import Unfused
from kassay.kernels.workload import Calls, Heads, Pool

QWEN3_8B = Heads(query_heads=32, kv_heads=8, head_dim=128, page_tokens=16)
OTHERS = (
    replace(QWEN3_8B, query_heads=28, kv_heads=4),
    replace(QWEN3_8B, query_heads=16, kv_heads=2),
    replace(QWEN3_8B, head_dim=64),
    replace(QWEN3_8B, page_tokens=1),
    replace(QWEN3_8B, page_tokens=8),
    replace(QWEN3_8B, page_tokens=32),
    replace(QWEN3_8B, sixteen="bf16"),
)
RECIPES = ("native", "k16v8-d", "k16v8-f", "k8v8-d", "k8v8-f", "k4v4-d")
UNTUNED = ("native", "k16v8-d", "k8v8-d", "k4v4-d")
UNFUSED = ("k16v8-d", "k4v4-d")
SDPA = {"torch flash": SDPBackend.FLASH_ATTENTION, "torch cudnn": SDPBackend.CUDNN_ATTENTION}
SHAPES = "32x8192,128x8192,8x32768,1x8192,32x1024,1x1024,32x32768,128x1024"
ROUNDS = 21
PAGE_READ = 1 << 14  # elements of a page that the widest page read takes at once
WORST = {"fp16": 5e-4, "bf16": 5e-3}  # relative error of an output
CUDA = torch.device("cuda")
Say = Callable[[str], None]


def own_arms(calls: Calls, host: Host, row: dict[str, Any], recipes: tuple[str, ...]) -> dict[str, Captured]:
    """Our kernels and the unfused control, whose attention has the cut of K16/V16."""
    heads, size, graphs = calls.pool.heads, (calls.batch, calls.tokens), {}
    for name in recipes:
        shape = heads.shape(name)
        default = cut_of(shape, host, *size, uneven=False)
        cut = default
        if row["tuned"]:
            found = tuned_cut(calls, name, host, device=CUDA)
            cut = found.best
            row["failed_cuts"] |= {f"{name} {each}": why[:200] for each, why in found.failed.items()}
        row["cuts"][name] = {"used": str(cut), "default": str(default)}
        for arm, used in {name: cut, **({f"{name} default": default} if cut != default else {})}.items():
            kernel = Decode(shape, host, CUDA, *size, used)
            calls.poison()
            calls.ours(name, kernel)(0)
            row["errors"][arm] = max(calls.error(name, one)[0] for one in {0, calls.batch - 1})
            row["call_bytes"][arm] = heads.call_bytes(name, calls.batch, calls.total)
            graphs[arm] = captured(calls.ours(name, kernel), calls.calls)
        for other in [one for one in UNFUSED if one in recipes and name == "native" and row["tuned"]]:
            control = Unfused(heads.shape(other), calls.pool.shape, host, CUDA, *size, cut)
            graphs[f"{other} unfused"] = captured(calls.ours(other, control), calls.calls)
    return graphs


def other_arms(calls: Calls, row: dict[str, Any]) -> dict[str, Captured]:
    """torch's attention on contiguous keys and values, FlashInfer's on our pages; what is absent goes into the row."""
    graphs = {}
    for arm, backend in SDPA.items():
        try:
            graphs[arm] = captured(calls.torch_s(backend), calls.calls)
        except RuntimeError as error:
            row["absent"][arm] = str(error).splitlines()[0][:200]
    for arm, call, why in attention_flashinfer.arms(calls) if attention_flashinfer.FP8 in calls.pool.layers else ():
        if call is None:
            row["absent"][arm] = why
            continue
        calls.poison()
        call(0)
        recipe = attention_flashinfer.FP8 if arm.endswith("fp8") else "native"
        row["errors_of_others"][arm] = calls.error(recipe, calls.batch - 1)[0]
        graphs[arm] = captured(call, calls.calls)
    return graphs


def measure(pool: Pool, batch: int, tokens: int, recipes: tuple[str, ...], tuned: bool) -> dict[str, Any]:
    """One shape."""
    began, calls = time.monotonic(), Calls(pool, [tokens] * batch)
    row: dict[str, Any] = {
        "heads": asdict(pool.heads), "batch": batch, "context_tokens": tokens, "tokens": calls.total, "tuned": tuned,
        "calls": calls.calls, "cuts": {}, "errors": {}, "errors_of_others": {}, "call_bytes": {}, "failed_cuts": {},
        "absent": {},
    }  # fmt: skip
    graphs = own_arms(calls, pool.host, row, recipes) | other_arms(calls, row)
    row["rounds_us"] = interleaved(graphs, calls.calls, ROUNDS)
    whole = pool.heads.page_tokens * pool.heads.kv_heads * pool.heads.head_dim >= PAGE_READ
    row["gather_TB_s"] = gather_ceiling(calls) if whole else None
    row["seconds"] = time.monotonic() - began
    row["impossible"] = attention_table.impossible(row)
    worst = WORST[pool.heads.sixteen]
    row["wrong"] = [arm for arm, error in row["errors"].items() if not error < worst]
    return row


def sizes(text: str) -> list[tuple[int, int]]:
    """`32x8192,1x1024` as batches and contexts."""
    return [(int(batch), int(tokens)) for batch, tokens in (each.split("x") for each in text.split(",") if each)]


def plan_of(args: argparse.Namespace) -> list[tuple[Heads, tuple[str, ...], bool, list[tuple[int, int]]]]:
    """Geometry, recipes, whether tuned, and shapes."""
    main = [(QWEN3_8B, RECIPES, True, sizes(args.shapes))]
    return [each for each in main + [(heads, UNTUNED, False, sizes(args.others)) for heads in OTHERS] if each[3]]


def compile_all(args: argparse.Namespace, host: Host, workers: int) -> int:
    """Everything that will run, side by side; the number of tiles."""
    jobs = []
    for heads, recipes, tuned, shapes in plan_of(args):
        for name in recipes:
            found = {cut_of(heads.shape(name), host, *size, uneven=False).tile for size in shapes}
            suiting = tiles_of(heads.shape(name))
            jobs += [(heads, name, tile) for tile in (suiting if tuned else sorted(found, key=str))]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        pool.map(precompile, jobs, chunksize=1)
    return len(jobs)


def run(args: argparse.Namespace, results: dict[str, Any], say: Say, left_s: Callable[[], float]) -> None:
    """All shapes until the deadline."""
    host = host_of(CUDA)
    results |= {"device": host.name, "torch": torch.__version__, "triton": triton.__version__}
    say(f"{host.name}: {compile_all(args, host, args.workers)} tiles compiled")
    results["copy_TB_s"] = {"before": copy_ceiling(CUDA)}
    for heads, recipes, tuned, shapes in plan_of(args):
        slots = max([batch * (tokens + 15) for batch, tokens in shapes] + [1 << 15])
        pool = Pool(heads, recipes, slots, host, CUDA)
        for batch, tokens in shapes:
            if left_s() < args.reserve_s:
                results["left_out"].append(f"{asdict(heads)} {batch}x{tokens}")
                continue
            try:
                row = measure(pool, batch, tokens, recipes, tuned)
            except (KassayError, RuntimeError) as error:
                results["failed"].append(f"{asdict(heads)} {batch}x{tokens}: {str(error)[:300]}")
                say(results["failed"][-1])
                continue
            results["shapes"].append(row)
            say(attention_table.text(row, results["copy_TB_s"]["before"]))
        del pool
    results["copy_TB_s"]["after"] = copy_ceiling(CUDA)


def main() -> int:
    """The benchmark, its table, its files and its verdict."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, default=Path("build/bench-attention"))
    asked.add_argument("--minutes", type=float, default=9.0)
    asked.add_argument("--reserve-s", type=float, default=20.0, help="a shape is begun only with so much time left")
    asked.add_argument("--shapes", default=SHAPES)
    asked.add_argument("--others", default="32x8192,8x1024")
    asked.add_argument("--workers", type=int, default=14, help="processes that compile")
    asked.add_argument("--seed", type=int, default=1)
    args = asked.parse_args()
    if not torch.cuda.is_available():
        print(f"unmet: torch {torch.__version__} sees no GPU")
        return 4
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    began = time.monotonic()
    results: dict[str, Any] = {"shapes": [], "failed": [], "left_out": [], "seed": args.seed}

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:.0f} s] {line}\n", flush=True)
        (args.out / "attention.json").write_text(json.dumps(results))

    with torch.no_grad():
        run(args, results, say, lambda: 60 * args.minutes - (time.monotonic() - began))
    attention_table.draw(results["shapes"], args.out / "attention.png")
    faults = [f"{attention_table.title(row)}: {arm} is {word}" for row in results["shapes"]
              for word in ("wrong", "impossible") for arm in row[word]]  # fmt: skip
    say(
        f"copy {results['copy_TB_s']} TB/s; left out {results['left_out']}; failed {results['failed']}; faults {faults}"
    )
    return 1 if faults or results["failed"] or not results["shapes"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
