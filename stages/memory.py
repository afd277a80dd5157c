"""What each recipe's cache holds, byte by byte, beside what the geometry says it must; and samples while it is filled.

Storages are counted once by (device, storage pointer); keys, values, scales, weights, staging and scratch are parts of
their own, and the allocator's numbers stand beside them. Separate studies: at equal slots every recipe holds the
tokens of the same requests, at equal blocks the number of blocks that a study asks for, at equal bytes it fills the
same budget of K, V and scales. All of it is allocated, one cache at a time, each in windows of its own, so that
ceilings bind all of it. The stage is rejected if bytes differ from the geometry's arithmetic, or if a gate or a ceiling
does not hold. Ceilings, blocks, budget and sampling are the study's or Kconfig's, as kassay.memory_limits decides.

On the fused backend it is a decoder that prefills and decodes under graphs (kassay.backend.fused_memory), on vLLM an
engine of each arm and pool (kassay.backend.vllm_memory).
"""

from collections import defaultdict
from functools import partial
from typing import Any

import torch

from kassay.backend import checkpoint, holdings, inputs, reference, speed, structure
from kassay.backend.checkpoint import Checkpoint
from kassay.kv.accounting import Held, accounted, cache_parts
from kassay.kv.audit import ArmMemory
from kassay.kv.budget import ALLOCATORS, Pool, pages_in
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.geometry import SCALE_BYTES, fixed_scales, layout_of, token_bytes
from kassay.kv.recipe import Recipe, recipe_named
from kassay.memory_limits import Limits
from kassay.memory_limits import limits as limits_of
from kassay.memory_records import (
    BLOCKS,
    BUDGET,
    FILL,
    GATES,
    answered,
    append_parts,
    audits,
    ceilings,
    watched,
)
from kassay.memory_sources import Found, sources
from kassay.stage import Metrics, Rejection, Stage, Unmet, main
from kassay.telemetry import Window


def run(stage: Stage) -> Metrics | Rejection:
    """Parts, windows and gates of every recipe."""
    params = stage.params
    found, limits = sources(), limits_of(params)
    stage.append(limits.record(params["model"]))
    require_sources(limits, found)
    engine = (params.get("backend") or {}).get("engine")
    if engine == speed.FUSED:
        from kassay.backend import fused_memory

        return fused_memory.run(stage, found, limits)
    if engine == speed.VLLM:
        from kassay.backend import vllm_memory

        return vllm_memory.run(stage, found, limits)
    loaded = checkpoint.of_stage(stage)
    model = loaded.model
    scales = inputs.scales_of(stage)
    asked = {name: params[name] for name in ("seed", "context_tokens")}
    texts = loaded.text.passages(split="development", count=params["batch"], targets=0, **asked)
    context = reference.prefill(model, loaded.rows(passage.context for passage in texts), params["sixteen"])
    append_parts(stage, "native", [*holdings.weights_held(model), *holdings.staging_held(context)])
    recipes = [recipe_named(name, params["sixteen"]) for name in params["recipes"]]
    arms: dict[str, list[ArmMemory]] = defaultdict(list)  # gate -> the recipes' caches in their order
    windows: list[Window] = []
    peaks: list[int] = []
    for done, recipe in enumerate(recipes, start=1):
        held, own, reserved = measured(stage, loaded, recipe, scales, context, found, limits)
        for gate, arm in held.items():
            arms[gate].append(arm)
        windows += own
        peaks += reserved
        stage.progress(done, len(recipes), recipe.name)
    findings = [*audits(limits, arms), *ceilings(limits, windows, peaks)]
    return answered(stage, findings, arms, windows, found)


def require_sources(limits: Limits, found: Found) -> None:
    """Raise Unmet if a ceiling is asked for that nothing here could observe."""
    if limits.device_ceiling_bytes is not None and not any(source.name == "device" for source in found.sources):
        raise Unmet(f"a ceiling of the device is asked for, and {'; '.join(found.absent)}")
    if limits.reserved_ceiling_bytes is not None and not torch.cuda.is_available():
        raise Unmet("a ceiling of the allocator is asked for, and torch sees no GPU")


