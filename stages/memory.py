"""What each recipe's cache holds, byte by byte, beside what the geometry says it must; and samples while it is filled.

Storages are counted once by (device, storage pointer); keys, values, scales, weights, staging and scratch are parts of
their own, and the allocator's numbers stand beside them. Two separate studies: at equal slots every recipe holds the
same tokens, at equal bytes every recipe fills the same budget of K, V and scales. The stage is rejected if bytes differ
from the geometry's arithmetic, or if a gate or a ceiling does not hold. Ceilings, budget and sampling are the study's
or Kconfig's, as kassay.memory_limits decides.
"""

from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import torch

from kassay.backend import checkpoint, holdings, inputs, reference, structure
from kassay.backend.checkpoint import Checkpoint
from kassay.kinds.memory import AllocatorRecord, MemoryGate, MemoryPart, MemorySample, MemoryWindow
from kassay.kv.accounting import Held, PartBytes, accounted, cache_parts
from kassay.kv.audit import PASS, ArmMemory, MemoryFinding, ceiling, equal_bytes, equal_slots
from kassay.kv.budget import ALLOCATORS, Pool, pages_in
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.geometry import SCALE_BYTES, fixed_scales, layout_of, token_bytes
from kassay.kv.recipe import Recipe, recipe_named
from kassay.memory_limits import Limits
from kassay.memory_limits import limits as limits_of
from kassay.memory_sources import Found, sources
from kassay.stage import Metrics, Rejection, Stage, Unmet, main
from kassay.telemetry import Sampler, Window

PAGE_TOKENS = 16  # of the published geometry, vLLM's block


def run(stage: Stage) -> Metrics | Rejection:
    """Parts, windows and gates of every recipe."""
    params = stage.params
    found, limits = sources(), limits_of(params)
    stage.append(limits.record(params["model"]))
    require_sources(limits, found)
    loaded = checkpoint.of_stage(stage)
    model = loaded.model
    scales = inputs.scales_of(stage)
    asked = {name: params[name] for name in ("seed", "context_tokens")}
    texts = loaded.text.passages(split="development", count=params["batch"], targets=0, **asked)
    context = reference.prefill(model, loaded.rows(passage.context for passage in texts), params["sixteen"])
    append_parts(stage, "native", [*holdings.weights_held(model), *holdings.staging_held(context)])
    recipes = [recipe_named(name, params["sixteen"]) for name in params["recipes"]]
    alike, filling, windows = [], [], []
    peaks: list[int] = []
    for done, recipe in enumerate(recipes, start=1):
        own, arm, peak = measured(stage, loaded, recipe, scales, context, found, limits)
        windows += own
        alike.append(arm)
        peaks += [] if peak is None else [peak]
        if limits.budget_bytes is not None:
            filling.append(budgeted(limits.budget_bytes, model, recipe, scales, context))
        stage.progress(done, len(recipes), recipe.name)
    findings = [*equal_slots(alike)]
    findings += equal_bytes(filling, budget_bytes=limits.budget_bytes) if limits.budget_bytes is not None else ()
    findings += ceilings(limits, windows, peaks)
    return answered(stage, findings, alike, filling, windows, found)


def require_sources(limits: Limits, found: Found) -> None:
    """Raise Unmet if a ceiling is asked for that nothing here could observe."""
    if limits.device_ceiling_bytes is not None and not any(source.name == "device" for source in found.sources):
        raise Unmet(f"a ceiling of the device is asked for, and {'; '.join(found.absent)}")
    if limits.reserved_ceiling_bytes is not None and not torch.cuda.is_available():
        raise Unmet("a ceiling of the allocator is asked for, and torch sees no GPU")


def measured(
    stage: Stage, loaded: Checkpoint, recipe: Recipe, scales: Any, context: Prefilled, found: Found, limits: Limits
) -> tuple[list[Window], ArmMemory, int | None]:
    """Windows and cache of one recipe at equal slots, and the allocator's reserved peak where there is one."""
    holdings.reset_peaks(loaded.device)
    with ExitStack() as stack:
        asked = (limits.period_ns, limits.longest_gap_ns)
        samplers = [stack.enter_context(Sampler(source, *asked)) for source in found.sources]
        cache = reference.filled(loaded.model, recipe, scales, context, 0)
        held = holdings.cache_held(cache)
        scratch = holdings.scratch_held(cache, next(loaded.model.parameters()).dtype)
        if loaded.device.type == "cuda":
            torch.cuda.synchronize(loaded.device)
    append_parts(stage, recipe.name, [*held, *scratch])
    peak = append_allocator(stage, recipe.name, loaded.device)
    windows = [sampler.finished() for sampler in samplers]
    for window in windows:
        append_window(stage, recipe.name, window)
    tokens = stage.params["batch"] * stage.params["context_tokens"]
    return windows, arm_of(loaded.model, recipe, cache, tokens), peak


def budgeted(budget_bytes: int, model: Any, recipe: Recipe, scales: Any, context: Prefilled) -> ArmMemory:
    """The cache of one recipe that fills the budget: as many whole pages as fit, in one row, really allocated."""
    pool = Pool(
        layout=layout_of(structure.geometry_of(model)),
        recipe=recipe,
        page_tokens=PAGE_TOKENS,
        cartridge=None,
        allocator=ALLOCATORS[0],
    )
    slots = pages_in(pool, budget_bytes, 1).count * PAGE_TOKENS
    cache = reference.made(model, recipe, scales, slots)
    cache.fill(one_row(context, slots))
    return arm_of(model, recipe, cache, slots)


