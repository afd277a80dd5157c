"""Decode throughput over batch at fixed contexts: the points of the saturation curve, every repetition kept.

The grid is the powers of two up to the largest batch, or what `batches` lists, as far as `most_cached_tokens` allows at
a context. All prompts differ, share no prefix and are cut from real task text, and their length is checked once they
are tokens; drawn weights have drawn operands in place of a context, which their records say. A repetition decodes from
a freshly filled cache, and only the decode steps are timed. Which backend serves is the params' (kassay.backend.speed);
on the fused one a step's parts are taken apart at the batches that `parts` lists.
"""

from kassay.backend import speed
from kassay.backend.sweep_grid import planned_batches
from kassay.kinds.timing import SweepCell
from kassay.stage import Metrics, Stage, main

WARMUPS = 1


def run(stage: Stage) -> Metrics:
    """One cell per recipe, context and batch; recipes take turns at each point, so that drift hits all alike."""
    params = stage.params
    served = speed.of_stage(stage)
    recipes = params["recipes"]
    plan = [(context, planned_batches(params, context)) for context in params["contexts_tokens"]]
    total, done = sum(len(batches) for _, batches in plan), 0
    for context_tokens, batches in plan:
        points = served.points(recipes, context_tokens, max(batches), params["output_tokens"], params["seed"])
        for batch in batches:
            prompts_sha256, shared_prefix_tokens = points.fill(batch)
            elapsed: dict[str, list[int]] = {recipe: [] for recipe in recipes}
            for repetition in range(WARMUPS + params["repetitions"]):
                turn = repetition % len(recipes)
                for recipe in recipes[turn:] + recipes[:turn]:
                    elapsed[recipe].append(points.decode_ns(recipe, params["output_tokens"]))
            for recipe in recipes:
                stage.append(
                    SweepCell(
                        model=params["model"],
                        recipe=recipe,
                        batch=batch,
                        context_tokens=context_tokens,
                        output_tokens=params["output_tokens"],
                        warmups=WARMUPS,
                        elapsed_ns=elapsed[recipe],
                        prompts_sha256=prompts_sha256,
                        shared_prefix_tokens=shared_prefix_tokens,
                    )
                )
            for record in points.parts() if batch in (params.get("parts") or []) else ():
                stage.append(record)
            done += 1
            stage.progress(done, total, f"batch {batch} at {context_tokens} tokens")
        for record in points.records():
            stage.append(record)
        del points  # before the next context's caches are made
    return {"cells": total * len(recipes)}


if __name__ == "__main__":
    main(run)
