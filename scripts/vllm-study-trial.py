"""Try the stages of a vLLM study on a GPU: `python scripts/vllm-study-trial.py quality,memory,large,timing --out DIR`.

quality  scales folded in the worker, then stages/vllm_quality.py on the shipped models: vLLM's own FlashAttention,
         K16/V8 and K8/V8 on the plug-in, targets and questions decoded through the cache; then stages/certify.py
memory   stages/memory.py on vLLM: pools of equal slots and of equal bytes on the robust model
large    the same at Qwen3-8B geometry, drawn weights: 17,000 blocks and 40 GiB, 32 requests of 8,192 tokens
timing   few blocks of complete requests that read the certificates, and stages/contrast.py (needs `quality` before)

Every stage is its own program in a directory of its own, as a run would ask it, and is to be read as one
(request.json, records.jsonl, outcome.json). Only how its processes start differs: vLLM is imported once, and stages and
their cells are forks of that process, which has not touched the GPU. The study of workflow `vllm` is what counts.
Exit 1 if a stage did not end as it should.
"""

import argparse
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "plugins" / "vllm")]

from kassay import cell, digest, outcome, paths
from kassay.backend.vllm_forks import Forks
from kassay.errors import RunError
from kassay.stage import Stage, Unmet

MODELS = ("robust", "fragile")
ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-f": {"recipe": "k16v8-f", "attention": "plug-in"},
    "k8v8-f": {"recipe": "k8v8-f", "attention": "plug-in"},
}
ENGINE = {
    "sixteen": "fp16", "pool_mib": 256, "sequences": 32, "sequence_tokens": 1280, "batched_tokens": 16384,
    "graphs": [1, 2, 4, 8, 16, 24, 32], "prefix_caching": False, "chunked_prefill": False, "continued": "refuse",
    "lengths": "uneven", "cuts": None,
}  # fmt: skip
PLAIN = ("sixteen", "prefix_caching", "chunked_prefill", "continued", "cuts")
GEOMETRY = "qwen3-8b"
SMALL_GRAPHS = [32]
SEED, CONTEXT_TOKENS, TARGETS = 20261205, 1000, 128
MEMORY = {
    "driver_period_ms": 20, "longest_gap_ms": 500, "device_ceiling_gib": None, "reserved_ceiling_gib": None,
    "budget_gib": 0.25, "equal_slots_blocks": None, "exempt": [],
}  # fmt: skip
CONDITIONS = {
    "cached_tokens": 0, "power_capped_percent": 100, "slowdown_percent": 0, "foreign_gpu_processes": 0,
    "foreign_cpu_percent": 400, "drift_percent": 20, "valid_blocks": 2,
}  # fmt: skip


def study(items: int, blocks: int) -> dict[str, Any]:
    """What is asked, judged and expected: the shipped study with fewer items and wider margins."""
    pairs = {name: {"candidate": name, "control": "native"} for name in ARMS if name != "native"}
    answers = {"statistic": "gross-loss", "limit": 0.04, "true_rate": 0.0037}
    return {
        "name": "vllm-study-trial", "models": {name: {} for name in MODELS}, "comparisons": pairs, "seed": SEED,
        "alpha": 0.05, "split": "confirmation",
        "endpoints": {
            "retrieval": {"measure": "retrieval", "items": items, "context_tokens": CONTEXT_TOKENS},
            "arithmetic": {"measure": "arithmetic", "items": items, "context_tokens": 128},
            "nll": {"measure": "nll", "documents": 64, "context_tokens": CONTEXT_TOKENS, "targets": TARGETS},
        },
        "gates": {
            "retrieval": answers | {"endpoint": "retrieval", "native_floor": 0.95},
            "arithmetic": answers | {"endpoint": "arithmetic", "native_floor": 0.60},
            "nll": {
                "statistic": "relative-nll", "endpoint": "nll", "limit": 0.01, "draws": 10000, "generator": "pcg64",
            },
        },
        "certificates": {
            "comparisons": list(pairs), "objectives": {"preservation": ["retrieval", "arithmetic", "nll"]},
            "route": "preservation", "family_alpha": None, "slots": 1,
        },
        "expected": {
            "robust": {"k16v8-f": "pass", "k8v8-f": "pass"}, "fragile": {"k16v8-f": "pass", "k8v8-f": "fails"}
        },
        "timing": {
            "workloads": ["timed"], "arms": list(ARMS), "pilot_blocks": 0, "blocks": blocks, "orders": "williams",
            "family": list(pairs), "family_size": len(pairs), "alpha": 0.05, "screen_ratio": 1.01,
            "interval_alpha": 0.05, "conditions": CONDITIONS | {"valid_blocks": blocks},
        },
    }  # fmt: skip


