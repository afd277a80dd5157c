"""Try `vllm serve` and the sweep on a GPU, small: `python scripts/vllm-serve-trial.py --out DIR [--model DIR] [PART…]`.

serve   stage `serving`: a native and a K16/V8 server of a shipped model, our client, closed and open loop
older   the same on vLLM's older model runner (VLLM_USE_V2_MODEL_RUNNER=0), whose graphs are told otherwise
check   stage `serving_check`: one K16/V8 server under our client and under `vllm bench serve`
sweep   stage `vllm_sweep` at Qwen3-8B geometry with drawn weights: two arms, one round, few points
plain   no stage: the command of plugins/vllm/README.md, with vLLM's own compilation and graphs, and some requests

Each but the last is the stage itself, run from its request.json as the driver would, with this interpreter. All parts
run at once, or one after another with --in-turn: then the sweep's times mean something. What each left lies in
DIR/<part>; the last lines say how each ended, and the exit status is 1 if one did not pass. For a host without a
framework environment: studies are the workflow's.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from kassay import digest, paths
from kassay.backend.vllm_arguments import cell_of
from kassay.backend.vllm_serve_worker import ATTEST, EXTENSION
from kassay.errors import KassayError
from kassay.serving import process, prompts, vllm_command, vllm_told
from kassay.serving.client import Target, closed_loop
from kassay.serving.stream import Limits

PLAIN = {"sixteen": "fp16", "prefix_caching": False, "chunked_prefill": False, "continued": "refuse", "cuts": None}
ARMS = {
    "native": {"recipe": "native", "attention": "flash-attn"},
    "k16v8-d": {"recipe": "k16v8-d", "attention": "plug-in"},
}
SIZES = {"context_tokens": 256, "output_tokens": 32, "requests": 24, "warmups": 4}
LOADS = [
    {"name": "closed", "concurrency": 8, **SIZES},
    {"name": "open", "per_minute": 600, "arrivals": "poisson", **SIZES},
]
SERVED: dict[str, Any] = {
    "model": "robust", "sixteen": "fp16", "backend": {"checkpoint": "shipped", "compute": "fp16", "gpus": 1},
    "command": "", "chat": False, "loads": LOADS, "largest_cohort": 1, "most_waiting": 1, "ready_timeout_s": 240,
    "grace_s": 10, "connect_s": 5, "stall_s": 30, "request_s": 60, "seed": 20261204,
    "vllm": {
        "geometry": "", "arms": ARMS,
        "engine": {**PLAIN, "pool_mib": 64, "sequences": 16, "graphs": [1, 2, 4, 8, 16], "lengths": "uneven"},
    },
}  # fmt: skip
OLDER = {arm: {**one, "variables": {"VLLM_USE_V2_MODEL_RUNNER": "0"}} for arm, one in ARMS.items()}
SERVED_OLDER = {**SERVED, "vllm": {**SERVED["vllm"], "arms": OLDER}}
SERVING = {"arms": list(ARMS), "blocks": 1, "pilot_blocks": 0, "lag_limit_s": 0.5}
STOP_S = 60  # for a stage that is asked to stop: its servers have their grace
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "serve": ("serving", {**SERVING, "served": SERVED}),
    "older": ("serving", {**SERVING, "served": SERVED_OLDER}),
    "check": ("serving_check", {"tool": "vllm", "arm": "k16v8-d", "tool_timeout_s": 200, "served": SERVED}),
    "sweep": ("vllm_sweep", {
        "model": "", "geometry": "qwen3-8b", "arms": ARMS, "rounds": 1, "contexts_tokens": [1024, 8192],
        "batches": [1, 4, 16, 32, 64], "largest_batch": 64, "output_tokens": 4, "repetitions": 5, "seed": 20261023,
        "engine": {**PLAIN, "pool_mib": 24576, "lengths": "equal"},
    }),
}  # fmt: skip


def started(part: str, out: Path, inputs: dict[str, Path]) -> tuple[Path, subprocess.Popen[bytes]]:
    """A part's stage in a process of its own, its request written."""
    program, params = PARTS[part]
    folder = out / part
    folder.mkdir(parents=True)
    argv = [sys.executable, str(ROOT / "stages" / f"{program}.py"), str(folder)]
    request = {
        "schema": "kassay.request/2", "run": "trial", "run_dir": str(out), "stage": part, "params": params,
        "inputs": {name: {"path": str(path), "sha256": digest.of_path(path)} for name, path in inputs.items()},
        "argv": argv, "attempt": 1, "roots": [str(ROOT)], "host": {},
        "grant": {"cpus": 4, "memory_gib": 64, "gpus": 1, "gpu_ids": ["0"], "exclusive": True},
    }  # fmt: skip
    digest.write_json(folder / paths.REQUEST, request)
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    with (folder / "stderr.log").open("wb") as log:
        return folder, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=around)