def one_row(context: Prefilled, slots: int) -> Prefilled:
    """The operands of all rows behind each other, repeated or cut to so many tokens."""

    def longer(x_BHTD: torch.Tensor) -> torch.Tensor:
        row_HTD = x_BHTD.transpose(0, 1).flatten(1, 2)
        times = -(-slots // row_HTD.shape[1])
        return row_HTD.repeat(1, times, 1)[None, :, :slots]

    return Prefilled(operands=[(longer(k_BHTD), longer(v_BHTD)) for k_BHTD, v_BHTD in context.operands])


def arm_of(model: Any, recipe: Recipe, cache: RecipeCache, slots: int) -> ArmMemory:
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
        page_bytes=per_token * PAGE_TOKENS,
        tail_bytes=0,  # a storage is as large as its tensor; what an allocator rounds up is in its own numbers
    )


def ceilings(limits: Limits, windows: list[Window], peaks: list[int]) -> list[MemoryFinding]:
    """The findings about the ceilings that are asked for."""
    found = []
    if (limit := limits.device_ceiling_bytes) is not None:
        for device in sorted({window.device for window in windows if window.source == "device"}):
            own = [window for window in windows if window.device == device]
            faults = [window.fault for window in own if window.fault]
            largest = max((window.largest_bytes for window in own if window.largest_bytes is not None), default=None)
            fault = faults[0] if faults else ""
            found.append(
                ceiling("device ceiling", observed_bytes=largest, limit_bytes=limit, fault=fault, sampled=True)
            )
    if (limit := limits.reserved_ceiling_bytes) is not None:
        largest = max(peaks, default=None)
        found.append(ceiling("reserved ceiling", observed_bytes=largest, limit_bytes=limit, fault="", sampled=False))
    return found


def answered(
    stage: Stage,
    findings: list[MemoryFinding],
    alike: list[ArmMemory],
    filling: list[ArmMemory],
    windows: list[Window],
    found: Found,
) -> Metrics | Rejection:
    """The gates as records, and the stage's answer."""
    arms = [*alike, *filling]
    for arm, finding in zip([*arms, *[None] * (len(findings) - len(arms))], findings, strict=True):
        stage.append(
            MemoryGate(
                model=stage.params["model"],
                gate=finding.gate,
                recipe=finding.arm,
                verdict=finding.verdict,
                observed=finding.observed,
                limit=finding.limit,
                slots=None if arm is None else arm.slots,
                reason=finding.reason,
            )
        )
    metrics: Metrics = {f"{arm.arm} bytes per token": arm.payload_bytes / arm.slots for arm in alike}
    metrics |= {"windows that are no evidence": sum(bool(window.fault) for window in windows)}
    metrics |= {"absent": "; ".join(found.absent)} if found.absent else {}
    wrong = [
        f"{one.gate}{' of ' + one.arm if one.arm else ''}: {one.reason}" for one in findings if one.verdict != PASS
    ]
    return stage.rejected("; ".join(wrong), **metrics) if wrong else metrics


def append_parts(stage: Stage, recipe: str, held: list[Held]) -> None:
    """The parts of what is held, as records."""
    for part in accounted(held):
        stage.append(part_record(stage, recipe, part))


def part_record(stage: Stage, recipe: str, part: PartBytes) -> MemoryPart:
    """One part as a record."""
    return MemoryPart(
        model=stage.params["model"],
        recipe=recipe,
        batch=stage.params["batch"],
        tokens=stage.params["context_tokens"],
        part=part.part,
        payload_bytes=part.payload_bytes,
        backing_bytes=part.backing_bytes,
    )


def append_allocator(stage: Stage, recipe: str, device: torch.device) -> int | None:
    """The allocator's numbers as a record, or why there are none; its reserved peak."""
    state = None if (absent := holdings.absent_allocator(device)) else holdings.allocator_state(device)
    numbers = {name: None for name in holdings.AllocatorState.__dataclass_fields__} if state is None else asdict(state)
    said = {"model": stage.params["model"], "recipe": recipe, "device": str(device), "absent": absent}
    stage.append(AllocatorRecord(**said, **numbers))
    return None if state is None else state.reserved_peak_bytes


def append_window(stage: Stage, recipe: str, window: Window) -> None:
    """A window and all its queries as records."""
    place = {"model": stage.params["model"], "recipe": recipe, "source": window.source, "device": window.device}
    for sample in window.samples:
        stage.append(MemorySample(**place, **asdict(sample)))
    stage.append(
        MemoryWindow(
            **place,
            opened_ns=window.opened_ns,
            closed_ns=window.closed_ns,
            queries=len(window.samples),
            answered=len(window.answered),
            gap_ns=window.gap_ns,
            largest_bytes=window.largest_bytes,
            sampler_cpu_ns=window.sampler_cpu_ns,
            sampler_wall_ns=window.sampler_wall_ns,
            startup_cpu_ns=window.startup_cpu_ns,
            period_ns=window.period_ns,
            longest_gap_ns=window.longest_gap_ns,
            valid=not window.fault,
            fault=window.fault,
        )
    )


if __name__ == "__main__":
    main(run)
