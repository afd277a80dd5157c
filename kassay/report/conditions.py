"""What the report says of blocks that do not count, and of the conditions around timed cells."""

from collections.abc import Sequence

from kassay.kinds.timing import AFTER, BEFORE, BlockRecord, GpuState, HostState
from kassay.kinds.verdict import GuardRecord
from kassay.report.evidence import Report
from kassay.report.words import fixed, listed, title

FAULTS = ("load", "block", "rule", "cell", "what was found")
GUARDS = ("guard", "comparison", "blocks", "median ratio", "looked for", "verdict")


def fault_rows(made: Sequence[BlockRecord]) -> list[list[str]]:
    """A row for each fault of blocks that do not count."""
    return [
        [
            block.load,
            str(block.block),
            str(fault["rule"]).replace("_", " "),
            "the block" if fault["recipe"] is None else f"{title(fault['recipe'])}, place {fault['position']}",
            str(fault["said"]),
        ]
        for block in made
        for fault in block.faults
    ]


def guard_rows(report: Report) -> list[list[str]]:
    """A row for each guard."""
    return [
        [
            guard.guard,
            f"{title(guard.candidate)} / {title(guard.control)}",
            f"{len(guard.valid_blocks)} of {guard.blocks}",
            fixed(guard.median, 4),
            f"{guard.at_least:g}",
            guard.verdict,
        ]
        for guard in report.of(GuardRecord)
    ]


def condition_words(report: Report) -> str:
    """Load, clocks and others' use of the processor around the cells that count or might have."""
    hosts = [state for state in report.of(HostState) if not state.pilot]
    if not hosts:
        return "The conditions around the cells were not recorded."
    said = [f"one-minute load of the host {ranged([state.load_1min for state in hosts], 2)}"]
    foreign = [share for share in foreign_shares(hosts) if share is not None]
    said += [f"others took {ranged([100 * share for share in foreign], 0)} % of a core"] if foreign else []
    clocks = [state.core_mhz for state in hosts if state.core_mhz]
    said += [f"cores at {ranged(clocks, 0)} MHz"] if clocks else []
    states = [state for state in report.of(GpuState) if not state.pilot and state.when == AFTER]
    said += [f"GPU at {ranged(values, 0)} MHz" for values in [[s.sm_mhz for s in states if s.sm_mhz]] if values]
    said += [f"{ranged(values, 0)} °C" for values in [[s.temperature_c for s in states if s.temperature_c]] if values]
    return f"Around the cells: {listed(said)}."


def foreign_shares(hosts: Sequence[HostState]) -> list[float | None]:
    """Others' use of the processor during each cell, by its two states."""
    from kassay.validity import foreign_cpu

    ends: dict[tuple[str, int, int], dict[str, HostState]] = {}
    for state in hosts:
        ends.setdefault((state.load, state.block, state.position), {})[state.when] = state
    return [foreign_cpu(pair[BEFORE], pair[AFTER]) for pair in ends.values() if {BEFORE, AFTER} <= pair.keys()]


def ranged(values: Sequence[float], digits: int) -> str:
    """`0.40 to 0.90`, or one number where all are the same."""
    low, high = (f"{value:.{digits}f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