def tool(out: Path) -> Path:
    """What a built stack's stage would leave of this interpreter, and its `vllm`."""
    program = out / "bin" / "vllm"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vllm.entrypoints.cli.main "$@"\n')
    program.chmod(0o755)
    told = {"python": str(program.with_name("python")), "modules": {"vllm": metadata.version("vllm")}}
    digest.write_json(out / "tool.json", told)
    return out / "tool.json"


def ended(folder: Path, seconds: float, running: subprocess.Popen[bytes]) -> str:
    """How a part ended; one that takes too long is asked to stop, so that it stops its servers."""
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        running.terminate()
        try:
            running.wait(STOP_S)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
    outcome = folder / "outcome.json"
    told = json.loads(outcome.read_bytes()) if outcome.is_file() else {"word": "no outcome", "reason": "see stderr.log"}
    return f"{told['word']} {told.get('reason', '')} {json.dumps(told.get('metrics', {}))}"[:1500]


def plain(out: Path, model: Path, seconds: float) -> str:
    """The README's command, which compiles: what its engine says of itself, and whether requests are answered."""
    folder, port = out / "plain", process.free_port()
    folder.mkdir(parents=True)
    size = json.loads((model / "config.json").read_bytes())["vocab_size"]
    words = [sys.executable, "-m", vllm_command.MODULE, "serve", str(model), "--attention-backend", "CUSTOM"]
    words += ["--no-enable-prefix-caching", "--no-enable-chunked-prefill"]
    words += ["--additional-config", '{"kassay": {"recipe": "k16v8-d"}}']
    words += ["--host", process.HOST, "--port", str(port), "--served-model-name", "m", "--dtype", "float16"]
    words += ["--max-model-len", "512", "--max-num-seqs", "8"]
    words += ["--kv-cache-memory-bytes", str(256 << 20), "--gpu-memory-utilization", "0.1"]  # others beside it
    words += ["--tokenizer", str(vllm_command.written_tokenizer(folder / "tokenizer", size))]
    words += ["--worker-extension-cls", EXTENSION]
    cell = cell_of(
        SERVED["vllm"]["engine"], model="", dummy=False, scales=None, observe=(), calibrate=False, seed=0,
        sequence_tokens=512, batched_tokens=2048, **ARMS["k16v8-d"],
    )  # fmt: skip
    around = vllm_command.environment(cell, vllm_command.written_entry_point(folder / "plug-in"), os.environ)
    target = Target(host=process.HOST, port=port, model="m", chat=False, output_tokens=32,
                    limits=Limits(connect_s=5, stall_s=60, request_s=90))  # fmt: skip
    sent = prompts.planned(seed=1, block="plain", load="plain", phase="requests", count=16, context_tokens=200)
    with process.running(words, port=port, log=folder / "server.log", ready_timeout_s=seconds, grace_s=10,
                         environment=around) as server:  # fmt: skip
        answers = asyncio.run(closed_loop(target, sent, 8, lambda ended: None))
        told = vllm_told.call(port, ATTEST, arm="plain")
    digest.write_json(folder / "told.json", {**told, "ready_s": server.ready_s, "answers": [vars(a) for a in answers]})
    engine = {name: told["engine"][name] for name in ("compilation", "compiled_modules", "graph_mode", "graph_batches")}
    good = sum(one.status == "ok" and one.output_tokens == 32 for one in answers)
    word = "passed" if good == len(answers) and told["engine"]["compiled_modules"] else "rejected"
    return f"{word} {good} of {len(answers)} requests answered, {engine}, {told['counts']}"


def main() -> int:
    """Run the parts; 1 if one did not pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "plain", []], default=[*PARTS, "plain"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path, default=ROOT / "data" / "models" / "robust")
    parser.add_argument("--seconds", type=float, default=240, help="for all parts, or each in turn")
    parser.add_argument("--in-turn", action="store_true")
    options = parser.parse_args()
    out = options.out.resolve()
    inputs = {"model": options.model.resolve()}
    left, said, until = [], dict[str, str](), time.monotonic() + options.seconds

    def tell(part: str, how: str) -> None:
        said[part] = how
        print(f"{part}: {how}", flush=True)

    for part in options.parts:
        if part == "plain":
            continue
        made = started(part, out, inputs | ({"tool": tool(out)} if part == "check" else {}))
        if options.in_turn:
            tell(part, ended(made[0], options.seconds, made[1]))
        else:
            left.append((part, *made))
    if "plain" in options.parts:
        try:
            tell("plain", plain(out, inputs["model"], until - time.monotonic() - 30))
        except KassayError as error:
            tell("plain", str(error))
    for part, folder, running in left:
        tell(part, ended(folder, max(1.0, until - time.monotonic()), running))
    return int(not all(how.startswith("passed ") for how in said.values()))


if __name__ == "__main__":
    sys.exit(main())