def measured(
    stage: Stage, loaded: Checkpoint, recipe: Recipe, scales: Any, context: Prefilled, found: Found, limits: Limits
) -> tuple[dict[str, ArmMemory], list[Window], list[int]]:
    """One recipe, phase by phase: its caches by gate, all windows, and the allocator's reserved peaks where it has any.

    A cache is gone before the next one is made.
    """
    arms: dict[str, ArmMemory] = {}
    windows, peaks = [], []
    for phase, slots in phases(stage.params, limits, loaded.model, recipe).items():
        holdings.reset_peaks(loaded.device)
        asked = (context, context.tokens) if phase == FILL else (one_row(context), slots)
        work = partial(filled, loaded, recipe, scales, *asked, read=phase == FILL)
        (cache, held), own = watched(stage, recipe.name, phase, found, limits, work)
        windows += own
        peaks += holdings.reserved_peaks(stage, recipe.name, phase, loaded.device)
        if phase == FILL:
            append_parts(stage, recipe.name, held)
        arms[GATES[phase]] = arm_of(loaded.model, recipe, cache, slots, limits.page_tokens)
        del cache
        release(loaded.device)
    return arms, windows, peaks


def filled(
    loaded: Checkpoint, recipe: Recipe, scales: Any, context: Prefilled, tokens: int, *, read: bool
) -> tuple[RecipeCache, list[Held]]:
    """A cache of so many tokens a row, its operands repeated or cut; what it holds, with the scratch of a `read`.

    The device is idle when it returns.
    """
    cache = reference.made(loaded.model, recipe, scales, tokens)
    for start in range(0, tokens, context.tokens):
        cache.fill(cut(context, min(context.tokens, tokens - start)))
    scratch = holdings.scratch_held(cache, next(loaded.model.parameters()).dtype) if read else []
    if loaded.device.type == "cuda":
        torch.cuda.synchronize(loaded.device)
    return cache, [*holdings.cache_held(cache), *scratch]


def phases(params: dict[str, Any], limits: Limits, model: Any, recipe: Recipe) -> dict[str, int]:
    """Phase -> slots of its cache: the requests, the study's blocks, as many whole blocks as fit the budget."""
    found = {FILL: params["batch"] * params["context_tokens"]}
    if limits.equal_slots_blocks is not None:
        found[BLOCKS] = limits.equal_slots_blocks * limits.page_tokens
    if limits.budget_bytes is not None:
        pool = Pool(
            layout=layout_of(structure.geometry_of(model)),
            recipe=recipe,
            page_tokens=limits.page_tokens,
            cartridge=None,
            allocator=ALLOCATORS[0],
        )
        found[BUDGET] = pages_in(pool, limits.budget_bytes, 1).count * limits.page_tokens
    return found


def release(device: torch.device) -> None:
    """Give back what a cache that is gone had of the driver: else the next one would stand beside it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def one_row(context: Prefilled) -> Prefilled:
    """The operands of all rows behind each other."""

    def row(x_BHTD: torch.Tensor) -> torch.Tensor:
        return x_BHTD.transpose(0, 1).flatten(1, 2)[None]

    return Prefilled(operands=[(row(k_BHTD), row(v_BHTD)) for k_BHTD, v_BHTD in context.operands])


def cut(context: Prefilled, tokens: int) -> Prefilled:
    """The first tokens of every row."""
    operands = [(k_BHTD[:, :, :tokens], v_BHTD[:, :, :tokens]) for k_BHTD, v_BHTD in context.operands]
    return Prefilled(operands=operands, states=context.states)


def arm_of(model: Any, recipe: Recipe, cache: RecipeCache, slots: int, page_tokens: int) -> ArmMemory:
    """What the audits compare of a filled cache."""
    layout = layout_of(structure.geometry_of(model))
    parts = cache_parts(accounted(holdings.cache_held(cache)))
    per_token = token_bytes(layout, recipe)
    return ArmMemory(
        arm=recipe.name,
        slots=slots,
        planned_bytes=per_token * slots + fixed_scales(layout, recipe) * SCALE_BYTES,
        payload_bytes=sum(part.payload_bytes for part in parts),
        backing_bytes=sum(part.backing_bytes for part in parts),
        page_bytes=per_token * page_tokens,
        tail_bytes=0,  # a storage is as large as its tensor; what an allocator rounds up is in its own numbers
    )


if __name__ == "__main__":
    main(run)
