"""What does the reference cache cost in decode beside transformers' own, and what does it hold in memory?

`python -m benchmarks.reference_cache` prints one JSON object; `--device cuda` on a GPU (scripts/reference-gpu-trial.py
needs nothing but torch, transformers and numpy). Caches take turns within a round, and their order is rotated from
round to round: what is compared is compared within one round of one process.

    time      seconds of STEPS greedy tokens of a batch from a filled cache, over those of transformers' DynamicCache
    held      bytes that the allocator gave for a filled cache, beside the sizes of its storages
    transient largest extra of the allocator during one decode step: growth per token of context, in units of one
              layer's keys and values in the compute type, for models of 4 and 8 layers
"""

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, DynamicCache

from kassay.backend import reference, structure, workload
from kassay.kv import calibrate
from kassay.kv.cache import Prefilled, Scales
from kassay.kv.calibrate import AmaxFold
from kassay.kv.plane import as_numpy
from kassay.kv.recipe import SEVEN_ARMS, Recipe
from kassay.paths import ROOT

MODELS = ROOT / "data" / "models"
OWN = "transformers"  # its DynamicCache
BAR = 3.0  # times its decode time
TIMED = ((8, 1000), (1, 250))  # batch, context: where reconstructing costs most, and where starting operations does
STEPS = 32
BATCH = 8  # of the measurement of memory
LENGTHS = (256, 512, 1024)  # contexts over which memory is seen to grow
LAYERS = (4, 8)
SEED = 20261203


def arguments() -> argparse.Namespace:
    """The words of the command line."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.reference_cache", description=__doc__)
    asked.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    asked.add_argument("--rounds", type=int, default=7, help="how often each cache decodes; the first is a warm-up")
    asked.add_argument("--threads", type=int, default=1)
    asked.add_argument("--bars", action="store_true", help=f"exit 1 if a median ratio is {BAR:g} or more")
    return asked.parse_args()


def main() -> int:
    """Measure, print, judge."""
    asked = arguments()
    found = measured(torch.device(asked.device), asked.rounds, asked.threads)
    json.dump(found, sys.stdout, indent=1)
    print()
    missed = [one for one in found["time"] if not one["median"] < BAR]
    return 1 if asked.bars and missed else 0


def measured(device: torch.device, rounds: int, threads: int) -> dict[str, Any]:
    """Everything, as JSON."""
    model = reference.load(MODELS / "robust", threads).to(device)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "threads": threads,
        "steps": STEPS,
        "rounds": rounds - 1,
        "time": [row for batch, tokens in TIMED for row in times(model, batch, tokens, rounds)],
        "memory": [grown for layers in LAYERS for grown in growth(of_layers(layers, threads).to(device))],
    }


def of_layers(layers: int, threads: int) -> Any:
    """A model of the shipped one's geometry with random weights and so many layers."""
    torch.manual_seed(SEED)
    torch.set_num_threads(threads)
    config = reference.load(MODELS / "robust", threads).config
    config.num_hidden_layers, config.layer_types = layers, [config.layer_types[0]] * layers
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float().eval()


def scales_of(context: Prefilled) -> Scales:
    """Fixed scales of these very operands: enough where no quality is measured."""
    fold = AmaxFold()
    for layer, pair in enumerate(context.operands):
        for component, operand in zip("kv", pair, strict=True):
            fold.add(component, layer, as_numpy(operand))
    return calibrate.by_component(fold.scales(len(context.operands)))


def own_cache(model: Any, context: Prefilled) -> DynamicCache:
    """transformers' own cache that holds a prefilled context in the compute type."""
    cache = DynamicCache(config=model.config)
    for layer, (k_BHTD, v_BHTD) in enumerate(context.operands):
        cache.update(k_BHTD.to(model.dtype), v_BHTD.to(model.dtype), layer)
    return cache


