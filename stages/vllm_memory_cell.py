"""A cell of a vLLM memory study: one arm's engine with one pool in this fresh process, and windows around its work."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kassay.backend import vllm_memory, vllm_prompts
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of
from kassay.backend.vllm_geometry import geometry_of, model_folder
from kassay.kv.recipe import recipe_named
from kassay.memory_limits import limits as limits_of
from kassay.stage import Metrics, Stage, main

SPLIT = "development"


def run(stage: Stage) -> Metrics:
    """What the arm's process holds."""
    require_vllm()
    import vllm  # type: ignore[import-not-found]  # noqa: F401  # before the window: its import is no work of an arm

    params = stage.params
    model = model_folder(params["geometry"], stage.directory) if params["geometry"] else stage.inputs["model"]
    recipe = recipe_named(params["arms"][params["arm"]]["recipe"], params["sixteen"])
    geometry, limits = geometry_of(model), limits_of(params)
    sizes = {"request_tokens": params["context_tokens"] + params["output_tokens"], "batch": params["batch"]}
    pool = vllm_memory.pool_bytes(params["pool"], limits, geometry, recipe, **sizes)
    made = partial(Engine, cell(stage, model, pool), params["arm"])
    return vllm_memory.measure(stage, limits, geometry, recipe, made, prompts(stage, model))


def cell(stage: Stage, model: Path, pool_bytes: int) -> Asked:
    """What this arm's engine is asked for: a pool of exactly so many bytes."""
    params: dict[str, Any] = stage.params
    engine = {**sizes_of(params), **params["engine"], "pool_mib": 0}
    asked = cell_of(
        engine, model=str(model), dummy=bool(params["geometry"]), seed=params["seed"],
        **arm_arguments(params["arms"][params["arm"]], stage.inputs),
    )  # fmt: skip
    return replace(asked, pool_bytes=pool_bytes)


def sizes_of(params: dict[str, Any]) -> dict[str, Any]:
    """Sizes of an engine for the load, where the study says none: a step holds a prompt beside all decodes."""
    tokens, batch = params["context_tokens"] + params["output_tokens"], params["batch"]
    return {"sequences": batch, "sequence_tokens": tokens, "batched_tokens": tokens + batch, "graphs": [batch]}


def prompts(stage: Stage, model: Path) -> list[list[int]]:
    """The requests of every arm and pool, the same."""
    params = stage.params
    if params["geometry"]:
        return vllm_prompts.drawn(params["batch"], params["context_tokens"], params["seed"])
    lengths = [params["context_tokens"]] * params["batch"]
    return vllm_prompts.rows(vllm_prompts.text_of(model), split=SPLIT, seed=params["seed"], lengths=lengths)


if __name__ == "__main__":
    main(run)
