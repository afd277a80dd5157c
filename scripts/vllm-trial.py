"""Try the plug-in on a GPU: `python scripts/vllm-trial.py smoke|pairs|blocks|judge[,…] --out DIR [--seconds N]`.

smoke   a shipped model through vLLM's own FlashAttention and the plug-in's recipes: mixed traffic, the oracle's checks
        and planted faults in the worker, the same tokens twice; prefixes and chunks through the gather fallback
pairs   Qwen3-8B geometry, drawn weights, 8,192 tokens: each candidate beside the control, both processes alive,
        sixteen decode steps in turns, so that a ratio is of neighbours in time
blocks  the same geometry: complete requests in counterbalanced blocks of fresh engines; what is there is not run again
judge   what the blocks say, without a GPU: those of several hosts, their folders beside each other under DIR/blocks

vLLM is imported once, and each cell is a fork of that process, which has not touched the GPU. Results are JSON lines
under DIR, written as they come. Descriptive: drawn weights have no certificate. The stages of workflow `vllm` are the
study.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "plugins" / "vllm")]

from kassay.backend import vllm_blocks, vllm_calibrate, vllm_prompts, vllm_turns
from kassay.backend.vllm import Engine, plug_in
from kassay.backend.vllm_arguments import cell_of, engine_arguments
from kassay.backend.vllm_arms import CONTEXT_TOKENS, GEOMETRY, OWN, PLAIN, large, needs_scales
from kassay.backend.vllm_attest import plug_in_state
from kassay.backend.vllm_forks import Forks
from kassay.backend.vllm_watch import Watch
from kassay.errors import KassayError
from kassay.kv.tasks import vocabulary
from kassay.stats.orders import counterbalanced_orders

PARTS = ("smoke", "pairs", "blocks", "judge")
OBSERVED = (0, 3)
ARRIVALS = (0, 0, 0, 2, 5, 5, 9, 14, 14, 20)  # the step before which each request comes
OUTPUT_TOKENS = 24
SMALL = PLAIN | {
    "pool_mib": 64, "sequences": 8, "sequence_tokens": 512, "batched_tokens": 2048, "graphs": (1, 2, 4, 8),
    "lengths": "uneven",
}  # fmt: skip
BLOCKS = "blocks"
LEAST_PAIR_S, LEAST_CELL_S = 40, 25  # nothing is begun with less time left


class Trial:
    """Where results go, and the forks that make them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out, self.failed = options, options.out, 0
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
        if self.forks.left_s() < 8:
            print(f"{name}: left out, no time is left", flush=True)
            return
        self.fork(name, lambda: work(name, *given))

    def fork(self, name: str, work: Callable[[], None]) -> None:
        """Run a cell, and show how it ended."""
        begun = time.monotonic()
        well = self.forks.run(name, work, self.options.cell_seconds)
        self.failed += not well
        took = time.monotonic() - begun
        print(f"{name}: {took:.1f} s, {'ended' if well else 'FAILED'}: {self.last(name)}", flush=True)

    def last(self, name: str) -> str:
        """The last line of a cell's file, shortened."""
        path = self.out / f"{name}.jsonl"
        return path.read_text().splitlines()[-1][:300] if path.exists() else "nothing"

    def prompts(self, count: int) -> list[list[int]]:
        """Real texts of different lengths."""
        text = vllm_prompts.text_of(Path(self.options.model))
        lengths = [40 + 13 * index for index in range(count)]
        return vllm_prompts.rows(text, split="development", seed=5, lengths=lengths)

    # The smoke part

    def small(self, recipe: str, attention: str = "plug-in", **given: Any) -> Any:
        """A cell of the shipped model."""
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
        engine = Engine(cell, name)
        vllm_calibrate.forget(plug_in_state())
        engine.serve(prompts, 32, repetition=0, warmup=False, forced=True)
        made = vllm_calibrate.scales(plug_in_state(), engine.attested.layers, model=cell.model, model_sha256="",
                                     sixteen=cell.sixteen, dummy=cell.dummy)  # fmt: skip
        path.write_text(json.dumps(made))
        self.say(name, layers=engine.attested.layers)

    def traffic(self, name: str, cell: Any) -> None:
        """Mixed traffic twice, watched the first time where layers are observed."""
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

        plug_in()
        try:
            LLM(**engine_arguments(self.small("k16v8-d")) | {"enable_chunked_prefill": True})
        except KassayError as error:
            self.say(name, refused=str(error))
            return
        self.say(name, refused=None)

    # The speed parts

    def large(self, arm: str, scales: Path, batches: tuple[int, ...], share: float = 1.0, **given: Any) -> Any:
        """A cell of the geometry as the options say."""
        return large(arm, self.out, scales, batches=batches, tokens=self.options.tokens, share=share,
                     lengths=self.options.lengths, **given)  # fmt: skip

    def geometry_scales(self, arms: list[str]) -> Path:
        """Scales of the drawn weights, folded once where an arm reads them."""

        scales = Path(self.options.scales or self.out / "geometry-scales.json")
        if any(map(needs_scales, arms)) and not scales.exists():
            asked = replace(self.large("native", scales, (4,), calibrate=True), pool_bytes=4 << 30)
            self.cell("geometry-calibrate", self.calibrate, asked, vllm_prompts.drawn(4, 1500, 1), scales)
        return scales

    def pairs(self) -> None:
        """The control beside each candidate in turn."""
        candidates, control = self.options.candidates.split(","), self.options.control
        batches = tuple(int(each) for each in self.options.batches.split(","))
        scales = self.geometry_scales([control, *candidates])
        loads = [(batch, self.options.tokens) for batch in batches]
        for arm in candidates:
            if self.forks.left_s() < LEAST_PAIR_S:
                print(f"{arm}: left out, no time is left", flush=True)
                continue
            share = 0.77 if arm.startswith("k16v8") else 1.0  # both pools fit beside the weights
            cells = {
                f"{control}-beside-{arm}": self.large(control, scales, batches),
                arm: self.large(arm, scales, batches, share),
            }
            works = [
                (name, lambda voice, name=name, cell=cell: self.turns(name, cell, loads, voice))
                for name, cell in cells.items()
            ]
            well = self.forks.pair(works, len(loads))
            self.failed += not well
            print(f"{arm}: {'ended' if well else 'FAILED'}", *map(self.last, cells), sep="\n  ", flush=True)

    def turns(self, name: str, cell: Any, loads: list[tuple[int, int]], voice: Any) -> None:
        """One side of a pair."""
        engine = Engine(cell, name)
        self.keep(name, engine.attested)

        def keep(*records: Any, **found: Any) -> None:
            self.keep(name, *records)
            self.say(name, **found)

        vllm_turns.serve(engine, loads, CONTEXT_TOKENS, voice, keep)
        self.keep(name, engine.attest())

    def blocks(self) -> None:
        """Cells of counterbalanced blocks from `--first` on, but for what is there; then what all say."""
        arms, batch = self.options.arms.split(","), self.options.batch
        orders = counterbalanced_orders(arms, self.options.blocks)
        session = self.out / BLOCKS / Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        session.mkdir(parents=True, exist_ok=True)
        load = vllm_blocks.Load(model=GEOMETRY, batch=batch, context_tokens=CONTEXT_TOKENS,
                                output_tokens=self.options.tokens, seed=20261130)  # fmt: skip
        scales = self.geometry_scales(arms)
        there = {block for each in session.parent.iterdir() for block in vllm_blocks.whole(each, orders)}
        for block in sorted(set(range(self.options.first, len(orders))) - there):
            for position, arm in enumerate(orders[block]):
                place = (block, position, arm)
                if vllm_blocks.file_of(session, place).exists():
                    continue
                if self.forks.left_s() < LEAST_CELL_S:
                    print(f"block {block}, {arm}: left out, no time is left", flush=True)
                    break
                cell = self.large(arm, scales, (batch,))
                work = functools.partial(vllm_blocks.measure, session, place, cell, load)
                self.fork(f"block-{block}-{position}-{arm}", work)
        self.judge()

    def judge(self) -> None:
        """What the blocks of all sessions under the folder say: blocks.json. Needs no GPU and no vLLM."""
        arms = self.options.arms.split(",")
        found = vllm_blocks.said(self.out / BLOCKS, counterbalanced_orders(arms, self.options.blocks), arms[0])
        (self.out / "blocks.json").write_text(json.dumps(found, indent=1))
        print(*vllm_blocks.lines(found), sep="\n", flush=True)


