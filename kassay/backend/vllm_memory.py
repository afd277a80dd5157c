"""Memory of a vLLM engine: what each arm's process holds from its start to the last request, at equal slots and bytes.

Every arm and pool has a fresh process. `slots`: a pool of as many blocks as the requests take, or as the study's audit
at equal blocks asks for, the same in every arm; the requests are served in it. `budget`: as many blocks as the same
bytes of keys, values and scales hold. What is asked of vLLM is bytes of the pool; what counts is the storages behind
the live layers, each once, and that vLLM's own number of blocks is theirs. Block 0 of a pool is vLLM's null block: it
is allocated as any other and no request has it.

Which tensors are whose is kassay.backend.vllm_holdings'; beside them stand the allocator's numbers, graph pools apart,
and what NVML tells of the device while an engine starts and while it serves.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from kassay.cell import run_cell
from kassay.errors import KassayError
from kassay.kinds.memory import AllocatorRecord, MemoryPart, MemorySample, MemoryWindow
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.kv.accounting import Held, accounted, cache_parts
from kassay.kv.audit import EQUAL_BLOCKS, EQUAL_BYTES, EQUAL_SLOTS, ArmMemory, MemoryFinding
from kassay.kv.geometry import SCALE_BYTES, Geometry, fixed_scales, layout_of, token_bytes
from kassay.kv.recipe import Recipe
from kassay.memory_limits import Limits
from kassay.memory_records import (
    BUDGET,
    answered,
    append_parts,
    audits,
    ceilings,
    parts_finding,
    watched,
)
from kassay.memory_sources import Found, sources
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage

SLOTS = "slots"  # the pool at equal slots, whose phases are START and SERVE; that at equal bytes has one, BUDGET
START, SERVE = "start", "serve"
NULL_BLOCKS = 1  # of a pool, which no request has
KEPT = (VllmEngine, VllmSpan, VllmRequest, MemoryPart, MemorySample, MemoryWindow, AllocatorRecord)
ARM = "arm"  # artifact of a cell: what the audits compare


def run(stage: Stage, found: Found, limits: Limits) -> Metrics | Rejection:
    """Parts, windows and gates of every arm, each pool in a process of its own."""
    from kassay.backend.vllm import require_vllm

    require_vllm()
    arms: dict[str, list[ArmMemory]] = defaultdict(list)  # gate -> the arms' pools in their order
    windows: list[Any] = []
    peaks: list[int] = []
    doubled: list[MemoryFinding] = []
    planned = [(arm, pool) for arm in stage.params["arms"] for pool in pools(limits)]
    for done, (arm, pool) in enumerate(planned, start=1):
        cell = {**stage.params, "arm": arm, "pool": pool}
        directory = run_cell(stage, f"{arm}-{pool}", "vllm_memory_cell", cell)
        windows += kept(stage, directory)
        told = json.loads((directory / f"{ARM}.json").read_bytes())
        for gate in gates(pool, limits):
            arms[gate].append(ArmMemory(**told["held"]))
        if pool == SLOTS:
            doubled.append(MemoryFinding(**told["parts"]))
        peaks += told["peaks"]
        stage.progress(done, len(planned), f"{arm}, {pool}")
    findings = [*audits(limits, arms), *doubled, *ceilings(limits, windows, peaks)]
    ended, more = answered(stage, findings, arms, windows, found), capacities(arms)
    if isinstance(ended, Rejection):
        return stage.rejected(ended.reason, **ended.metrics, **more)
    return {**ended, **more}


def pools(limits: Limits) -> list[str]:
    """The pools of an arm."""
    return [SLOTS] if limits.budget_bytes is None else [SLOTS, BUDGET]


def gates(pool: str, limits: Limits) -> list[str]:
    """What a pool is audited for: one of the study's blocks answers both questions at equal slots."""
    if pool == BUDGET:
        return [EQUAL_BYTES]
    return [EQUAL_SLOTS] if limits.equal_slots_blocks is None else [EQUAL_SLOTS, EQUAL_BLOCKS]


def capacities(arms: Mapping[str, list[ArmMemory]]) -> Metrics:
    """Blocks' tokens of each arm over those of the first one at equal bytes."""
    held = arms.get(EQUAL_BYTES) or []
    return {f"{arm.arm} capacity at equal bytes": round(arm.slots / held[0].slots, 4) for arm in held[1:]}


def kept(stage: Stage, directory: Path) -> list[MemoryWindow]:
    """What a cell leaves becomes the stage's; its windows."""
    from kassay.backend.vllm_attest import effective

    for kind in KEPT:
        for record in read_kind(directory / "records.jsonl", kind):
            stage.append(record)
            if isinstance(record, VllmEngine):
                stage.attest(record.arm, **effective(record))
    return list(read_kind(directory / "records.jsonl", MemoryWindow))


# In a cell