def makers(model: Any, context: Prefilled, more_tokens: int) -> dict[str, Callable[[], Any]]:
    """Name -> a filled cache, for transformers' own and every recipe."""
    scales = scales_of(context)

    def of(recipe: Recipe) -> Callable[[], Any]:
        return lambda: reference.filled(model, recipe, scales, context, more_tokens)

    return {OWN: lambda: own_cache(model, context)} | {recipe.name: of(recipe) for recipe in SEVEN_ARMS}


def times(model: Any, batch: int, context_tokens: int, rounds: int) -> list[dict[str, Any]]:
    """The ratio of every recipe, round by round, the first left out."""
    rows_BT = workload.speed_prompts(batch, context_tokens, SEED).to(next(model.parameters()).device)
    context = reference.prefill(model, rows_BT[:, :-1])
    made = makers(model, context, STEPS)
    names = list(made)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(decode_s(model, made[name](), rows_BT))
    own = seconds.pop(OWN)[1:]
    found = []
    for name, spent in seconds.items():
        ratios = [one / other for one, other in zip(spent[1:], own, strict=True)]
        spread = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        size = {"batch": batch, "context_tokens": context_tokens}
        found.append({"recipe": name, **size, **{word: round(ratio, 3) for word, ratio in spread.items()}})
    return [{**one, "own_ms_a_step": round(1000 * statistics.median(own) / STEPS, 3)} for one in found]


def decode_s(model: Any, cache: Any, rows_BT: torch.Tensor) -> float:
    """Seconds of the decode steps alone."""
    synchronize(rows_BT.device)
    began = time.perf_counter()
    reference.forced(model, cache, rows_BT[:, -1:], STEPS)
    synchronize(rows_BT.device)
    return time.perf_counter() - began


def synchronize(device: torch.device) -> None:
    """Wait for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def growth(model: Any) -> list[dict[str, Any]]:
    """Per cache what a token of context adds: held, and for a moment during a decode step."""
    device = next(model.parameters()).device
    geometry = structure.geometry_of(model)
    layer_bytes = 2 * BATCH * geometry.kv_heads * geometry.head_dim * model.dtype.itemsize
    points: dict[str, list[tuple[int, int, int, int]]] = {}
    for tokens in LENGTHS:
        rows_BT = workload.speed_prompts(BATCH, tokens, SEED).to(device)
        context = reference.prefill(model, rows_BT[:, :-1])
        for name, make in makers(model, context, 1).items():
            points.setdefault(name, []).append((tokens, *allocated(model, make, rows_BT, device)))
    found = []
    for name, seen in points.items():
        (short, *first), (long, *last) = seen[0], seen[-1]
        held, stored, transient = ((b - a) / (long - short) for a, b in zip(first, last, strict=True))
        middle = seen[1]
        straight = first[2] + transient * (middle[0] - short)
        found.append(
            {
                "cache": name,
                "layers": geometry.layers,
                "held_bytes_a_token": round(held, 1),
                "stored_bytes_a_token": round(stored, 1),
                "transient_over_a_layer": round(transient / layer_bytes, 3),
                "transient_off_a_line": round(middle[3] / straight - 1, 3),
            }
        )
    return found


def allocated(model: Any, make: Callable[[], Any], rows_BT: torch.Tensor, device: torch.device) -> tuple[int, int, int]:
    """Bytes given for the filled cache, those of its storages, and the largest extra during one decode step."""
    made: list[Any] = []
    held, _ = watched(lambda: made.append(make()), device)
    cache = made[0]
    storages = cache.storages() if hasattr(cache, "storages") else []
    stored = sum(storage.tensor.nbytes for storage in storages)
    if not storages:
        stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    _, peak = watched(lambda: reference.forced(model, cache, rows_BT[:, -1:], 1), device)
    return held, stored, peak


def watched(work: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """Bytes that `work` leaves allocated, and the most that it had at a time beyond what was there."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.memory_allocated(device) - before, torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    live = peak = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return live, peak


if __name__ == "__main__":
    raise SystemExit(main())
