"""What a stage that measures memory leaves: windows around its work, parts, the allocator's numbers, gates, an answer.

Stages on several backends measure memory (stages/memory.py first). What they hold differs; what is recorded of it, and
which gate says what, is one: here. Nothing here knows torch or an engine: storages come as kassay.kv.accounting.Held,
caches as ArmMemory, and an allocator's state as its numbers.

A recipe's work has phases, each in windows of its own (`fill`: the requests' cache; `blocks` and `budget`: the caches
at equal blocks and at equal bytes; a serving engine has others). A ceiling binds all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TypeVar

from kassay.kinds.memory import AllocatorRecord, MemoryArm, MemoryGate, MemoryPart, MemorySample, MemoryWindow
from kassay.kv.accounting import Held, accounted
from kassay.kv.audit import (
    EQUAL_BLOCKS,
    EQUAL_BYTES,
    EQUAL_SLOTS,
    FAILS,
    PASS,
    ArmMemory,
    MemoryFinding,
    ceiling,
    equal_blocks,
    equal_bytes,
    equal_slots,
)
from kassay.memory_limits import Limits
from kassay.memory_sources import Found
from kassay.stage import Metrics, Rejection, Stage
from kassay.telemetry import Sampler, Window

FILL, BLOCKS, BUDGET = "fill", "blocks", "budget"
GATES = {FILL: EQUAL_SLOTS, BLOCKS: EQUAL_BLOCKS, BUDGET: EQUAL_BYTES}  # phase -> what its caches are audited for
ALLOCATED_PARTS = "allocated parts"  # the gate of an engine whose parts are all tensors of its own
Made = TypeVar("Made")
Arms = Mapping[str, Sequence[ArmMemory]]  # gate -> the recipes' caches in their order


def watched(
    stage: Stage, recipe: str, phase: str, found: Found, limits: Limits, work: Callable[[], Made]
) -> tuple[Made, list[Window]]:
    """What `work` made, and a window of every source around it, which are records by then.

    `work` ends when the device has: a window must not close on work that is still under way.
    """
    with ExitStack() as stack:
        asked = (limits.period_ns, limits.longest_gap_ns)
        samplers = [stack.enter_context(Sampler(source, *asked)) for source in found.sources]
        made = work()
    windows = [sampler.finished() for sampler in samplers]
    for window in windows:
        append_window(stage, recipe, phase, window)
    return made, windows


def audits(limits: Limits, arms: Arms) -> list[MemoryFinding]:
    """The findings about the caches, gate by gate."""
    found = [*equal_slots(arms[EQUAL_SLOTS])]
    if (blocks := limits.equal_slots_blocks) is not None:
        found += equal_blocks(arms[EQUAL_BLOCKS], blocks=blocks, page_tokens=limits.page_tokens)
    if (budget := limits.budget_bytes) is not None:
        found += equal_bytes(arms[EQUAL_BYTES], budget_bytes=budget)
    return found


def parts_finding(arm: str, parts_bytes: int, allocated_bytes: int) -> MemoryFinding:
    """Whether an arm's parts are no more than what the allocator has in tensors; fails where something counts twice."""
    beside = allocated_bytes - parts_bytes
    verdict = PASS if beside >= 0 else FAILS
    reason = f"{beside} bytes of tensors beside the parts" if beside >= 0 else f"{-beside} bytes are counted twice"
    return MemoryFinding(
        gate=ALLOCATED_PARTS, arm=arm, verdict=verdict, observed=parts_bytes, limit=allocated_bytes, reason=reason
    )


def ceilings(limits: Limits, windows: Sequence[Window], peaks: Sequence[int]) -> list[MemoryFinding]:
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
    findings: Sequence[MemoryFinding],
    arms: Arms,
    windows: Sequence[Window],
    found: Found,
) -> Metrics | Rejection:
    """The gates and what they compared as records, and the stage's answer."""
    for gate, own in arms.items():
        for arm in own:
            body = {name: value for name, value in asdict(arm).items() if name != "arm"}
            stage.append(MemoryArm(model=stage.params["model"], gate=gate, recipe=arm.arm, **body))
    slots = {(gate, arm.arm): arm.slots for gate, own in arms.items() for arm in own}
    for finding in findings:
        stage.append(
            MemoryGate(
                model=stage.params["model"],
                gate=finding.gate,
                recipe=finding.arm,
                verdict=finding.verdict,
                observed=finding.observed,
                limit=finding.limit,
                slots=slots.get((finding.gate, finding.arm)),
                reason=finding.reason,
            )
        )
    metrics: Metrics = {f"{arm.arm} bytes per token": arm.payload_bytes / arm.slots for arm in arms[EQUAL_SLOTS]}
    metrics |= {"windows that are no evidence": sum(bool(window.fault) for window in windows)}
    metrics |= {"absent": "; ".join(found.absent)} if found.absent else {}
    wrong = [
        f"{one.gate}{' of ' + one.arm if one.arm else ''}: {one.reason}" for one in findings if one.verdict != PASS
    ]
    return stage.rejected("; ".join(wrong), **metrics) if wrong else metrics


def append_parts(stage: Stage, recipe: str, held: Sequence[Held]) -> None:
    """The parts of what is held, as records."""
    for part in accounted(held):
        stage.append(
            MemoryPart(
                model=stage.params["model"],
                recipe=recipe,
                batch=stage.params["batch"],
                tokens=stage.params["context_tokens"],
                part=part.part,
                payload_bytes=part.payload_bytes,
                backing_bytes=part.backing_bytes,
            )
        )


def append_allocator(
    stage: Stage, recipe: str, phase: str, device: str, absent: str, numbers: Mapping[str, int] | None
) -> None:
    """The allocator's numbers as a record, or why there are none."""
    place = {"model": stage.params["model"], "recipe": recipe, "phase": phase, "device": device}
    names = [name for name in AllocatorRecord.__dataclass_fields__ if name.endswith("_bytes")]
    stage.append(AllocatorRecord(**place, absent=absent, **(dict.fromkeys(names) if numbers is None else numbers)))


def append_window(stage: Stage, recipe: str, phase: str, window: Window) -> None:
    """A window and all its queries as records."""
    place = {"model": stage.params["model"], "recipe": recipe, "phase": phase}
    place |= {"source": window.source, "device": window.device}
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
