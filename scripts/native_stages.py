"""Sections of scripts/native-trial.py that run whole stages of the fused backend: memory, and a shared prefix.

Stage programs run in directories of their own, as their contract allows by hand; several at once where they only check.
Arms and limits are those of workflows/native/study, written out (a test holds them equal): no YAML is read here.
"""

import multiprocessing
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from kassay import digest, paths
from kassay.kernels.cartridge import Cartridge, Shared
from kassay.kernels.launch import Decode, host_of
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import TILES, Cut
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.recipe import recipe_named

ROOT = Path(__file__).resolve().parent.parent
ROBUST = ROOT / "data" / "models" / "robust"
SEED = 20261130
MEMORY_LIMITS = {
    "driver_period_ms": 20, "longest_gap_ms": 500, "device_ceiling_gib": 76, "reserved_ceiling_gib": 68,
    "budget_gib": 40, "equal_slots_blocks": 17000, "exempt": [],
}  # fmt: skip
PREFIX: dict[str, Any] = {
    "page_tokens": 8, "positions": 632, "positions_at": [[888, 632], [8448, 8192]],
    "arms": {
        "copied-k16v16": {"own": "native", "prefix": "native", "copied": True},
        "copied-k16v8": {"own": "k16v8-f", "prefix": "k16v8-f", "copied": True},
        "once-k16v16": {"own": "native", "prefix": "native", "copied": False},
        "once-k16v8": {"own": "native", "prefix": "k16v8-f", "copied": False},
        "once-k16v8-all": {"own": "k16v8-f", "prefix": "k16v8-f", "copied": False},
    },
}  # fmt: skip
ONCE = [name for name, arm in PREFIX["arms"].items() if not arm["copied"]]
HEADS = (32, 8, 128)  # of Qwen3-8B
LOGITS = 5e-3  # of the largest logit: FP16 arithmetic of two kinds
Compile = tuple[str, str | None, int, int, int]  # own recipe, that of a prefix, tile, splits, batch


def started(
    folder: Path, program: str, params: dict[str, Any], inputs: dict[str, Path], name: str | None = None
) -> subprocess.Popen[bytes]:
    """A stage program in a directory of its own."""
    directory = folder / (name or program)
    directory.mkdir(parents=True)
    grant = {"cpus": 4, "memory_gib": 32, "gpus": 1, "gpu_ids": ["0"], "exclusive": True}
    request = {
        "schema": "kassay.request/2", "run": "by-hand", "run_dir": str(folder), "stage": name or program,
        "params": params,
        "inputs": {each: {"path": str(path), "sha256": digest.of_path(path)} for each, path in inputs.items()},
        "attempt": 1, "grant": grant, "roots": [str(ROOT)], "key": {"host": True},
    }  # fmt: skip
    digest.write_json(directory / paths.REQUEST, request)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, str(paths.program(program)), str(directory)], env=environment)