def ended(directory: Path, code: int) -> outcome.Outcome:
    """What a program left. Raises Unmet and RunError as kassay.cell does."""
    found = outcome.load(directory)
    if found is not None and found.word == "unmet":
        raise Unmet(f"`{directory.name}`: {found.reason}")
    if found is None or found.word not in ("passed", "rejected") or code not in (0, 3):
        raise RunError(f"`{directory.name}`: {found.reason if found else f'exit status {code}'}")
    return found


def program(name: str, directory: Path) -> int:
    """Run a stage program in this process as if it had been started; its exit status."""
    sys.argv = [str(ROOT / "stages" / f"{name}.py"), str(directory)]
    sys.path.insert(0, str(ROOT / "stages"))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as status:
        return int(status.code or 0)
    return 0


def forked_cell(stage: Stage, name: str, made: str, params: dict[str, Any], python: str = sys.executable) -> Path:
    """kassay.cell.run_cell with a fork in the place of a fresh process; `python` is this one's."""
    directory = stage.directory / "cells" / name
    directory.mkdir(parents=True)
    digest.write_json(directory / paths.REQUEST, {**stage.request, "stage": name, "params": params, "argv": [python]})
    begun = time.monotonic()
    process = os.fork()
    if not process:
        for number, file in ((1, paths.STDOUT), (2, paths.STDERR)):
            os.dup2(os.open(directory / file, os.O_CREAT | os.O_WRONLY), number)
        status = 1
        try:
            status = program(made, directory)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    ended(directory, code)
    stage.add_child(json.loads((directory / paths.RECEIPT).read_bytes()))
    print(f"  {directory.parents[1].name}/{name}: {time.monotonic() - begun:.1f} s", flush=True)
    return directory


