"""What the report says of blocks that do not count, and of the conditions around timed cells."""

from collections.abc import Sequence

from kassay.kinds.composition import CompositionRecord
from kassay.kinds.matrix import MatrixRow
from kassay.kinds.timing import AFTER, BEFORE, TIMED, BlockRecord, GpuState, HostState, TimingCell
from kassay.kinds.verdict import ContrastRecord, GuardRecord
from kassay.record import Record
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, table, tag
from kassay.report.words import counted, fixed, listed, one_line, title

FAULTS = ("load", "block", "rule", "cell", "what was found")
GUARDS = ("guard", "comparison", "blocks", "median ratio", "looked for", "verdict")
JUDGED: tuple[type[Record], ...] = (ContrastRecord, MatrixRow, CompositionRecord)  # what is said of timed blocks


def blocks_of(report: Report) -> list[BlockRecord]:
    """Every judged block once: several stages may judge the same cells, and then leave the same record."""
    found: dict[tuple[str, str, int], list[BlockRecord]] = {}
    for block in report.of(BlockRecord):
        own = found.setdefault((block.model, block.load, block.block), [])
        if block not in own:
            own.append(block)
    return [block for own in found.values() for block in own]


def judged_part(report: Report, kind: type[Record]) -> list[Markup | None]:
    """Blocks that do not count, guards and conditions: in the first section of those that speak of timed blocks."""
    if kind is not next((one for one in JUDGED if report.of(one)), None):
        return []
    return [invalid_blocks(report), guard_table(report), *conditions(report)]


def invalid_blocks(report: Report) -> Markup | None:
    """Every block that does not count, with the rule and the cell; none is dropped in silence."""
    made = [block for block in blocks_of(report) if not block.valid]
    if not made:
        return None
    rows = [[cell(text) for text in row] for row in fault_rows(made)]
    return table("Blocks that do not count, by rules frozen before the first cell.", FAULTS, rows)


def guard_table(report: Report) -> Markup | None:
    """Guards: looked at, and no gate."""
    rows = [
        [tag("th", row[0], scope="row"), cell(row[1]), *numbers(*row[2:5]), cell(row[5])] for row in guard_rows(report)
    ]
    caption = "Guards: few blocks under another load, described. No gate reads them."
    return table(caption, GUARDS, rows, right=(2, 3, 4)) if rows else None


def conditions(report: Report) -> list[Markup]:
    """What was timed, load by load, guards left out; and under which conditions."""
    guards = {guard.guard for guard in report.of(GuardRecord)}
    every = [made for made in report.of(TimingCell) if made.load not in guards]
    loads: dict[tuple[str, str], list[TimingCell]] = {}
    for made in every:
        if not made.pilot:
            loads.setdefault((made.model, made.load), []).append(made)
    if not loads:
        return []
    told = [load_words(own) for own in loads.values()]
    pilots = sum(made.pilot for made in every)
    told[-1] += f" {counted(pilots, 'pilot cell')} excluded. {condition_words(report)}"
    return [tag("p", text, class_="note") for text in told]


def load_words(cells: Sequence[TimingCell]) -> str:
    """What the cells of one load did."""
    first = cells[0]
    name = "" if first.load == TIMED else f" under {one_line(first.load, 60)}"
    return (
        f"{counted(len(cells), 'cell')} on {one_line(first.model, 60)}{name}: {first.batch} requests of "
        f"{first.context_tokens:,} + {first.output_tokens} tokens, {len(first.started_ns)} repetitions of which "
        f"{first.warmups} warm up."
    )


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
    heat = [state.temperature_c for state in hosts if state.temperature_c is not None]
    said += [f"the processor at {ranged(heat, 0)} °C"] if heat else []
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
    low, high = (f"{round(value, digits) + 0.0:.{digits}f}" for value in (min(values), max(values)))  # no minus zero
    return low if low == high else f"{low} to {high}"
