"""All points of a sweep of one arm: this fresh process starts one engine and brings each batch to each context.

The prompts of a point are those of its context, shortened so that all sequences are of one length when the windows
begin (kassay.backend.vllm_sweep). They all differ, share no page, and their lengths are checked as tokens. What served
is attested before and after. The smallest batch is served once before, recorded as a warm-up.
"""

from pathlib import Path
from typing import Any

from kassay import digest
from kassay.backend import vllm_prompts
from kassay.backend.prompts import check_prompts
from kassay.backend.sweep_grid import planned_batches
from kassay.backend.vllm import Engine
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of
from kassay.backend.vllm_geometry import geometry_of, model_folder
from kassay.backend.vllm_sweep import PREFILL_TOKENS, WARMUPS, Point, elapsed_ns, held, require_short
from kassay.errors import KassayError
from kassay.kinds.timing import SweepCell
from kassay.stage import Metrics, Stage, main

SPLIT = "development"


def run(stage: Stage) -> Metrics:
    """One record per point, and what was scheduled for it."""
    params = stage.params
    folder = model_folder(params["geometry"], stage.directory) if params["geometry"] else stage.inputs["model"]
    plan = points_of(params, folder)
    engine = Engine(asked(stage, folder, plan), params["arm"])
    warm(stage, engine, plan[0])
    rows: list[list[int]] = []
    for done, point in enumerate(plan):
        stage.progress(done, len(plan), f"batch {point.batch} at {point.context_tokens} tokens")
        if not rows or len(rows[0]) != point.context_tokens:
            most = max(one.batch for one in plan if one.context_tokens == point.context_tokens)
            rows = prompts_of(stage, most, point.context_tokens)
        stage.append(measured(stage, engine, point, rows[: point.batch], done + 1))
    stage.append(engine.attest())
    return {"points": len(plan), "drawn weights": engine.attested.dummy_weights}


def points_of(params: dict[str, Any], folder: Path) -> list[Point]:
    """The grid, context by context, as far as the pool holds it. Raises KassayError for a context that has no point."""
    geometry, pool = geometry_of(folder), params["engine"]["pool_mib"] << 20
    found: list[Point] = []
    for context_tokens in params["contexts_tokens"]:
        sizes = {"output_tokens": params["output_tokens"], "repetitions": params["repetitions"]}
        planned = [
            Point(batch=batch, context_tokens=context_tokens, **sizes)
            for batch in planned_batches(params, context_tokens)
            if batch <= params["largest_batch"]
        ]
        if not planned:
            raise KassayError(f"no batch of {params['batches']} is {params['largest_batch']} or less")
        for point in planned:
            require_short(point)
        found += held(planned, geometry, pool)
    return found


def asked(stage: Stage, folder: Path, plan: list[Point]) -> Asked:
    """One engine for all points: a graph for each batch, and room for the longest sequence of any."""
    params = stage.params
    arm = params["arms"][params["arm"]]
    batches = sorted({point.batch for point in plan})
    longest = max(point.sequence_tokens for point in plan)
    step = max(PREFILL_TOKENS, longest) + max(batches)
    sizes = {"sequences": max(batches), "sequence_tokens": longest, "batched_tokens": step, "graphs": batches}
    return cell_of(
        params["engine"] | sizes, model=str(folder), dummy=bool(params["geometry"]), seed=params["seed"],
        **arm_arguments(arm, stage.inputs),
    )  # fmt: skip


def prompts_of(stage: Stage, count: int, tokens: int) -> list[list[int]]:
    """Rows of a context, the same for every arm: real text of a model, drawn ids of a geometry."""
    seed = stage.params["seed"]
    if stage.params["geometry"]:
        rows = vllm_prompts.drawn(count, tokens, seed)
    else:
        text = vllm_prompts.text_of(stage.inputs["model"])
        rows = vllm_prompts.rows(text, split=SPLIT, seed=seed, lengths=[tokens] * count)
    check_prompts(rows, tokens)
    return rows


def warm(stage: Stage, engine: Engine, point: Point) -> None:
    """Serve the smallest batch once: what a first request compiles is no part of a point."""
    rows = prompts_of(stage, point.batch, point.context_tokens)
    served = engine.serve(rows, point.output_tokens, repetition=0, warmup=True, forced=True)
    stage.append(served.span)


def measured(stage: Stage, engine: Engine, point: Point, rows: list[list[int]], number: int) -> SweepCell:
    """Serve a point, keep what was scheduled, and time its windows."""
    prompts = [row[:tokens] for row, tokens in zip(rows, point.prompt_tokens, strict=True)]
    served = engine.serve(
        prompts, point.forced_tokens, repetition=number, warmup=False, forced=True, arrivals=point.arrivals
    )
    for record in (served.span, *served.requests):
        stage.append(record)
    params = stage.params
    return SweepCell(
        model=params["geometry"] or params["model"], recipe=params["arm"], batch=point.batch,
        context_tokens=point.context_tokens, output_tokens=point.output_tokens, warmups=WARMUPS,
        elapsed_ns=elapsed_ns(point, served.span, served.requests), prompts_sha256=digest.of_value(prompts),
        shared_prefix_tokens=check_prompts(rows, point.context_tokens),
    )  # fmt: skip


if __name__ == "__main__":
    main(run)
