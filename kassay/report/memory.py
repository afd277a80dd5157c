"""The section of the page on memory: parts of every cache, gates, windows of samples, the allocator's own numbers."""

from kassay.kinds.memory import AllocatorRecord, MemoryGate, MemoryPart, MemoryWindow
from kassay.report import figures
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.model import NOT_RUN
from kassay.report.sections import absent, control_of, drawn, word
from kassay.report.words import ABSENT, counted, percent, size, title


def memory_section(report: Report) -> Markup:
    """Bytes of every part of every recipe's cache."""
    parts = report.of(MemoryPart)
    anchor, heading = "memory", "Memory"
    if not parts:
        return section(anchor, heading, absent(report, "memory", "cache sizes"))
    first = parts[0]
    caption = (
        f"Payload of a full cache on {first.model}: {first.batch} sequences of {first.tokens:,} tokens; per cent of "
        "the control at the right. Storages are counted once; weights are apart."
    )
    picture = drawn(figures.memory_figure(parts, control_of(report)), caption, part_table(report))
    missing = [name for name in report.run.arms if name not in {part.recipe for part in parts}]
    lacking = [tag("p", title(str(name)), ": ", word(NOT_RUN)) for name in missing]
    return section(anchor, heading, picture, lacking, gate_table(report), window_table(report), allocator_table(report))


def part_table(report: Report) -> Markup:
    """Payload and backing of every part."""
    rows = [
        [
            tag("th", title(part.recipe), scope="row"),
            cell(part.part.replace("_", " ")),
            *numbers(f"{part.payload_bytes:,}", f"{part.backing_bytes:,}"),
        ]
        for part in report.of(MemoryPart)
    ]
    return table(
        "Bytes of every part: what the tokens need, and what stands behind it.",
        ["recipe", "part", "payload bytes", "backing bytes"],
        rows,
        right=(2, 3),
    )


def gate_table(report: Report) -> Markup | None:
    """Every gate: the studies at equal slots and at equal bytes apart, and ceilings."""
    made = report.of(MemoryGate)
    if not made:
        return None
    rows = [
        [
            cell(gate.gate),
            tag("th", title(gate.recipe) if gate.recipe else "all", scope="row"),
            *numbers(ABSENT if gate.slots is None else f"{gate.slots:,}"),
            *numbers(ABSENT if gate.observed is None else f"{gate.observed:,}", f"{gate.limit:,}"),
            cell([word(gate.verdict), tag("span", gate.reason, class_="sub")], kind="free"),
        ]
        for gate in made
    ]
    caption = (
        "Gates of memory. Equal slots (of the same requests, or of the study's blocks) and equal bytes are studies "
        "apart: a saving at the same slots is no capacity at the same bytes, and neither is the device's."
    )
    return table(caption, ["gate", "recipe", "slots", "observed", "limit", "verdict"], rows, right=(2, 3, 4))


def window_table(report: Report) -> Markup | None:
    """Every window of samples: its largest sample, its gap, and what sampling cost."""
    made = report.of(MemoryWindow)
    if not made:
        return None
    rows = [window_row(window) for window in made]
    period_ns, longest_ns = made[0].period_ns, made[0].longest_gap_ns
    bound = (
        "no bound is set" if longest_ns is None else f"a window with more than {longest_ns / 1e6:g} ms is no evidence"
    )
    caption = (
        f"{counted(sum(window.answered for window in made), 'sample')} of memory in use, started every "
        f"{period_ns / 1e6:g} ms by processes of their own. The largest sample is no continuous maximum. The gap runs "
        f"from the start of one answered query to the end of the next; {bound}."
    )
    header = ["recipe", "phase", "source", "samples", "largest sample", "gap (ms)", "sampler (of a core)", "evidence"]
    return table(caption, header, rows, right=(3, 4, 5, 6))


def window_row(window: MemoryWindow) -> list[Markup]:
    """One window."""
    largest = ABSENT if window.largest_bytes is None else size(window.largest_bytes)
    gap = ABSENT if window.gap_ns is None else f"{window.gap_ns / 1e6:.1f}"
    said = "yes" if window.valid else [word("no"), tag("span", window.fault, class_="sub")]
    return [
        tag("th", title(window.recipe), scope="row"),
        cell(window.phase),
        cell(f"{window.source}, {window.device}"),
        *numbers(f"{window.answered} of {window.queries}", largest, gap),
        *numbers(percent(window.sampler_cpu_ns / max(1, window.sampler_wall_ns), 2)),
        cell(said),
    ]


def allocator_table(report: Report) -> Markup | None:
    """The allocator's own numbers, or why there are none."""
    made = report.of(AllocatorRecord)
    if not made:
        return None
    if reasons := sorted({record.absent for record in made if record.absent}):
        return tag("p", f"Allocator and graph pools: {'; '.join(reasons)}.", class_="note")
    names = ("allocated_peak", "reserved_peak", "pool_active", "pool_inactive", "graph_active", "graph_inactive")
    rows = [
        [
            tag("th", title(record.recipe), scope="row"),
            cell(record.phase),
            *numbers(*(size(getattr(record, f"{name}_bytes")) for name in names)),
        ]
        for record in made
    ]
    caption = "torch's allocator: it contains the parts above, and is never added to them."
    header = ["recipe", "phase", *(name.replace("_", " ") for name in names)]
    return table(caption, header, rows, right=range(2, 8))