def ended(running: dict[str, subprocess.Popen[bytes]], timeout_s: float) -> int:
    """Wait for stages; how many did not pass."""
    began, wrong = time.monotonic(), 0
    for name, process in running.items():
        try:
            code = process.wait(max(0.1, timeout_s - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            process.kill()
            code = 124
        wrong += code != 0
        print(f"{name}: exit {code} after {time.monotonic() - began:.1f} s", flush=True)
    return wrong


def stage(folder: Path, program: str, params: dict[str, Any], inputs: dict[str, Path], timeout_s: float) -> int:
    """Run one stage; whether it did not pass."""
    return ended({program: started(folder, program, params, inputs)}, timeout_s)


def backend(model: str, prefix: dict[str, Any] | None = None) -> dict[str, Any]:
    """Drawn weights at a geometry."""
    drawn = {"engine": "fused", "weights": "drawn", "geometry": model, "layers": None, "compute": "fp16", "gpus": 1}
    return {**drawn, "prefix": prefix}


def limits(**changes: Any) -> dict[str, Any]:
    """The study's limits; a ceiling of the device only where NVML can be asked."""
    found = {**MEMORY_LIMITS, **changes}
    if not find_spec("pynvml"):
        print("nvidia-ml-py is not there: no ceiling of the device", flush=True)
        found["device_ceiling_gib"] = None
    kconfig = {"budget_mib": 16, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}
    return {**kconfig, "study_memory": found}


def memory(out: Path, model: str) -> int:
    """Parts, windows and gates of three recipes: 32 sequences of 8,320 tokens, 17,000 blocks, 40 GiB."""
    params = {
        "model": model, "sixteen": "fp16", "recipes": ["native", "k16v8-f", "k8v8-d"], "batch": 32,
        "context_tokens": 8320, "output_tokens": 128, "study_page_tokens": 16, "seed": SEED, "backend": backend(model),
    }  # fmt: skip
    return stage(out, "memory", {**params, **limits()}, {}, 150)


def cartridge(out: Path, model: str) -> int:
    """A model behind a prefix, the route under the oracle, arm by arm at once, then what each arm holds."""
    torch.set_grad_enabled(False)
    for row in (behind("native"), behind("k16v8-d")):
        print(row, flush=True)
        if not row["logit_error"] < LOGITS or not row["graph_equal"]:
            return 1
    asked = {"documents": 4, "check_documents": 2, "contexts_tokens": [250], "decode_tokens": 16, "batch": 4}
    given = {"model": "robust", "sixteen": "fp16", "seed": SEED}
    host = {"checkpoint": "shipped", "compute": "fp32", "gpus": 0}
    if stage(out, "calibrate", {**given, **asked, "backend": host}, {"model": ROBUST}, 60):
        return 1
    inputs = {"model": ROBUST, "scales": out / "calibrate" / "scales.json"}
    shipped = {"engine": "fused", "weights": "shipped", "geometry": None, "layers": None, "compute": "fp16", "gpus": 1}
    running = {}
    for arm in ONCE:
        section = {**PREFIX, "arms": {arm: PREFIX["arms"][arm]}}
        params = {
            **given, "recipes": [], "heads": [[*HEADS, 8]], "context_tokens": 200, "batch": 2,
            "backend": {**shipped, "prefix": section},
        }  # fmt: skip
        running[f"oracle-{arm}"] = started(out, "oracle", params, inputs, f"oracle-{arm}")
    if ended(running, 240):
        return 1
    params = {
        "model": model, "sixteen": "fp16", "recipes": list(PREFIX["arms"]), "batch": 64, "context_tokens": 920,
        "output_tokens": 32, "study_page_tokens": 8, "seed": SEED, "backend": backend(model, PREFIX),
    }  # fmt: skip
    return stage(out, "memory", {**params, **limits(equal_slots_blocks=None)}, {}, 150)


def behind(prefix: str, tokens: int = 184, own: int = 40, steps: int = 24) -> dict[str, Any]:
    """The shipped model behind a prefix, FP16: logits beside transformers' on what is stored, graph beside steps."""
    from kassay.backend import fused, fused_arms, fused_prefix, fused_weights, reference
    from kassay.kv.cache import Prefilled
    from kassay.kv.plane import decode, encode, scale_of

    device, page = torch.device("cuda"), int(PREFIX["page_tokens"])
    model = reference.read(ROBUST, 4, torch.float16).to(device)
    weights = fused_weights.read(ROBUST, torch.float16, device)
    ids = torch.randint(100, (3, tokens), generator=torch.Generator().manual_seed(5))
    own_BT = ids[1:, :own]

    def stored(v_BHTD: torch.Tensor) -> torch.Tensor:
        if prefix == "native":
            return v_BHTD
        scale = scale_of(v_BHTD.float().abs().amax(-1, keepdim=True))
        return decode(encode(v_BHTD.float(), scale, "e4m3fn"), scale, "e4m3fn").half()

    context = reference.prefill(model, ids[:1].to(device))
    both = [(k.expand(2, -1, -1, -1), stored(v).expand(2, -1, -1, -1)) for k, v in context.operands]
    cache = reference.made(model, recipe_named("native"), None, tokens + own)
    cache.fill(Prefilled(operands=both))
    model(own_BT[:, :-1].to(device), past_key_values=cache, use_cache=True)
    wanted = model(own_BT[:, -1:].to(device), past_key_values=cache, use_cache=True).logits[:, -1].float()
    operands = fused_arms.operands_of(weights, ids[0], "fp16")
    outputs, errors = [], []
    for graphs in (False, True):
        frozen = fused_prefix.frozen(
            recipe_named(prefix), operands, query_heads=weights.geometry.query_heads, page_tokens=page, scales=None
        )
        plan = fused.Plan(batch=2, row_tokens=own + steps, steps=steps, page_tokens=page)
        decoder = fused.Decoder(weights, recipe_named("native"), plan, prefix=frozen)
        decoder.admit(own_BT, steps)
        errors.append(float((decoder.logits(2).float() - wanted).abs().max() / wanted.abs().max()))
        for _ in range(0 if graphs else steps):
            decoder.advance(2)
        decoder.steps = 0 if graphs else steps
        if graphs:
            decoder.run(steps)
        outputs.append(decoder.collect())
    return {"prefix": prefix, "logit_error": max(errors), "graph_equal": bool(torch.equal(*outputs))}


def compiled(job: Compile) -> None:
    """Compile what one cut of an arm needs into Triton's cache, in a process of its own."""
    own, prefix, tile, splits, batch = job
    device, tokens, page = torch.device("cuda"), 512, int(PREFIX["page_tokens"])
    query_heads, kv_heads, head_dim = HEADS
    pool = PagedShape(pages=tokens // page, page_tokens=page, kv_heads=kv_heads, head_dim=head_dim)
    scales = LayerScales(keys=0.01, values=0.01)

    def shape(name: str) -> DecodeShape:
        return DecodeShape(recipe=recipe_named(name), query_heads=query_heads, kv_heads=kv_heads, head_dim=head_dim,
                           page_tokens=page)  # fmt: skip

    layer = PagedLayer(recipe_named(own), pool, device, scales)
    cut = Cut(tile=TILES[tile], splits=splits)
    q = torch.zeros(batch, query_heads, head_dim, device=device, dtype=torch.float16)
    table = torch.arange(tokens // page, dtype=torch.int32, device=device).expand(batch, -1).contiguous()
    lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
    if prefix is None:
        Decode(shape(own), host_of(device), device, batch, tokens, cut)(q, layer, table, lengths)
    else:
        frozen = PagedLayer(recipe_named(prefix), pool, device, scales)
        held = Cartridge(frozen, range(tokens // page), tokens)
        made = Shared(shape(own), shape(prefix), host_of(device), device, batch, tokens, tokens, cut)
        made(q, held, layer, table, lengths)
    torch.cuda.synchronize()


def cartridge_sweep(out: Path, model: str, batches: list[int], repetitions: int) -> int:
    """Decode steps over batch: a prefix read once beside copies of it, at 632 and at 8,192 positions; and the fits."""
    own = sorted({arm["own"] for arm in PREFIX["arms"].values()})
    pairs = sorted({(arm["own"], arm["prefix"]) for arm in PREFIX["arms"].values() if not arm["copied"]})
    tiles = range(len(TILES))
    jobs: list[Compile] = [(name, None, tile, splits, 1) for name in own for tile in tiles for splits in (1, 2)]
    jobs += [(name, prefix, tile, 1, 64) for name, prefix in pairs for tile in tiles]
    jobs += [(name, prefix, 0, 1, batch) for name, prefix in pairs for batch in (1, 4, 16)]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(min(14, len(jobs))) as workers:
        workers.map(compiled, jobs, chunksize=1)
    print(f"{len(jobs)} cuts compiled after {time.monotonic() - began:.1f} s", flush=True)
    params = {
        "model": model, "sixteen": "fp16", "recipes": list(PREFIX["arms"]), "batches": batches,
        "contexts_tokens": [888, 8448], "most_cached_tokens": 1 << 20, "output_tokens": 4, "repetitions": repetitions,
        "parts": [16, 64], "tuned_cuts": 6, "seed": SEED, "backend": backend(model, PREFIX),
    }  # fmt: skip
    if stage(out, "sweep", params, {}, 240):
        return 1
    fits = {"study": {"sweep": {"alpha": 0.05}}, "residuals": "log"}
    return stage(out, "saturation", fits, {"sweep": out / "sweep" / paths.RECORDS}, 60)


def cartridge_blocks(out: Path, model: str, blocks: int) -> int:
    """Complete requests behind a prefix: prompts of 256 tokens, 32 of output, three arms in fresh processes."""
    params = {
        "model": model, "sixteen": "fp16", "arms": ONCE, "orders": "williams", "blocks": blocks, "pilot_blocks": 0,
        "batch": 64, "context_tokens": 256, "output_tokens": 32, "warmups": 1, "repetitions": 3, "seed": SEED,
        "backend": backend(model, PREFIX),
    }  # fmt: skip
    if stage(out, "timing", params, {}, 500):
        return 1
    conditions = {
        "cached_tokens": 0, "power_capped_percent": 100, "slowdown_percent": 0, "foreign_gpu_processes": 0,
        "foreign_cpu_percent": 100, "drift_percent": 100, "valid_blocks": blocks,
    }  # fmt: skip
    family = ONCE[1:]
    timing = {"blocks": blocks, "family": family, "alpha": 0.05, "interval_alpha": 0.05, "screen_ratio": 1.01,
              "conditions": conditions}  # fmt: skip
    pairs = {name: {"candidate": name, "control": ONCE[0]} for name in family}
    study = {"name": "cartridge-native", "timing": timing, "comparisons": pairs}
    inputs = {"timing": out / "timing" / paths.RECORDS, "orders": out / "timing" / "orders.json"}
    return stage(out, "contrast", {"model": model, "study": study}, inputs, 60)