def measure(stage: Stage, limits: Limits, geometry: Geometry, recipe: Recipe, made: Any, prompts: Any) -> Metrics:
    """One arm's pool: `made()` starts its engine, which serves the prompts; everything around it is a record."""
    params = stage.params
    arm, pool, found = params["arm"], params["pool"], sources()
    peaks: list[int] = []

    def phase(name: str, work: Any) -> Any:
        return watched(stage, arm, name, found, limits, work)[0]  # its windows are records by then

    if pool == BUDGET:
        engine, served = phase(BUDGET, lambda: started_and_served(made, prompts, params["output_tokens"]))
        device = allocator(stage, arm, BUDGET, engine, peaks)
    else:
        engine = phase(START, made)
        device = allocator(stage, arm, START, engine, peaks)
        reset(device)
        served = phase(SERVE, partial(serve, engine, prompts, params["output_tokens"]))
        allocator(stage, arm, SERVE, engine, peaks)
    for record in (engine.attest(), served.span, *served.requests):
        stage.append(record)
    told = {**audit(stage, engine, served, geometry, recipe, allocated_bytes(device)), "peaks": peaks}
    stage.write_json(ARM, told)
    return {"blocks": engine.attested.blocks, "preemptions": served.span.preemptions}


def audit(
    stage: Stage, engine: Any, served: Any, geometry: Geometry, recipe: Recipe, allocated: int
) -> dict[str, dict[str, Any]]:
    """The parts of what an engine holds, as records of the pool at equal slots; and what the gates compare."""
    from kassay.backend import vllm_holdings as holds

    arm, worker, attested = stage.params["arm"], engine.worker, engine.attested
    cache = holds.cache_held(worker)
    beside = [*holds.weights_held(worker, cache), *holds.runner_held(worker.model_runner), *holds.scratch_held()]
    if stage.params["pool"] == SLOTS:
        append_parts(stage, arm, [*used(cache, served, attested), *beside])
    parts = sum(one.backing_bytes for one in accounted(holds.on_device([*cache, *beside])))
    return {
        "held": asdict(audited(arm, cache, attested, geometry, recipe)),
        "parts": asdict(parts_finding(arm, parts, allocated)),
    }


def started_and_served(made: Any, prompts: Any, tokens: int) -> tuple[Any, Any]:
    """An engine and what it served at once."""
    engine = made()
    return engine, serve(engine, prompts, tokens)


def serve(engine: Any, prompts: Any, tokens: int) -> Any:
    """All requests completely, the device idle when it returns. Raises KassayError where the pool did not hold them."""
    served = engine.serve(prompts, tokens, repetition=0, warmup=False, forced=True)
    if served.span.preemptions:
        raise KassayError(f"{served.span.preemptions} requests were preempted: the pool never held all of them at once")
    return served


def pool_bytes(
    pool: str, limits: Limits, geometry: Geometry, recipe: Recipe, *, request_tokens: int, batch: int
) -> int:
    """Bytes of a pool that is asked of vLLM: keys, values and scales beside them; fixed scalars are not in it."""
    block = token_bytes(geometry, recipe) * limits.page_tokens
    if pool == SLOTS:
        needed = NULL_BLOCKS + batch * -(-request_tokens // limits.page_tokens)
        return block * (limits.equal_slots_blocks or needed)
    if limits.budget_bytes is None:
        raise KassayError("a pool at equal bytes is asked for, and no budget: this is a bug")
    return limits.budget_bytes - fixed_scales(geometry, recipe) * SCALE_BYTES


def used(cache: Iterable[Held], served: Any, engine: VllmEngine) -> list[Held]:
    """The cache with those bytes as payload that the requests' tokens took at their ends; fixed scalars whole."""
    tokens = sum(one.prompt_tokens + one.output_tokens - 1 for one in served.requests)  # the last one is not stored
    slots = engine.blocks * engine.block_tokens
    return [
        Held(**{**vars(one), "payload_bytes": one.payload_bytes * tokens // slots})
        if one.payload_bytes > SCALE_BYTES
        else one
        for one in cache
    ]


def audited(arm: str, cache: Iterable[Held], engine: VllmEngine, geometry: Geometry, recipe: Recipe) -> ArmMemory:
    """What the audits compare: every slot of the pool in use, by vLLM's own number of blocks."""
    parts = cache_parts(accounted(cache))
    layout, slots = layout_of(geometry), engine.blocks * engine.block_tokens
    per_token = token_bytes(layout, recipe)
    return ArmMemory(
        arm=arm, slots=slots, planned_bytes=per_token * slots + fixed_scales(layout, recipe) * SCALE_BYTES,
        payload_bytes=sum(part.payload_bytes for part in parts),
        backing_bytes=sum(part.backing_bytes for part in parts), page_bytes=per_token * engine.block_tokens,
        tail_bytes=0,  # a storage is as large as its tensor; what an allocator rounds up is in its own numbers
    )  # fmt: skip


def allocator(stage: Stage, arm: str, phase: str, engine: Any, peaks: list[int]) -> Any:
    """The allocator's numbers of a phase as a record; its device."""
    from kassay.backend import holdings

    device = next(iter(engine.worker.get_model().parameters())).device
    peaks += holdings.reserved_peaks(stage, arm, phase, device)
    return device


def reset(device: Any) -> None:
    """Let the allocator's peaks begin anew."""
    from kassay.backend import holdings

    holdings.reset_peaks(device)


def allocated_bytes(device: Any) -> int:
    """What torch's allocator has in tensors now."""
    import torch

    return int(torch.cuda.memory_allocated(device))
