"""Which timed blocks count: a block with a cell that lacks evidence, or whose conditions break a frozen rule, does not.

Evidence, whatever the study says: stamps of every repetition, completion of every request, digests of all prompts, a
schedule that served every request at every step, no preemption, a process of its own, and the conditions before and
after. A cell without one of them is invalid, not slow.

Conditions, by the limits of the study's `timing.conditions` (null: no rule), frozen in the plan:

    cached_tokens            prompt tokens that a repetition did not compute
    power_capped_percent     share of a cell's time that the power cap held a GPU's clocks down: normal under full load
    slowdown_percent         the same share by anything else, which is never normal: heat, the board's limit,
                             reliability; and any power brake or thermal event of the cores
    foreign_gpu_processes    processes with a context on the GPU that are not the cell's
    foreign_cpu_percent      others' use of the processor during a cell, stolen time included, of one core
    drift_percent            spread of the clocks, of cores or of multiprocessors, over the cells of a block

A cell whose arm drafts has a schedule of its own, and evidence of it (kassay.speculated).

What a GPU's driver or the kernel's account of busy cores cannot tell was not excluded, and invalidates. Clocks and
throttling of a processor are told by few virtual machines: there they are recorded as absent and break no rule. All of
it is a function of the records of cells and conditions, never of a rate: no rule sees whether a block favours an arm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from kassay import speculated
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import AFTER, BEFORE, GpuState, HostState, TimingCell
from kassay.stats import InvalidData

NS_PER_S = 1e9
BRAKE = "hw_power_brake_slowdown"  # from outside of the GPU, and no policy of its own
HOLDING = {  # rule -> NVML's reasons, and its policies whose times add up
    "power_capped_percent": (("sw_power_cap",), ("power",)),
    "slowdown_percent": (
        ("hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", BRAKE),
        ("thermal", "board_limit", "reliability"),
    ),
}
CONTEXT_BYTES = 64 * 2**20  # less than any context of CUDA takes; more, before the cell has one, is somebody else's
PER_REPETITION = (
    "ended_ns", "request_tokens", "prefilled_tokens", "decode_steps", "full_steps", "preemptions", "output_sha256s",
)  # fmt: skip
Limits = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One reason why a block does not count."""

    block: int
    rule: str
    recipe: str | None  # of the cell; None: the block as a whole
    position: int | None
    said: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The records of one load of a timing stage, pilots left out."""

    cells: tuple[TimingCell, ...]
    hosts: tuple[HostState, ...]
    gpus: tuple[GpuState, ...]
    drafts: tuple[SpeculationCell, ...] = ()  # of cells whose arms draft

    def pair(self, cell: TimingCell) -> tuple[HostState, HostState] | None:
        """The host before and after a cell; None unless there is exactly one of each."""
        own = {when: [one for one in self.hosts if of_cell(one, cell) and one.when == when] for when in (BEFORE, AFTER)}
        return (own[BEFORE][0], own[AFTER][0]) if all(len(found) == 1 for found in own.values()) else None

    def gpu_pairs(self, cell: TimingCell) -> list[tuple[GpuState, GpuState] | None]:
        """Every GPU before and after a cell; None for one that lacks a record."""
        own = [one for one in self.gpus if of_cell(one, cell)]
        found = []
        for device in sorted({one.device for one in own}):
            ends = [[one for one in own if (one.device, one.when) == (device, when)] for when in (BEFORE, AFTER)]
            found.append((ends[0][0], ends[1][0]) if all(len(end) == 1 for end in ends) else None)
        return found


def of_cell(state: HostState | GpuState | SpeculationCell, cell: TimingCell) -> bool:
    """Whether a record is of what was around a cell, or in it."""
    return all(getattr(state, name) == getattr(cell, name) for name in ("load", "block", "position", "recipe"))


def require_limits(limits: Limits) -> None:
    """Raise InvalidData for limits of a plan that held power and slowdowns in one, `throttled_percent`."""
    if lacking := [rule for rule in HOLDING if rule not in limits]:
        raise InvalidData(
            f"`timing.conditions` lacks `{'`, `'.join(lacking)}`: a plan that froze one limit for both is judged by "
            "the kassay that made it"
        )


def faults(found: Evidence, limits: Limits | None, speculation: speculated.Section | None = None) -> list[Fault]:
    """Everything that invalidates a block, block by block; `speculation`: which arms draft, and how.

    Raises InvalidData for limits of an older plan.
    """
    if limits:
        require_limits(limits)
    told = []
    for block in sorted({cell.block for cell in found.cells}):
        own = [cell for cell in found.cells if cell.block == block]
        for cell in own:
            drafts = [one for one in found.drafts if of_cell(one, cell)]
            said = [*lacks(cell, own, drafts, speculation), *unrecorded(found, cell)]
            said += broken(found, cell, limits) if limits else ()
            told += [
                Fault(block=block, rule=rule, recipe=cell.recipe, position=cell.position, said=text)
                for rule, text in said
            ]
        if limits:
            told += [
                Fault(block=block, rule="drift_percent", recipe=None, position=None, said=text)
                for text in drifts(found, own, limits)
            ]
    return told


def lost(cell: TimingCell) -> str:
    """What was not told of every repetition, or that none was measured; empty if all is there."""
    count = len(cell.started_ns)
    short = [name for name in PER_REPETITION if len(getattr(cell, name)) != count]
    return ", ".join(short) or ("every repetition is a warm-up" if count <= cell.warmups else "")


def lacks(
    cell: TimingCell,
    block: Sequence[TimingCell],
    drafts: Sequence[SpeculationCell] = (),
    speculation: speculated.Section | None = None,
) -> Iterator[tuple[str, str]]:
    """What a cell lacks of its evidence, that of its drafts included: rule and words."""
    count = len(cell.started_ns)
    if short := lost(cell):
        yield "stamps", f"{count} starts with {cell.warmups} warm-ups, and not as many of: {short}"
        return
    stamps = list(chain.from_iterable(zip(cell.started_ns, cell.ended_ns, strict=True)))
    if not all(earlier < later for earlier, later in pairwise(stamps)):
        yield "stamps", "repetitions do not end after they start, one after the other"
    if cell.request_tokens != [[cell.output_tokens] * cell.batch] * count:
        wanted = cell.batch * cell.output_tokens
        yield "completion", f"{min(cell.completed_tokens)} of {wanted} tokens were completed, request by request"
    if len(set(cell.prompt_sha256s)) != cell.batch or not all((*cell.prompt_sha256s, cell.prompts_sha256)):
        yield "prompts", f"{len(set(cell.prompt_sha256s))} different digests of {cell.batch} prompts"
    yield from off_schedule(cell, block, drafts, speculation)
    if any(cell.preemptions):
        yield "preemption", f"{sum(cell.preemptions)} requests were preempted"
    if sum(one.pid == cell.pid for one in block) > 1:
        yield "process", f"another cell of the block ran in process {cell.pid} too"


def off_schedule(
    cell: TimingCell,
    block: Sequence[TimingCell],
    drafts: Sequence[SpeculationCell],
    speculation: speculated.Section | None,
) -> Iterator[tuple[str, str]]:
    """Steps that are not those of the cell's arm: one a token, or as its drafts were accepted."""
    if speculation is not None and speculated.base_of(speculation, cell.recipe) is not None:
        yield from speculated.lacks(cell, drafts, speculation, block)
        return
    if cell.decode_steps != [cell.output_tokens] * len(cell.started_ns) or cell.full_steps != cell.decode_steps:
        yield "schedule", f"{cell.full_steps} full of {cell.decode_steps} steps, {cell.output_tokens} were asked for"
    if drafts:
        yield "drafts", "drafts were recorded of it, and its arm has none"


