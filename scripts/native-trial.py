"""The fused backend on a GPU, by hand: right against transformers, then stages as the native workflow asks them.

    python scripts/native-trial.py --out FOLDER [--sections check,compile,sweep,cell] [--model qwen3-8b]

Needs torch, triton, transformers, numpy, scipy and ml_dtypes beside this checkout, and no environment of kassay.
`check`: decoders of tiny random models of four families and of a shipped one against transformers with the same recipe,
step for step in FP16; a graph against the same steps without one. `compile`: every kernel that the sweep will meet, by
many processes, into Triton's cache. `sweep`: stages/sweep.py and stages/saturation.py in directories of their own.
`cell`: one timed cell of a complete request; `blocks`: ten blocks of two such cells, and what they say.
`memory`: stages/memory.py on three recipes; `cartridge`: a shared prefix under the oracle, and what its arms hold;
`cartridge-sweep`: decode steps over batch with a prefix stored once and copied; `cartridge-blocks`: complete requests
behind it (scripts/native_stages.py). Nothing that one section leaves is read by another.
Exit 1 if something is wrong.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
from native_stages import backend, cartridge, cartridge_blocks, cartridge_sweep, memory, stage

from kassay import paths
from kassay.backend import fused, fused_weights
from kassay.backend.fused_geometry import geometry_named
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut, Tile, tiles_of
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.prebias import drawn
from kassay.kv.recipe import recipe_named

BATCHES = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256]
CONTEXTS = [8192, 1024, 32768]
MOST_CACHED_TOKENS = 1 << 22
ARMS = ["native", "k16v8-f"]
FAMILIES = ("Llama", "Qwen2", "Qwen3", "Mistral")
CHECKED = ("native", "k16v8-d", "k8v8-d", "k4v4-d")
PREBIASED = ("prebias-k8v8-d", "prebias-k8v16-d")
KEY_BIAS = 10.0  # of the model that they are checked on, which dwarfs what its keys say
# Of the largest logit: FP16 arithmetic of two kinds moves an operand across a rounding edge, and random models have no
# margin. The tight comparison is the tests', in FP32.
LOGIT_TOLERANCE = {"native": 5e-3, "k16v8-d": 2e-2, "k8v8-d": 4e-2, "k4v4-d": 8e-2,
                   "prebias-k8v8-d": 4e-2, "prebias-k8v16-d": 4e-2}  # fmt: skip
STEPS = 24


def tiny(folder: Path, family: str, key_bias: float = 0.0) -> Path:
    """A random checkpoint of two layers."""
    import transformers

    torch.manual_seed(1)
    sizes: dict[str, Any] = {
        "vocab_size": 128, "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512,
        "initializer_range": 0.1, "tie_word_embeddings": family != "Llama",
    }  # fmt: skip
    if family == "Mistral":
        sizes["sliding_window"] = None
    config = getattr(transformers, f"{family}Config")(**sizes)
    directory = folder / (f"{family.lower()}-biased" if key_bias else family.lower())
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, tensor in model.named_parameters():
        if key_bias and name.endswith("k_proj.bias"):
            torch.nn.init.normal_(tensor, std=key_bias)
    model.save_pretrained(directory)
    return directory


def checked(directory: Path, recipes: tuple[str, ...], tokens: int, batch: int) -> list[dict[str, Any]]:
    """One model under these recipes: tokens and logits beside transformers', and the graph beside single steps."""
    from kassay.backend import reference

    device = torch.device("cuda")
    model = reference.read(directory, 4, torch.float16).to(device)
    weights = fused_weights.read(directory, torch.float16, device)
    ids_BT = torch.randint(100, (batch, tokens), generator=torch.Generator().manual_seed(3))
    context = reference.prefill(model, ids_BT[:, :-1].to(device))
    rows = []
    for name in recipes:
        recipe = recipe_named(name)
        last_B1 = ids_BT[:, -1:].to(device)
        wanted_BT = reference.forced(model, reference.filled(model, recipe, None, context, STEPS), last_B1, STEPS)
        cache = reference.filled(model, recipe, None, context, STEPS)
        logits_BV = model(last_B1, past_key_values=cache, use_cache=True).logits[:, -1].float()
        outputs, errors = [], []
        for graphs in (False, True):
            decoder = fused.Decoder(weights, recipe, fused.Plan(batch=batch, row_tokens=tokens + STEPS, steps=STEPS))
            decoder.admit(ids_BT, STEPS)
            errors.append(float((decoder.logits(batch).float() - logits_BV).abs().max() / logits_BV.abs().max()))
            if graphs:
                decoder.run(STEPS)
            else:
                for _ in range(STEPS):
                    decoder.advance(batch)
                decoder.steps = STEPS
            outputs.append(decoder.collect().T)
        same = float((outputs[0] == wanted_BT.cpu()).float().mean())
        rows.append({"model": directory.name, "recipe": name, "logit_error": max(errors), "tokens_equal": same,
                     "graph_equal": bool(torch.equal(*outputs))})  # fmt: skip
    return rows


