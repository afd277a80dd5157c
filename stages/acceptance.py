"""How many draft tokens are accepted, by recipe, context, batch and draft length; whether outputs are the plain ones.

The requests of a context are the same at every batch, which only cuts them. Nothing is timed, and no acceptance is
assumed anywhere: timed cells record their own. A logit of a verify pass that is further from plain decoding than the
study tolerates rejects, for it is no rounding; a token that differs within it stood all but tied, and is counted.
"""

from typing import Any

from kassay.backend import acceptance, checkpoint, inputs, prompts, workload
from kassay.backend.speculative_speed import drafting_of
from kassay.kinds.speculation import AcceptanceRecord
from kassay.kv.recipe import recipe_named
from kassay.stage import Metrics, Rejection, Stage, main


def run(stage: Stage) -> Metrics | Rejection:
    """One record for each point of the grid."""
    params = stage.params
    section: dict[str, Any] = params["speculation"]
    asked: dict[str, Any] = section["acceptance"]
    loaded, scales = checkpoint.of_stage(stage), inputs.scales_of(stage)
    grid = acceptance.Grid(
        recipes=tuple(recipe_named(name, params["sixteen"]) for name in asked["recipes"]),
        draftings=tuple(drafting_of(section, tokens) for tokens in asked["draft_tokens"]),
        batches=tuple(asked["batches"]),
        output_tokens=asked["output_tokens"],
        rounding_tolerance=asked["rounding_tolerance"],
    )
    made: list[AcceptanceRecord] = []
    contexts = asked["contexts_tokens"]
    total = len(contexts) * len(grid.batches) * len(grid.recipes) * len(grid.draftings)
    for context_tokens in contexts:
        prompt_BT = workload.speed_prompts(asked["requests"], context_tokens, params["seed"]).to(loaded.device)
        prompts.check_prompts(prompt_BT.tolist(), context_tokens)
        named = {"model": params["model"], "prompts_sha256": workload.rows_digest(prompt_BT)}
        for record in acceptance.measured(loaded.model, scales, prompt_BT, grid, named):
            stage.append(record)
            made.append(record)
            stage.progress(len(made), total, f"batch {record.batch} at {context_tokens} tokens")
    told: Metrics = {
        "points": len(made),
        "requests with another token": sum(one.other_requests for one in made),
        "largest rounding of a logit": max(one.largest_rounding for one in made),
        "smallest margin of a token": min(one.smallest_margin for one in made),
    }
    wrong = [one for one in made if not one.largest_rounding <= one.rounding_tolerance]
    if wrong:
        worst = max(wrong, key=lambda one: one.largest_rounding)
        return stage.rejected(
            f"a verify pass is no plain decoding: `{worst.recipe}` at batch {worst.batch} and {worst.context_tokens} "
            f"tokens differs by {worst.largest_rounding:.3g} of the largest logit, tolerated are "
            f"{worst.rounding_tolerance:g}",
            **told,
        )
    return told


if __name__ == "__main__":
    main(run)