def unrecorded(found: Evidence, cell: TimingCell) -> Iterator[tuple[str, str]]:
    """Conditions that were not recorded around a cell."""
    pair = found.pair(cell)
    if pair is None:
        yield "conditions", "the host was not recorded once before and once after it"
    elif not all(pair[0].at_ns <= stamp <= pair[1].at_ns for stamp in (*cell.started_ns, *cell.ended_ns)):
        yield "conditions", "the host was not recorded around it but at other times"
    if None in found.gpu_pairs(cell):
        yield "conditions", "a GPU was not recorded once before and once after it"


def broken(found: Evidence, cell: TimingCell, limits: Limits) -> Iterator[tuple[str, str]]:
    """The frozen limits that a cell's conditions break."""
    if (most := limits["cached_tokens"]) is not None:
        planned = cell.batch * cell.context_tokens
        cached = max((planned - computed for computed in cell.prefilled_tokens), default=0)
        if cached > most:
            yield "cached_tokens", f"{cached} of {planned} prompt tokens were not computed but taken from a cache"
    if (pair := found.pair(cell)) is None:
        return
    if (most := limits["foreign_cpu_percent"]) is not None:
        share = foreign_cpu(*pair)
        if share is None:
            yield "foreign_cpu_percent", "the host does not tell how busy its cores are"
        elif not 100 * share <= most:
            yield "foreign_cpu_percent", f"others took {100 * share:.0f} % of a core, allowed are {most} %"
    times = (pair[1].throttled or 0) - (pair[0].throttled or 0)
    if limits["slowdown_percent"] is not None and times > 0:
        yield "slowdown_percent", f"the cores were throttled for heat {times} times"
    for gpu in filter(None, found.gpu_pairs(cell)):
        yield from broken_on_gpu(gpu, limits)


