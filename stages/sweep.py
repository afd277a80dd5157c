"""Decode throughput over batch at fixed contexts: the points of the saturation curve, every repetition kept.

The grid is the powers of two up to the largest batch. All prompts differ, share no prefix and are cut from real task
text, and their length is checked once they are tokens; a repetition decodes from a freshly filled cache, and only the
decode steps are timed.
"""

import time
from typing import Any

import torch

from kassay.backend import inputs, prompts, reference, workload
from kassay.kinds.timing import SweepCell
from kassay.kv.cache import Prefilled
from kassay.kv.recipe import Recipe, recipe_named
from kassay.stage import Metrics, Stage, main

WARMUPS = 1


def run(stage: Stage) -> Metrics:
    """One cell per recipe, context and batch; recipes take turns at each point, so that drift hits all alike."""
    params = stage.params
    model = reference.load(stage.inputs["model"], stage.cpus)
    scales = inputs.scales_of(stage)
    recipes = [recipe_named(name, params["sixteen"]) for name in params["recipes"]]
    grid = [(context, batch) for context in params["contexts_tokens"] for batch in powers(params["largest_batch"])]
    for done, (context_tokens, batch) in enumerate(grid, start=1):
        context_BT = workload.speed_prompts(batch, context_tokens, params["seed"])
        shared_prefix_tokens = prompts.check_prompts(context_BT.tolist(), context_tokens)
        context = reference.prefill(model, context_BT[:, :-1], params["sixteen"])
        elapsed: dict[str, list[int]] = {recipe.name: [] for recipe in recipes}
        for _ in range(WARMUPS + params["repetitions"]):
            for recipe in recipes:
                elapsed[recipe.name].append(
                    decode_ns(model, recipe, scales, context, context_BT, params["output_tokens"])
                )
        for recipe in recipes:
            stage.append(
                SweepCell(
                    model=params["model"],
                    recipe=recipe.name,
                    batch=batch,
                    context_tokens=context_tokens,
                    output_tokens=params["output_tokens"],
                    warmups=WARMUPS,
                    elapsed_ns=elapsed[recipe.name],
                    prompts_sha256=workload.rows_digest(context_BT),
                    shared_prefix_tokens=shared_prefix_tokens,
                )
            )
        stage.progress(done, len(grid), f"batch {batch} at {context_tokens} tokens")
    return {"cells": len(grid) * len(recipes)}


def powers(largest: int) -> list[int]:
    """1, 2, 4, … up to `largest`, which is always the last one."""
    grid = [1 << exponent for exponent in range(largest.bit_length()) if 1 << exponent < largest]
    return [*grid, largest]


def decode_ns(model: Any, recipe: Recipe, scales: Any, context: Prefilled, context_BT: torch.Tensor, steps: int) -> int:
    """Nanoseconds of `steps` decode steps of the whole batch."""
    cache = reference.filled(model, recipe, scales, context, steps)
    started = time.monotonic_ns()
    reference.forced(model, cache, context_BT[:, -1:], steps)
    return time.monotonic_ns() - started


if __name__ == "__main__":
    main(run)
