"""`vllm serve` without a model: the flags, routes and counters of vLLM 0.25.1 that kassay uses; others are refused.

`python -m tests.vllm.fake_serve serve MODEL --port N …`. Environment FAKE_FAULT names one fault.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.serving.fake import Fake, Handler

SWITCHES = ("enable-prefix-caching", "enable-chunked-prefill", "enforce-eager")  # argparse.BooleanOptionalAction there
TEXTS = (
    "host", "served-model-name", "tokenizer", "worker-extension-cls", "generation-config", "load-format", "dtype",
    "seed", "block-size", "kv-cache-dtype", "kv-cache-memory-bytes", "gpu-memory-utilization", "max-model-len",
    "max-num-seqs", "max-num-batched-tokens",
)  # fmt: skip
JSONS = ("attention-config", "compilation-config", "additional-config")
COUNTERS = ("prompt_tokens_total", "prompt_tokens_cached_total", "generation_tokens_total", "num_preemptions_total")
LABELS = 'engine="0",model_name="m"'


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line. Exits for a flag that is not vLLM's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model_tag")
    parser.add_argument("--port", type=int)
    parser.add_argument("--disable-uvicorn-access-log", action="store_true")
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
    for name in TEXTS:
        parser.add_argument(f"--{name}")
    for name in JSONS:
        parser.add_argument(f"--{name}", type=json.loads, default={})
    return parser.parse_args(words)


def plug_ins() -> list[str]:
    """What vLLM would load: entry points of its group that VLLM_PLUGINS allows."""
    allowed = os.environ.get("VLLM_PLUGINS")
    found = metadata.entry_points(group="vllm.general_plugins")
    return [one.load().__module__ for one in found if allowed is None or one.name in allowed.split(",")]


class Engine(Fake):
    """What the routes tell of."""

    def __init__(self, given: argparse.Namespace, fault: str) -> None:
        self.given, self.fault = given, fault
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.ended = 0
        super().__init__(given.port, ["die"] if fault == "die" else [])
        self.RequestHandlerClass = Routes

    def record(self, arm: str) -> dict[str, Any]:
        """The engine of the command line, as its worker would tell it."""
        from tests.vllm.test_arguments import engine

        ours = self.given.attention_config["backend"] == "CUSTOM"
        recipe = self.given.additional_config["kassay"]["recipe"] if ours else "native"
        told = {
            "backend": "PagedBackend" if ours else "FlashAttentionBackend",
            "value_format": "fp16" if recipe == "native" or self.fault == "native" else "e4m3fn",
            "scale_policy": "dynamic" if recipe.endswith("-d") else "none",
            "graph_batches": self.given.compilation_config["cudagraph_capture_sizes"],
            "pool_bytes": int(self.given.kv_cache_memory_bytes), "blocks": 99 if self.fault == "other" else 100,
            "dummy_weights": self.given.load_format == "dummy",
        }  # fmt: skip
        if self.ended and self.fault == "changed":
            told["flash_attention"] = 2
        return asdict(engine(arm=arm, **told))

    def counts(self) -> dict[str, Any] | None:
        """Of the plug-in."""
        if self.given.attention_config["backend"] != "CUSTOM":
            return None
        fallbacks = self.ended if self.fault == "fallback" else 0
        return {"routes": {"decode": self.ended, "fresh": self.ended}, "replays": {"1": self.ended},
                "fallbacks": fallbacks}  # fmt: skip


class Routes(Handler):
    """vLLM's routes."""

    server: Engine

    def do_GET(self) -> None:
        """/health and /metrics."""
        if self.path != "/metrics":
            return self.plain(200, b"")
        lines = [f"vllm:{name}{{{LABELS}}} {float(count)}" for name, count in self.server.counters.items()]
        lines += [f'vllm:iteration_tokens_total_bucket{{{LABELS},le="1.0"}} 3.0']
        lines += [f"vllm:iteration_tokens_total_count{{{LABELS}}} {float(2 * self.server.ended)}"]
        lines += [f'vllm:request_success_total{{{LABELS},finished_reason="stop"}} 0.0']
        lines += [f'vllm:request_success_total{{{LABELS},finished_reason="length"}} {float(self.server.ended)}']
        if self.server.fault == "no_metrics":
            lines = [line for line in lines if "preemptions" not in line]
        self.plain(200, ("# HELP vllm:x y\n" + "\n".join(lines) + "\n").encode())

    def do_POST(self) -> None:
        """The worker's own methods, where development routes are on; else completions."""
        if self.path != "/collective_rpc":
            return super().do_POST()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        silent = self.server.fault == "silent" or (self.server.fault == "silent_later" and self.server.ended)
        if os.environ.get("VLLM_SERVER_DEV_MODE") != "1" or silent:
            return self.plain(404, b'{"detail":"Not Found"}')
        code = {"kassay/backend/vllm_serve_worker.py": "0" * 64}
        told = {"engine": self.server.record(body["kwargs"].get("arm", "")), "counts": self.server.counts(),
                "code": code}  # fmt: skip
        answer = {"parameters": 7} if body["method"] == "kassay_refill" else told
        return self.plain(200, json.dumps({"results": [answer]}).encode())

    def stream(self, fault: str, body: dict[str, Any]) -> None:
        """A completion, counted."""
        with self.server.lock:
            self.server.ended += 1
            counters = self.server.counters
            counters["prompt_tokens_total"] += len(body["prompt"]) + 1
            counters["generation_tokens_total"] += body["max_tokens"] + (self.server.fault == "miscount")
            counters["prompt_tokens_cached_total"] += 16 * (self.server.fault == "cached")
        super().stream(fault, body)


if __name__ == "__main__":
    asked = parsed(sys.argv[1:])
    print(json.dumps({"argv": sys.argv[1:], "plug_ins": plug_ins(), "pythonpath": sys.path[:4]}), flush=True)
    if asked.attention_config["backend"] == "CUSTOM" and "kassay_vllm" not in plug_ins():
        raise SystemExit("ValueError: backend CUSTOM is not registered")
    if asked.tokenizer is not None and not (Path(asked.tokenizer) / "tokenizer.json").is_file():
        raise SystemExit(f"OSError: no tokenizer in {asked.tokenizer}")
    Engine(asked, os.environ.get("FAKE_FAULT", "")).serve_forever()