class Trial:
    """Stages under a folder, each a fork."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out.resolve()
        self.study = study(options.items, options.blocks)
        self.forks = Forks(self.out, options.seconds, lambda name, error: print(f"{name}: {error!r}", flush=True))
        self.wrong = 0

    def stage(self, name: str, made: str, params: dict[str, Any], inputs: dict[str, Path]) -> Path:
        """One stage; its directory."""
        directory = self.out / "stages" / name
        directory.mkdir(parents=True)
        request = {
            "schema": "kassay.request/2", "run": "trial", "run_dir": str(self.out), "stage": name, "params": params,
            "inputs": {key: {"path": str(path), "sha256": digest.of_path(path)} for key, path in inputs.items()},
            "attempt": 1, "roots": [str(ROOT)],
            "grant": {"cpus": 2, "memory_gib": 16, "gpus": 1, "gpu_ids": None, "exclusive": False},
        }  # fmt: skip
        digest.write_json(directory / paths.REQUEST, request)
        begun = time.monotonic()
        self.forks.run(name, lambda: self.run(made, directory), self.options.seconds)
        found = outcome.load(directory)
        said = "left nothing" if found is None else f"{found.word} {found.reason} {json.dumps(found.metrics)}"
        self.wrong += found is None or found.word != "passed"
        print(f"{name}: {time.monotonic() - begun:.1f} s, {said}"[:1500], flush=True)
        if found is None or found.word not in ("passed", "rejected"):
            raise SystemExit(1)
        return directory

    def run(self, made: str, directory: Path) -> None:
        """A stage's program in a fork; how it ended stands in its directory."""
        program(made, directory)

    def model(self, name: str) -> Path:
        """A shipped model."""
        return ROOT / "data" / "models" / name

    def scales(self, model: str) -> Path:
        """Scales of a model, folded once."""
        directory = self.out / "stages" / f"scales.{model}"
        if not directory.exists():
            params = {"model": model, "geometry": "", "engine": ENGINE | {"graphs": SMALL_GRAPHS}, "documents": 32,
                      "context_tokens": CONTEXT_TOKENS, "decode_tokens": 64, "seed": 20261020}  # fmt: skip
            self.stage(f"scales.{model}", "vllm_calibrate", params, {"model": self.model(model)})
        return directory / "scales.json"

    def quality(self) -> None:
        """Answers and losses of both models, and their certificates."""
        asked = {name: self.study[name] for name in ("split", "seed", "endpoints")}
        params = {**asked, "geometry": "", "sixteen": "fp16", "arms": ARMS, "engine": ENGINE, "losses": "decoded",
                  "questions": "decoded", "batch": 32, "answer_cap_tokens": 32}  # fmt: skip
        records = {}
        for model in MODELS:
            inputs = {"model": self.model(model), "scales": self.scales(model)}
            made = self.stage(f"quality.{model}", "vllm_quality", {**params, "model": model}, inputs)
            records[f"quality.{model}"] = made / paths.RECORDS
        made = self.stage("certify", "certify", {"study": self.study}, records)
        for one in json.loads((made / "certificates.json").read_bytes()):
            told = {
                key: one[key] for key in ("model", "candidate", "verdict", "expected", "failed_gates", "open_gates")
            }
            print(f"  {json.dumps(told)}", flush=True)

    def memory(self) -> None:
        """Pools of the robust model."""
        params = {
            "model": "robust", "geometry": "", "sixteen": "fp16", "backend": {"engine": "vllm"}, "arms": ARMS,
            "engine": ENGINE | {"graphs": SMALL_GRAPHS}, "batch": 32, "context_tokens": 1024, "output_tokens": 32,
            "study_memory": MEMORY, "study_page_tokens": 16, "budget_mib": 0, "device_ceiling_gib": 0,
            "reserved_ceiling_gib": 0, "seed": SEED,
        }  # fmt: skip
        inputs = {"model": self.model("robust"), "scales": self.scales("robust")}
        self.shown(self.stage("memory", "memory", params, inputs))

    def large(self) -> None:
        """Pools of the published worker study at its geometry."""
        plain = {name: ENGINE[name] for name in PLAIN}
        sizes = {"pool_mib": 4096, "sequences": 8, "sequence_tokens": 2048, "batched_tokens": 8192, "graphs": [8]}
        asked = {"model": "", "geometry": GEOMETRY, "engine": plain | sizes | {"lengths": "uneven"}, "documents": 8,
                 "context_tokens": 1536, "decode_tokens": 32, "seed": 20261020}  # fmt: skip
        scales = self.stage("scales.geometry", "vllm_calibrate", asked, {}) / "scales.json"
        params = {
            "model": GEOMETRY, "geometry": GEOMETRY, "sixteen": "fp16", "backend": {"engine": "vllm"}, "arms": ARMS,
            "engine": plain | {"lengths": "equal"}, "batch": 32, "context_tokens": 8192, "output_tokens": 8,
            "study_memory": MEMORY | {"budget_gib": 40, "equal_slots_blocks": 17000}, "study_page_tokens": 16,
            "budget_mib": 0, "device_ceiling_gib": 0, "reserved_ceiling_gib": 0, "seed": SEED,
        }  # fmt: skip
        self.shown(self.stage("large", "memory", params, {"scales": scales}))

    def shown(self, made: Path) -> None:
        """Parts, gates, windows and allocator of a stage of memory."""
        for line in (made / paths.RECORDS).read_text().splitlines():
            body = json.loads(line)
            if body["schema"].startswith(("kassay.memory_gate/", "kassay.memory_part/", "kassay.allocator/")):
                print(f"  {line[:400]}", flush=True)
            elif body["schema"].startswith("kassay.memory_window/"):
                told = {key: body[key] for key in ("recipe", "phase", "source", "gap_ns", "largest_bytes", "fault")}
                print(f"  {json.dumps(told)}", flush=True)

    def timing(self) -> None:
        """Few blocks, which no sign test can make a gain of; what they say is told with the certificates."""
        params = {
            "model": "robust", "geometry": "", "arms": ARMS, "blocks": self.options.blocks, "pilot_blocks": 0,
            "engine": {name: ENGINE[name] for name in (*PLAIN, "pool_mib")} | {"lengths": "equal"},
            "batch": 32, "context_tokens": 1024, "output_tokens": 64, "warmups": 1, "repetitions": 1, "seed": SEED,
        }  # fmt: skip
        certificates = self.out / "stages" / "certify" / "certificates.json"
        inputs = {"model": self.model("robust"), "scales": self.scales("robust"), "certificates": certificates}
        made = self.stage("timing", "vllm_timing", params, inputs)
        inputs = {"timing": made / paths.RECORDS, "orders": made / "orders.json", "certificates": certificates}
        made = self.stage("contrast", "contrast", {"model": "robust", "study": self.study}, inputs)
        for line in (made / paths.RECORDS).read_text().splitlines():
            print(f"  {line[:600]}", flush=True)


def main() -> None:
    """Import vLLM once, then the sections in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", help="of quality, memory, large, timing, with commas")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--items", type=int, default=200, help="of retrieval and of arithmetic")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    begun = time.monotonic()
    import kassay_vllm.attend  # noqa: F401
    import torch
    import vllm.model_executor.models.qwen2
    import vllm.model_executor.models.qwen3
    import vllm.v1.engine.core
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.gpu_worker  # noqa: F401

    print(f"import {time.monotonic() - begun:.1f} s, CUDA touched: {torch.cuda.is_initialized()}", flush=True)
    cell.run_cell = forked_cell
    trial = Trial(options)
    for section in options.sections.split(","):
        getattr(trial, section)()
    raise SystemExit(1 if trial.wrong else 0)


if __name__ == "__main__":
    main()
