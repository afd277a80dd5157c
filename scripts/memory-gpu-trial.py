"""Memory and the conditions of timing on a GPU: the stage programs themselves, and what NVML told them.

    python scripts/memory-gpu-trial.py FOLDER [--device cpu]    with a Python that has torch, transformers, nvidia-ml-py

Calibrate, memory (ceilings of a study, seven recipes) and one block of timing on the shipped model *robust* in FP16,
each as a run starts it. FOLDER keeps their records. Prints one JSON object, with what the study's rules say of the
timed block, and exits 1 if a stage did not pass, if a window of samples is no evidence, or if a ceiling was not
observed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from kassay import digest, paths, validity
from kassay.kinds.timing import GpuState, HostState, TimingCell
from kassay.kv.recipe import SEVEN_ARMS
from kassay.record import read_kind

MODEL = paths.ROOT / "data" / "models" / "robust"
CEILINGS = {
    "driver_period_ms": 20, "longest_gap_ms": 500, "device_ceiling_gib": 8, "reserved_ceiling_gib": 6,
    "budget_gib": 0.25, "equal_slots_blocks": 8000, "exempt": [],
}  # fmt: skip
LIMITS = {
    "cached_tokens": 0, "power_capped_percent": 0, "slowdown_percent": 0, "foreign_gpu_processes": 0,
    "foreign_cpu_percent": 50, "drift_percent": 10, "valid_blocks": 1,
}  # fmt: skip


def run_stage(folder: Path, program: str, params: dict[str, Any], inputs: dict[str, Path], gpus: int) -> dict[str, Any]:
    """Run one stage program in `folder/<program>`; what became of it."""
    directory = folder / program
    directory.mkdir(parents=True)
    grant = {"cpus": 1, "memory_gib": 8, "gpus": gpus, "gpu_ids": None if gpus else [], "exclusive": True}
    given = {name: {"path": str(path), "sha256": digest.of_path(path)} for name, path in inputs.items()}
    request = {
        "schema": "kassay.request/2", "run": "trial", "run_dir": str(folder), "stage": program, "params": params,
        "inputs": given, "attempt": 1, "grant": grant, "roots": [str(TOP)],
    }  # fmt: skip
    digest.write_json(directory / paths.REQUEST, request)
    began = time.monotonic()
    argv = [sys.executable, str(paths.program(program)), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    left = directory / paths.OUTCOME
    outcome = json.loads(left.read_bytes()) if left.is_file() else {"word": "no outcome", "reason": done.stderr[-1500:]}
    told = {name: outcome.get(name) for name in ("word", "reason", "metrics")}
    print(json.dumps({"stage": program, "wall_s": round(time.monotonic() - began, 1), **told}), flush=True)
    return told


def bodies(folder: Path, program: str, kind: str) -> list[dict[str, Any]]:
    """The records of one kind that a stage left."""
    path = folder / program / paths.RECORDS
    lines = map(json.loads, path.read_text().splitlines()) if path.is_file() else ()
    return [body for body in lines if body["schema"].startswith(f"kassay.{kind}/")]


def timed_faults(folder: Path) -> list[str]:
    """What the rules say of the timed block."""
    path = folder / "timing" / paths.RECORDS
    if not path.is_file():
        return ["nothing was timed"]
    kinds = {"cells": TimingCell, "hosts": HostState, "gpus": GpuState}
    found = validity.Evidence(**{name: tuple(read_kind(path, kind)) for name, kind in kinds.items()})
    return [f"{fault.rule}: {fault.recipe}: {fault.said}" for fault in validity.faults(found, LIMITS)]


def main() -> int:
    """Three stages, and what they recorded."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    words = asked.parse_args()
    folder, gpus = words.folder.resolve(), int(words.device == "cuda")
    backend = {"checkpoint": "shipped", "compute": "fp16" if gpus else "fp32", "gpus": gpus}
    base = {"model": "robust", "sixteen": "fp16", "backend": backend, "seed": 20261203}
    what = {"documents": 4, "check_documents": 2, "contexts_tokens": [500], "decode_tokens": 16, "batch": 4}
    ran = {"calibrate": run_stage(folder, "calibrate", {**base, **what}, {"model": MODEL}, gpus)}
    inputs = {"model": MODEL, "scales": folder / "calibrate" / "scales.json"}
    recipes = [recipe.name for recipe in SEVEN_ARMS]
    kconfig = {"budget_mib": 16, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}
    ceilings = CEILINGS if gpus else {**CEILINGS, "device_ceiling_gib": None, "reserved_ceiling_gib": None}
    held = {"recipes": recipes, "batch": 64, "context_tokens": 1000, **kconfig, "study_memory": ceilings}
    ran["memory"] = run_stage(folder, "memory", {**base, **held}, inputs, gpus)
    timed = {"arms": ["native", "k16v8-f"], "orders": "williams", "blocks": 1, "pilot_blocks": 0}
    sizes = {"batch": 16, "context_tokens": 900, "output_tokens": 64, "warmups": 1, "repetitions": 3}
    ran["timing"] = run_stage(folder, "timing", {**base, **timed, **sizes}, inputs, gpus)
    windows = bodies(folder, "memory", "memory_window")
    void = [f"{one['recipe']}, {one['phase']}, {one['source']}: {one['fault']}" for one in windows if not one["valid"]]
    gates = {one["gate"]: one["verdict"] for one in bodies(folder, "memory", "memory_gate")}
    bad = [f"{name}: {told['word']}: {told['reason']}" for name, told in ran.items() if told["word"] != "passed"]
    bad += void + [
        f"{gate}: not observed" for gate in ("device ceiling", "reserved ceiling") if gpus and gate not in gates
    ]
    kinds = ("memory_window", "allocator", "memory_gate", "memory_part", "memory_limits")
    records = {kind: bodies(folder, "memory", kind) for kind in kinds}
    records |= {kind: bodies(folder, "timing", kind) for kind in ("timing_cell", "host_state", "gpu_state")}
    print(json.dumps({"bad": bad, "faults of the timed block": timed_faults(folder), **records}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
