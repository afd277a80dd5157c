"""A timing cell of vLLM: this fresh process starts an engine and serves a batch of requests completely, several times.

A repetition is submission, prefill, scheduling and a forced number of greedy tokens; the clock starts after start-up
and prompts, with the GPU idle, and stops when the last token is there and the GPU is idle again. Conditions of host and
GPUs are recorded around it. Every request keeps its stamps and the step of each of its tokens.
"""

import os
from typing import Any

from kassay import conditions, digest
from kassay.backend import vllm_prompts, workload
from kassay.backend.vllm import Engine, Served
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of
from kassay.backend.vllm_geometry import model_folder
from kassay.backend.vllm_passes import passes
from kassay.kinds.timing import AFTER, BEFORE, TIMED, TimingCell
from kassay.stage import Metrics, Stage, Unmet, main

SPLIT = "development"


def run(stage: Stage) -> Metrics:
    """One record with every repetition, between two records of the conditions."""
    import torch

    params = stage.params
    place = {"load": TIMED, "recipe": params["arm"], **{n: params[n] for n in ("block", "pilot", "position")}}
    gpus = conditions.Gpus()
    if gpus.lack:
        raise Unmet(f"the conditions of the GPU cannot be recorded: {gpus.lack}")
    untouched = gpus.states(place, BEFORE)
    prompts = prompts_of(stage)
    engine = Engine(cell(stage), params["arm"])
    before = conditions.host_state(place, BEFORE)
    served = [
        engine.serve(prompts, params["output_tokens"], repetition=index, warmup=index < params["warmups"], forced=True)
        for index in range(params["warmups"] + params["repetitions"])
    ]
    after = conditions.host_state(place, AFTER)
    rows = torch.tensor(prompts)
    for record in (before, *untouched, engine.attest(), timing(stage, served, rows), after, *gpus.states(place, AFTER)):
        stage.append(record)
    for one in served:
        for kept in (one.span, *one.requests):
            stage.append(kept)
    return {"tokens": sum(request.output_tokens for one in served for request in one.requests)}


def cell(stage: Stage) -> Asked:
    """What this arm's engine is asked for."""
    params = stage.params
    arm, geometry = params["arms"][params["arm"]], params["geometry"]
    return cell_of(
        params["engine"] | sizes_of(params),
        model=str(model_folder(geometry, stage.directory) if geometry else stage.inputs["model"]),
        dummy=bool(geometry), seed=params["seed"], **arm_arguments(arm, stage.inputs),
    )  # fmt: skip


def sizes_of(params: dict[str, Any]) -> dict[str, Any]:
    """Sizes of an engine for the load: a step holds a prompt beside the decodes of all others."""
    tokens = params["context_tokens"] + params["output_tokens"]
    batch = params["batch"]
    return {"sequences": batch, "sequence_tokens": tokens, "batched_tokens": tokens + batch, "graphs": [batch]}


def prompts_of(stage: Stage) -> list[list[int]]:
    """The prompts of every arm and block, the same."""
    params = stage.params
    if params["geometry"]:
        return vllm_prompts.drawn(params["batch"], params["context_tokens"], params["seed"])
    text = vllm_prompts.text_of(stage.inputs["model"])
    lengths = [params["context_tokens"]] * params["batch"]
    return vllm_prompts.rows(text, split=SPLIT, seed=params["seed"], lengths=lengths)


def timing(stage: Stage, served: list[Served], prompts_BT: Any) -> TimingCell:
    """The cell as every judge of timing reads it."""
    params, spans = stage.params, [one.span for one in served]
    return TimingCell(
        load=TIMED,
        recipe=params["arm"],
        model=params["geometry"] or params["model"],
        **{name: params[name] for name in ("block", "pilot", "position", "batch", "context_tokens", "output_tokens")},
        warmups=params["warmups"],
        started_ns=[span.started_ns for span in spans],
        ended_ns=[span.ended_ns for span in spans],
        request_tokens=[[request.output_tokens for request in one.requests] for one in served],
        prefilled_tokens=[span.prefilled_tokens for span in spans],
        decode_steps=[passes(one.requests)[0] for one in served],
        full_steps=[passes(one.requests)[1] for one in served],
        preemptions=[span.preemptions for span in spans],
        prompts_sha256=workload.rows_digest(prompts_BT),
        prompt_sha256s=[workload.rows_digest(row) for row in prompts_BT],
        output_sha256s=[digest.of_value(one.outputs) for one in served],
        pid=os.getpid(),
    )


if __name__ == "__main__":
    main(run)