def foreign_cpu(before: HostState, after: HostState) -> float | None:
    """Others' use of the processor between two states, stolen time included; 1 is one core. None where it is not told.

    The kernel counts in hundredths of a second for each core, so that a short cell's may come out a little below 0.
    """
    if None in (before.busy_s, after.busy_s, before.stolen_s, after.stolen_s):
        return None
    used = sum((getattr(after, name) - getattr(before, name)) for name in ("busy_s", "stolen_s"))
    took_s = (after.at_ns - before.at_ns) / NS_PER_S
    return float(used - (after.own_s - before.own_s)) / took_s if took_s > 0 else None


def broken_on_gpu(pair: tuple[GpuState, GpuState], limits: Limits) -> Iterator[tuple[str, str]]:
    """The limits that a GPU's conditions break."""
    before, after = pair
    for rule in HOLDING:
        if (most := limits[rule]) is not None:
            yield from held_down(before, after, rule, most)
    if (most := limits["foreign_gpu_processes"]) is not None:
        foreign = foreign_processes(before, after)
        if foreign is None:
            yield "foreign_gpu_processes", f"{before.device} does not tell its processes nor its memory in use"
        elif len(foreign) > most:
            yield "foreign_gpu_processes", f"on {before.device} there were others: {', '.join(foreign)}"


def held_down(before: GpuState, after: GpuState, rule: str, most: float) -> Iterator[tuple[str, str]]:
    """Whether clocks were held down: by the times that add up where they are told, else by the two moments.

    A power brake has no time of its own, so that one at either moment always counts as a slowdown.
    """
    reasons, policies = HOLDING[rule]
    now = [word for word in reasons if any(word in (state.slowed_by or ()) for state in (before, after))]
    early, late = before.slowed_ns or {}, after.slowed_ns or {}
    held = {name: late[name] - early[name] for name in policies if name in early and name in late}
    if held:
        share = 100 * max(held.values()) / max(1, after.at_ns - before.at_ns)
        if not share <= most:
            names = ", ".join(f"{name} {span / 1e6:.1f} ms" for name, span in held.items() if span)
            yield rule, f"clocks of {before.device} were held down {share:.2f} % of the time ({names})"
        elif BRAKE in now:
            yield rule, f"clocks of {before.device} were held down: {BRAKE}"
    elif before.slowed_by is None or after.slowed_by is None:
        yield rule, f"{before.device} does not tell what holds its clocks down"
    elif now:
        yield rule, f"clocks of {before.device} were held down: {', '.join(now)}"


def foreign_processes(before: GpuState, after: GpuState) -> list[str] | None:
    """Processes that are not the cell's, in words; None where nothing is told of them.

    Before the cell has a context all are foreign. After it one is the cell's own, under whatever number.
    """
    if before.processes is None and before.used_bytes is None:
        return None
    early, late = ({one["pid"]: one for one in state.processes or () if not one["own"]} for state in (before, after))
    found = [f"pid {pid}" for pid in early]
    if after.processes and not any(one["own"] for one in after.processes):
        fresh = sorted(pid for pid in late if pid not in early)
        found += [f"pid {pid}" for pid in fresh[1:]]  # one of them is ours, as the host numbers it
    else:
        found += [f"pid {pid}" for pid in late if pid not in early]
    if not found and (before.used_bytes or 0) > CONTEXT_BYTES:
        found.append(f"{(before.used_bytes or 0) / 2**20:.0f} MiB in use by processes that are not listed")
    return found


def drifts(found: Evidence, block: Sequence[TimingCell], limits: Limits) -> Iterator[str]:
    """Clocks that differ too much over the cells of a block, as they were right after each cell's work."""
    if (most := limits["drift_percent"]) is None:
        return
    after = [pair[1] for cell in block if (pair := found.pair(cell)) is not None]
    clocks: dict[str, list[float | None]] = {"the cores": [state.core_mhz for state in after]}
    for cell in block:
        for gpu in filter(None, found.gpu_pairs(cell)):
            clocks.setdefault(gpu[1].device, []).append(gpu[1].sm_mhz)
    for name, seen in clocks.items():
        told = [mhz for mhz in seen if mhz]
        if len(told) > 1 and not 100 * (max(told) / min(told) - 1) <= most:
            yield f"clocks of {name} were {min(told):.0f} to {max(told):.0f} MHz, allowed is a spread of {most} %"


def valid_blocks(blocks: int, found: Sequence[Fault]) -> list[int]:
    """The blocks that count."""
    bad = {fault.block for fault in found}
    return [block for block in range(blocks) if block not in bad]