def check(results: dict[str, Any]) -> int:
    """All models; the number of rows that are wrong."""
    with tempfile.TemporaryDirectory() as folder:
        for family in FAMILIES:
            results["check"] += checked(tiny(Path(folder), family), CHECKED, 150, 5)
        results["check"] += checked(tiny(Path(folder), "Qwen2", KEY_BIAS), PREBIASED, 150, 5)
    results["check"] += checked(ROOT / "data" / "models" / "robust", CHECKED, 200, 4)
    results["check"] += checked(ROOT / "data" / "models" / "fragile", PREBIASED, 200, 4)
    wrong = 0
    for row in results["check"]:
        bad = not row["logit_error"] < LOGIT_TOLERANCE[row["recipe"]] or not row["graph_equal"]
        wrong += bad
        print(f"check{' WRONG' if bad else ''}: {row}", flush=True)
    return wrong


def shape_named(name: str, geometry_name: str) -> DecodeShape:
    """Attention of a geometry under a recipe, in pages of 16."""
    geometry = geometry_named(geometry_name)
    return DecodeShape(recipe=recipe_named(name), query_heads=geometry.query_heads, kv_heads=geometry.kv_heads,
                       head_dim=geometry.head_dim, page_tokens=16)  # fmt: skip


def compiled(job: tuple[str, str, Tile, bool]) -> None:
    """Compile one kernel into Triton's cache, in a process of its own."""
    name, geometry_name, tile, several = job
    geometry, device, shape = geometry_named(geometry_name), torch.device("cuda"), shape_named(name, geometry_name)
    pool = PagedShape(pages=32, page_tokens=16, kv_heads=geometry.kv_heads, head_dim=geometry.head_dim)
    offset = drawn(geometry.kv_heads, geometry.head_dim) if shape.recipe.prebias else None
    layer = PagedLayer(shape.recipe, pool, device, LayerScales(keys=0.01, values=0.01), offset)
    q = torch.zeros(1, geometry.query_heads, geometry.head_dim, device=device, dtype=torch.float16)
    table = torch.arange(32, dtype=torch.int32, device=device)[None]
    splits = 2 if several else 1
    kernel = Decode(shape, host_of(device), device, 1, 512, Cut(tile=tile, splits=splits))
    kernel(q, layer, table, torch.tensor([512], dtype=torch.int32, device=device))
    torch.cuda.synchronize()


def compile_all(model: str, arms: list[str]) -> int:
    """Everything that the sweep's cuts need."""
    jobs = [(name, model, tile, several) for name in arms for tile in tiles_of(shape_named(name, model))
            for several in (False, True)]  # fmt: skip
    with multiprocessing.get_context("spawn").Pool(min(14, len(jobs))) as workers:
        workers.map(compiled, jobs, chunksize=1)
    return len(jobs)


def sweep(out: Path, args: argparse.Namespace) -> int:
    """S(B), and its fits."""
    params = {
        "model": args.model, "sixteen": "fp16", "recipes": args.arms.split(","), "batches": BATCHES,
        "largest_batch": max(BATCHES),
        "contexts_tokens": [int(each) for each in args.contexts.split(",")], "most_cached_tokens": MOST_CACHED_TOKENS,
        "output_tokens": 4, "repetitions": args.repetitions, "parts": [32, 128], "tuned_cuts": 6, "seed": 1,
        "backend": backend(args.model),
    }  # fmt: skip
    code = stage(out, "sweep", params, {}, args.sweep_s)
    if code:
        return 1
    study = {"sweep": {"alpha": 0.05}}
    fits = {"study": study, "residuals": "log"}
    return stage(out, "saturation", fits, {"sweep": out / "sweep" / paths.RECORDS}, 60)