def imported() -> None:
    """Import vLLM once, and leave the GPU alone."""
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


def main() -> int:
    """Import vLLM once and run the cells of the parts; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", help="of smoke, pairs, blocks, judge; several with commas, in this order")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default=str(Path(__file__).parents[1] / "data" / "models" / "robust"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--cell-seconds", type=float, default=90)
    parser.add_argument("--tokens", type=int, default=128, help="of each request's output")
    parser.add_argument("--lengths", default="equal", help="what the plug-in is told of a batch: equal or uneven")
    parser.add_argument("--scales", default=None, help="scales.json of the drawn weights, else they are folded first")
    parser.add_argument("--control", default="flash-attn", help="of pairs")
    parser.add_argument("--candidates", default="k16v8-f,k16v8-d,native", help="of pairs: recipes or " + ", ".join(OWN))
    parser.add_argument("--batches", default="8,32", help="of pairs")
    parser.add_argument("--arms", default="flash-attn,k16v8-f", help="of blocks, the control first")
    parser.add_argument("--batch", type=int, default=32, help="of blocks")
    parser.add_argument("--blocks", type=int, default=10, help="planned, whatever was run already")
    parser.add_argument("--first", type=int, default=0, help="block from which on cells are run, from 0")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if wrong := [part for part in parts if part not in PARTS]:
        parser.error(f"no part is named {wrong[0]}, named are {', '.join(PARTS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    if parts != ["judge"]:
        imported()
    trial = Trial(options)
    for part in parts:
        getattr(trial, part)()
    return int(bool(trial.failed))


if __name__ == "__main__":
    sys.exit(main())
