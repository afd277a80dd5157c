"""The reference backend on a GPU: the study's own stage programs on the shipped models, and what its cache costs there.

    python scripts/reference-gpu-trial.py [--device cpu] [--quick]     with a Python that has torch and transformers

Seven arms through calibrate, oracle, quality and memory in FP32; the oracle in FP16 and BF16 too; and a tiny checkpoint
with a tokenizer of its own, as `make MODEL=<folder>` would take it. Then benchmarks/reference_cache.py. Prints one JSON
object and exits 1 if a stage did not pass, if a decode ratio is 3 or more, or if a cache holds more than its storages
or, for a moment, over MOST_LAYERS layers' keys and values more than transformers' own: attention has its share in both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

from benchmarks import reference_cache
from kassay import digest, paths
from kassay.kv.recipe import SEVEN_ARMS
from tests import given

RECIPES = [recipe.name for recipe in SEVEN_ARMS]
MODELS = paths.ROOT / "data" / "models"
SEED = 20261203
MOST_LAYERS = 1.1  # of one layer's keys and values: its reconstruction, and pages that no length divides
ENDPOINTS = {
    "retrieval": {"measure": "retrieval", "items": 48, "context_tokens": 1000},
    "arithmetic": {"measure": "arithmetic", "items": 48, "context_tokens": 256},
    "nll": {"measure": "nll", "documents": 8, "context_tokens": 900, "targets": 64},
}


class Trial:
    """Stage directories in a temporary folder, and a row for each stage that ran."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder = folder
        self.gpus = gpus
        self.rows: list[dict[str, Any]] = []

    def stage(self, program: str, name: str, params: dict[str, Any], inputs: dict[str, Path]) -> Path:
        """Run one stage program by hand; its directory."""
        directory = self.folder / "stages" / f"{program}.{name}"
        directory.mkdir(parents=True)
        grant = {"cpus": 1, "memory_gib": 8, "gpus": self.gpus, "gpu_ids": None, "exclusive": False}
        request = {
            "schema": "kassay.request/2",
            "run": "trial",
            "run_dir": str(self.folder),
            "stage": f"{program}.{name}",
            "params": params,
            "inputs": {key: {"path": str(path), "sha256": digest.of_path(path)} for key, path in inputs.items()},
            "attempt": 1,
            "grant": grant if self.gpus else {**grant, "gpu_ids": []},
            "roots": [str(TOP)],
        }
        digest.write_json(directory / paths.REQUEST, request)
        began = time.monotonic()
        argv = [sys.executable, str(paths.program(program)), str(directory)]
        environment = {**os.environ, "PYTHONPATH": str(TOP)}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
        self.rows.append(row(directory, done, round(time.monotonic() - began, 1)))
        print(json.dumps(self.rows[-1]), file=sys.stderr)
        return directory

    def study(self, name: str, model: Path, checkpoint: str, compute: str, programs: str) -> None:
        """Some of the stages on one model in one compute type."""
        backend = {"checkpoint": checkpoint, "compute": compute, "gpus": self.gpus}
        sixteen = compute if compute != "fp32" else "fp16"
        base = {"model": name, "sixteen": sixteen, "backend": backend, "seed": SEED}
        what = {"documents": 8, "check_documents": 4, "contexts_tokens": [500, 900], "decode_tokens": 64, "batch": 8}
        label = f"{name}.{compute}"
        made = self.stage("calibrate", label, {**base, **what}, {"model": model})
        inputs = {"model": model, "scales": made / "scales.json"}
        base["recipes"] = RECIPES
        if not inputs["scales"].exists():
            return
        if "oracle" in programs:
            self.stage("oracle", label, {**base, "context_tokens": 300, "batch": 2}, inputs)
        if "quality" in programs:
            asked = {"split": "development", "batch": 16, "answer_cap_tokens": 32, "endpoints": ENDPOINTS}
            self.stage("quality", label, {**base, **asked}, inputs)
        if "memory" in programs:
            limits = {"budget_mib": 16, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0}
            self.stage("memory", label, {**base, **limits, "batch": 8, "context_tokens": 900}, inputs)


def row(directory: Path, done: subprocess.CompletedProcess[str], wall_s: float) -> dict[str, Any]:
    """What a stage left, in few words."""
    there = (directory / paths.OUTCOME).is_file()
    outcome = json.loads((directory / paths.OUTCOME).read_bytes()) if there else {}
    records = directory / paths.RECORDS
    bodies = [json.loads(line) for line in records.read_text().splitlines()] if records.is_file() else []
    backend = next((body for body in bodies if body["schema"].startswith("kassay.backend/")), {})
    answers = [body for body in bodies if body["schema"].startswith("kassay.answer/")]
    right = Counter(f"{body['task']} {body['recipe']}" for body in answers if body["outcome"] == "correct")
    return {
        "stage": directory.name,
        "word": outcome.get("word", "no outcome"),
        "reason": outcome.get("reason", "") or ("" if done.returncode == 0 else done.stderr[-1500:]),
        "metrics": outcome.get("metrics", {}),
        "device": backend.get("device"),
        "compute_dtype": backend.get("compute_dtype"),
        "text": backend.get("text"),
        "correct": dict(right),
        "wall_s": wall_s,
    }


def faults(rows: list[dict[str, Any]], cost: dict[str, Any]) -> list[str]:
    """What must not be."""
    found = [f"{row['stage']} {row['word']}: {row['reason']}" for row in rows if row["word"] != "passed"]
    bar = reference_cache.BAR
    for one in cost["time"]:
        if not one["median"] < bar:
            found.append(f"{one['recipe']}: {one['median']} times at batch {one['batch']}")
    own = [one for one in cost["memory"] if one["cache"] == reference_cache.OWN]
    least = {one["layers"]: one["transient_over_a_layer"] for one in own}
    for one in cost["memory"]:
        if not one["transient_over_a_layer"] - least[one["layers"]] <= MOST_LAYERS:
            found.append(f"{one['cache']}: {one['transient_over_a_layer']} layers during a step")
        if not one["held_bytes_a_token"] <= 1.01 * one["stored_bytes_a_token"]:
            found.append(f"{one['cache']} holds {one['held_bytes_a_token']} bytes a token")
    return found


def main() -> int:
    """Stages, cost, verdict."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    asked.add_argument("--quick", action="store_true", help="one model, and no FP16")
    words = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="reference-trial.") as folder:
        trial = Trial(Path(folder), int(words.device == "cuda"))
        for name in ("fragile",) if words.quick else ("fragile", "robust"):
            trial.study(name, MODELS / name, "shipped", "fp32", "oracle quality memory")
            for compute in ("bf16",) if words.quick else ("bf16", "fp16"):
                trial.study(name, MODELS / name, "shipped", compute, "oracle")
        own = given.save(Path(folder) / "snapshot", begin=True, max_position_embeddings=2048)
        trial.study("given", own, "given", "bf16", "oracle quality memory")
    cost = reference_cache.measured(reference_cache.torch.device(words.device), rounds=7, threads=1)
    found = faults(trial.rows, cost)
    print(json.dumps({"stages": trial.rows, "cost": cost, "faults": found}, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