def cell(out: Path, args: argparse.Namespace) -> int:
    """One complete request of the whole size."""
    params = {
        "model": args.model, "sixteen": "fp16", "recipe": "native", "batch": 32, "context_tokens": 8192,
        "output_tokens": 128, "warmups": 0, "repetitions": 1, "seed": 1, "load": "timed", "block": 0, "pilot": True,
        "position": 0, "backend": backend(args.model),
    }  # fmt: skip
    return stage(out, "timing_cell", params, {}, 90)


def blocks(out: Path, args: argparse.Namespace) -> int:
    """Complete requests of the whole size, two arms in counterbalanced blocks of fresh processes, and the contrast."""
    params = {
        "model": args.model, "sixteen": "fp16", "arms": ARMS, "orders": "williams", "blocks": args.blocks,
        "pilot_blocks": 0, "batch": 32, "context_tokens": 8192, "output_tokens": 128, "warmups": 0, "repetitions": 1,
        "seed": 20261130, "backend": backend(args.model),
    }  # fmt: skip
    if stage(out, "timing", params, {}, 560):
        return 1
    conditions = {
        "cached_tokens": 0, "power_capped_percent": 100, "slowdown_percent": 0, "foreign_gpu_processes": 0,
        "foreign_cpu_percent": 100, "drift_percent": 100, "valid_blocks": args.blocks,
    }  # fmt: skip
    timing = {"blocks": args.blocks, "family": ["k16v8-f"], "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01,
              "conditions": conditions}  # fmt: skip
    study = {"name": "decode-native", "timing": timing,
             "comparisons": {"k16v8-f": {"candidate": "k16v8-f", "control": "native"}}}  # fmt: skip
    inputs = {"timing": out / "timing" / paths.RECORDS, "orders": out / "timing" / "orders.json"}
    return stage(out, "contrast", {"model": args.model, "study": study}, inputs, 60)


def shared_sweep(out: Path, args: argparse.Namespace) -> int:
    """Decode steps with a shared prefix."""
    return cartridge_sweep(out, args.model, [int(each) for each in args.batches.split(",")], args.repetitions)


SECTIONS: dict[str, Callable[[Path, argparse.Namespace], int]] = {
    "sweep": sweep, "cell": cell, "blocks": blocks, "cartridge-sweep": shared_sweep,
    "cartridge-blocks": lambda out, args: cartridge_blocks(out, args.model, args.blocks),
    "memory": lambda out, args: memory(out, args.model), "cartridge": lambda out, args: cartridge(out, args.model),
}  # fmt: skip
OWN_FOLDER = ("memory", "cartridge", "cartridge-sweep", "cartridge-blocks")  # stages of the same name


def main() -> int:
    """The sections that are asked for."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--sections", default="check,compile,sweep,cell")
    asked.add_argument("--model", default="qwen3-8b")
    asked.add_argument("--arms", default=",".join(ARMS))
    asked.add_argument("--contexts", default=",".join(map(str, CONTEXTS)))
    asked.add_argument("--repetitions", type=int, default=5)
    asked.add_argument("--batches", default="1,2,4,8,16,32,48,64,96,128", help="of cartridge-sweep")
    asked.add_argument("--blocks", type=int, default=10)
    asked.add_argument("--sweep-s", type=float, default=150.0)
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    began, wrong = time.monotonic(), 0
    results: dict[str, Any] = {"check": [], "torch": torch.__version__}
    torch.set_grad_enabled(False)
    for name in args.sections.split(","):
        if name == "check":
            wrong += check(results)
        elif name == "compile":
            results["compiled"] = compile_all(args.model, args.arms.split(","))
        else:
            wrong += bool(SECTIONS[name](args.out / name if name in OWN_FOLDER else args.out, args))
        results[f"{name}_s"] = time.monotonic() - began
        print(f"{time.monotonic() - began:6.1f} s  {name} done, {wrong} wrong", flush=True)
        (args.out / "trial.json").write_text(json.dumps(results, indent=1))
        if wrong:
            break
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
