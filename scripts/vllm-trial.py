"""Try the plug-in on a GPU: `python scripts/vllm-trial.py smoke|pairs --out DIR [--model DIR] [--seconds N]`.

smoke   a shipped model through vLLM's own FlashAttention and the plug-in's recipes: mixed traffic, the oracle's checks
        and planted faults in the worker, the same tokens twice; prefixes and chunks through the gather fallback
pairs   Qwen3-8B geometry, drawn weights, 8,192 tokens: each candidate beside the native control, both processes alive,
        sixteen decode steps in turns, so that a ratio is of neighbours in time

vLLM is imported once, and each cell is a fork of that process, which has not touched the GPU. Results are JSON lines
under DIR, written as they come. Descriptive: no certificate, no verdict. The stages of workflow `vllm` are the study.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "plugins" / "vllm")]

from kassay.backend.vllm_forks import LOAD, READY, TURN, Forks, Voice

TURN_STEPS = 16  # decode steps
OBSERVED = (0, 3)
ARRIVALS = (0, 0, 0, 2, 5, 5, 9, 14, 14, 20)  # the step before which each request comes
OUTPUT_TOKENS = 24
SMALL = {
    "sixteen": "fp16", "pool_mib": 64, "sequences": 8, "sequence_tokens": 512, "batched_tokens": 2048,
    "graphs": (1, 2, 4, 8), "prefix_caching": False, "chunked_prefill": False, "continued": "refuse",
    "lengths": "uneven", "cuts": None,
}  # fmt: skip
CONTEXT_TOKENS, BATCHES = 8192, (8, 32)
POOL_MIB = 40960


class Trial:
    """Where results go, and the forks that make them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        self.forks = Forks(self.out, options.seconds, lambda name, error: self.say(name, error=repr(error)[:2000]))

    def say(self, name: str, **found: Any) -> None:
        """One JSON line of a cell's file."""
        with (self.out / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(found) + "\n")

    def keep(self, name: str, *records: Any) -> None:
        """Records of a cell's file."""
        with (self.out / f"{name}.jsonl").open("a") as file:
            file.writelines(one.to_json() + "\n" for one in records)

    def cell(self, name: str, work: Any, *given: Any) -> None:
        """One cell, unless no time is left, and what it said last."""
        begun = time.monotonic()
        if self.forks.left_s() < 8:
            print(f"{name}: left out, no time is left", flush=True)
            return
        well = self.forks.run(name, lambda: work(name, *given), self.options.cell_seconds)
        print(
            f"{name}: {time.monotonic() - begun:.1f} s, {'ended' if well else 'FAILED'}: {self.last(name)}", flush=True
        )

    def last(self, name: str) -> str:
        """The last line of a cell's file, shortened."""
        path = self.out / f"{name}.jsonl"
        return path.read_text().splitlines()[-1][:300] if path.exists() else "nothing"

    def prompts(self, count: int) -> list[list[int]]:
        """Real texts of different lengths."""
        from kassay.backend import vllm_prompts

        text = vllm_prompts.text_of(Path(self.options.model))
        lengths = [40 + 13 * index for index in range(count)]
        return vllm_prompts.rows(text, split="development", seed=5, lengths=lengths)

    # The smoke part

    def small(self, recipe: str, attention: str = "plug-in", **given: Any) -> Any:
        """A cell of the shipped model."""
        from kassay.backend.vllm_arguments import cell_of

        base = {"scales": None, "observe": (), "calibrate": False}
        return cell_of(SMALL, model=self.options.model, dummy=False, recipe=recipe, attention=attention, seed=0,
                       **base | given)  # fmt: skip

    def smoke(self) -> None:
        """The calibration, the plug-in's recipes, vLLM's own, the fallback, a refusal."""
        scales = self.out / "scales.json"
        self.cell("calibrate", self.calibrate, self.small("native", calibrate=True), self.prompts(8), scales)
        for recipe in ("k16v8-f", "k16v8-d", "native", "k8v8-d"):
            path = str(scales) if recipe.endswith("-f") else None
            self.cell(f"plug-in-{recipe}", self.traffic, self.small(recipe, scales=path, observe=OBSERVED))
        self.cell("flash-attn", self.traffic, self.small("native", "flash-attn"))
        self.cell("gather", self.gather)
        self.cell("refused", self.refused)

    def calibrate(self, name: str, cell: Any, prompts: list[list[int]], path: Path) -> None:
        """Fold the largest operands over prompts and 32 decodes."""
        from kassay.backend import vllm_calibrate
        from kassay.backend.vllm import Engine
        from kassay.backend.vllm_attest import plug_in_state

        engine = Engine(cell, name)
        vllm_calibrate.forget(plug_in_state())
        engine.serve(prompts, 32, repetition=0, warmup=False, forced=True)
        made = vllm_calibrate.scales(plug_in_state(), engine.attested.layers, model=cell.model, model_sha256="",
                                     sixteen=cell.sixteen, dummy=cell.dummy)  # fmt: skip
        path.write_text(json.dumps(made))
        self.say(name, layers=engine.attested.layers)

    def traffic(self, name: str, cell: Any) -> None:
        """Mixed traffic twice, watched the first time where layers are observed."""
        from kassay.backend.vllm import Engine
        from kassay.backend.vllm_watch import Watch
        from kassay.kv.tasks import vocabulary

        engine = Engine(cell, name)
        watch = Watch(engine) if cell.observe else None
        for turn in range(2):
            between = watch.between if watch and turn == 0 else None
            served = engine.serve(self.prompts(len(ARRIVALS)), OUTPUT_TOKENS, repetition=turn, warmup=False,
                                  forced=True, arrivals=ARRIVALS, between=between)  # fmt: skip
            self.keep(name, served.span)
            texts = [vocabulary.decode(row) for row in served.outputs[:3]]
            self.say(name, turn=turn, tokens=served.outputs, text=texts)
        checks = watch.checks if watch else []
        self.keep(name, *checks, engine.attest())
        self.say(name, checks=len(checks), planted=sum(one.planted for one in checks),
                 wrong=sum(not one.passed for one in checks), free=engine.free_blocks())  # fmt: skip

    def gather(self, name: str) -> None:
        """Chunks of 64 tokens and a shared prefix through the fallback."""
        from dataclasses import replace

        from kassay.backend.vllm import Engine

        prompts = [self.prompts(1)[0][:32] + row[32:] for row in self.prompts(6)]
        asked = replace(self.small("k16v8-d"), prefix_caching=True, chunked_prefill=True, continued="gather",
                        batched_tokens=64)  # fmt: skip
        engine = Engine(asked, name)
        for turn in range(2):
            served = engine.serve(prompts, OUTPUT_TOKENS, repetition=turn, warmup=False, forced=True)
            self.keep(name, served.span)
            self.say(name, turn=turn, tokens=served.outputs)

    def refused(self, name: str) -> None:
        """What an engine says that asks for chunks without the fallback."""
        from vllm import LLM

        from kassay.backend.vllm import plug_in
        from kassay.backend.vllm_arguments import engine_arguments
        from kassay.errors import KassayError

        plug_in()
        try:
            LLM(**engine_arguments(self.small("k16v8-d")) | {"enable_chunked_prefill": True})
        except KassayError as error:
            self.say(name, refused=str(error))
            return
        self.say(name, refused=None)

    # The speed part

    def large(self, folder: str, recipe: str, attention: str, **given: Any) -> Any:
        """A cell of the geometry for both batches."""
        from kassay.backend.vllm_arguments import cell_of

        tokens = CONTEXT_TOKENS + self.options.tokens
        sizes = {"sequences": max(BATCHES), "sequence_tokens": tokens, "batched_tokens": tokens + max(BATCHES),
                 "graphs": BATCHES, "pool_mib": POOL_MIB, "lengths": "equal"}  # fmt: skip
        base = {"scales": None, "observe": (), "calibrate": False}
        pool = {"pool_mib": POOL_MIB * 77 // 100} if recipe.startswith("k16v8") else {}  # both fit beside weights
        return cell_of(SMALL | sizes | pool, model=folder, dummy=True, recipe=recipe, attention=attention, seed=0,
                       **base | given)  # fmt: skip

    def pairs(self) -> None:
        """The native control beside each candidate in turn."""
        from dataclasses import replace

        from kassay.backend import vllm_prompts
        from kassay.backend.vllm_geometry import model_folder

        folder = str(model_folder("qwen3-8b", self.out))
        scales = Path(self.options.scales or self.out / "geometry-scales.json")
        if not scales.exists():
            cell = replace(self.large(folder, "native", "plug-in", calibrate=True), graphs=(4,), pool_bytes=4 << 30)
            self.cell("geometry-calibrate", self.calibrate, cell, vllm_prompts.drawn(4, 1500, 1), scales)
        loads = [(batch, self.options.tokens) for batch in BATCHES]
        for recipe in self.options.candidates.split(","):
            if self.forks.left_s() < 40:
                print(f"{recipe}: left out, no time is left", flush=True)
                continue
            path = str(scales) if recipe.endswith("-f") else None
            cells = {
                f"flash-attn-beside-{recipe}": self.large(folder, "native", "flash-attn"),
                f"plug-in-{recipe}": self.large(folder, recipe, "plug-in", scales=path),
            }
            works = [
                (name, lambda voice, name=name, cell=cell: self.turns(name, cell, loads, voice))
                for name, cell in cells.items()
            ]
            well = self.forks.pair(works, len(loads))
            print(f"{recipe}: {'ended' if well else 'FAILED'}", *map(self.last, cells), sep="\n  ", flush=True)

    def turns(self, name: str, cell: Any, loads: list[tuple[int, int]], voice: Voice) -> None:
        """Serve each load when told to, and hand the GPU over after every TURN_STEPS decode steps."""
        import torch

        from kassay.backend import vllm_prompts
        from kassay.backend.vllm import Engine

        engine = Engine(cell, name)
        self.keep(name, engine.attested)
        for batch in cell.graphs:
            engine.serve(vllm_prompts.drawn(batch, 300, 2), 4, repetition=-1, warmup=True, forced=True)
        voice.say(READY)
        for repetition, (batch, tokens) in enumerate(loads):
            marks: list[tuple[int, int, int]] = []  # last step, begin and end of a turn
            at: dict[str, int] = {}

            def between(step: int, marks: Any = marks, at: dict[str, int] = at) -> None:
                if engine.scheduled.decode_steps < 2 or (step - at.setdefault("first", step)) % TURN_STEPS:
                    return
                torch.cuda.synchronize()
                if "began" in at:
                    marks.append((step, at["began"], time.monotonic_ns()))
                voice.say(TURN)
                voice.wait()
                at["began"] = time.monotonic_ns()

            voice.wait()
            prompts = vllm_prompts.drawn(batch, CONTEXT_TOKENS, 3)
            served = engine.serve(prompts, tokens, repetition=repetition, warmup=False, forced=True, between=between)
            self.keep(name, served.span)
            self.say(
                name, load=[batch, tokens], tokens=served.outputs[:2],
                first_end_step=min(one.completion_steps[-1] for one in served.requests),
                turns=[[step, (end - began) / 1e6 / TURN_STEPS] for step, began, end in marks],
                prefill_s=(max(one.first_ns for one in served.requests) - served.span.started_ns) / 1e9,
            )  # fmt: skip
            voice.say(LOAD)
        self.keep(name, engine.attest())


def main() -> None:
    """Import vLLM once and run the cells of a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["smoke", "pairs", "both"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=str(Path(__file__).parents[1] / "data" / "models" / "robust"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cell-seconds", type=float, default=70)
    parser.add_argument("--candidates", default="k16v8-f,k16v8-d,native")
    parser.add_argument("--tokens", type=int, default=176)
    parser.add_argument("--scales", default=None)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    begun = time.monotonic()
    import kassay_vllm.attend  # noqa: F401
    import torch
    import vllm.model_executor.models.qwen3
    import vllm.v1.engine.core
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.gpu_worker  # noqa: F401

    print(f"import {time.monotonic() - begun:.1f} s, CUDA touched: {torch.cuda.is_initialized()}", flush=True)
    trial = Trial(options)
    if options.part in ("smoke", "both"):
        trial.smoke()
    if options.part in ("pairs", "both"):
        trial.pairs()


if __name__ == "__main__":
    main()
