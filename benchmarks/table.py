"""Rows as Markdown for docs/findings: a table a shape, start-up, and the bars.

A cell is the median of the rounds, with the smallest and largest where there are several. no-op: nothing to do, just
after the cold run; second: once more; composed anew: its workflow file was touched; leaf: one leaf was appended to.
"""

import os
import platform
from collections.abc import Callable, Iterable, Iterator
from statistics import median

from benchmarks.bar import BARS, MIB, cpu_over_floor_ms, of, over_floor_ms, verdict
from benchmarks.row import NOT_INSTALLED, START, Row
from benchmarks.shape import WORKERS

NOTHING = "—"
Column = tuple[str, Callable[[list[Row], str], list[float]], int]  # heading, values, digits


def phase(name: str, value: Callable[[Row], float]) -> Callable[[list[Row], str], list[float]]:
    """A column of one phase."""
    return lambda rows, shape: [value(row) for row in of(rows, shape, name)]


COLUMNS: tuple[Column, ...] = (
    ("cold s", phase("cold", lambda row: row.wall_s), 2),
    ("over the spawn, ms a stage", over_floor_ms, 2),
    ("x the spawn", phase("cold", lambda row: row.wall_s / row.floor_wall_s), 1),
    ("CPU ms a stage", phase("cold", lambda row: row.cpu_s / row.stages * 1e3), 2),
    ("CPU over the spawn", cpu_over_floor_ms, 2),
    ("no-op s", phase("noop", lambda row: row.wall_s), 3),
    ("second s", phase("again", lambda row: row.wall_s), 3),
    ("composed anew s", phase("fresh", lambda row: row.wall_s), 3),
    ("plan s", phase("plan", lambda row: row.wall_s), 3),
    ("leaf s", phase("leaf", lambda row: row.wall_s), 3),
    ("re-ran", phase("leaf", lambda row: row.ran), 0),
    ("driver MiB", phase("cold", lambda row: row.driver_bytes / MIB), 0),
    ("largest MiB", phase("cold", lambda row: row.largest_bytes / MIB), 0),
    ("rounds", lambda rows, shape: [float(len(of(rows, shape, "cold")))], 0),
)


def cell(values: list[float], digits: int) -> str:
    """Median, and the range in parentheses where it shows."""
    if not values:
        return NOTHING
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def markdown(rows: list[Row]) -> Iterator[str]:
    """All tables, line by line."""
    tools = list(dict.fromkeys(row.tool for row in rows))
    by_tool = {tool: [row for row in rows if row.tool == tool] for tool in tools}
    yield from heading(rows, by_tool)
    for shape in dict.fromkeys(row.shape for row in rows if row.shape != START):
        yield from shape_table(shape, by_tool)
    yield from bars_table(by_tool)


def heading(rows: list[Row], by_tool: dict[str, list[Row]]) -> Iterator[str]:
    """Host, versions, load."""
    versions = ", ".join(f"{tool} {of_tool[0].version or NOT_INSTALLED}" for tool, of_tool in by_tool.items())
    loads = [row.load for row in rows if not row.fault] or [0.0]
    files = [row.file_ms for row in rows if row.phase == "cold"]
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    yield f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.release()},"
    yield f"Python {platform.python_version()}; {versions}; {WORKERS} workers;"
    yield f"load {min(loads):.1f} to {max(loads):.1f}; making a file took {cell(files, 3)} ms."
    yield "Median (smallest–largest) of the rounds; the order of the tools turns with the round; the bare spawn is"
    yield "measured just before and after each cold run."


def shape_table(shape: str, by_tool: dict[str, list[Row]]) -> Iterator[str]:
    """One shape, a line a tool."""
    bare = [row.floor_wall_s / row.stages * 1e3 for rows in by_tool.values() for row in of(rows, shape, "cold")]
    yield ""
    yield f"**{shape}** (bare spawn: {cell(bare, 2)} ms a stage)"
    yield ""
    yield from table_head(["tool", *(heading for heading, _, _ in COLUMNS)])
    for tool, rows in by_tool.items():
        if rows[0].fault == NOT_INSTALLED:
            yield line([tool, NOT_INSTALLED, *[""] * (len(COLUMNS) - 1)])
            continue
        yield line([tool, *(cell(values(rows, shape), digits) for _, values, digits in COLUMNS)])
    for rows in by_tool.values():
        yield from (f"\n{row.tool}, {row.phase}, round {row.round}: **failed**: {row.fault}" for row in rows
                    if row.shape == shape and row.fault)  # fmt: skip


def bars_table(by_tool: dict[str, list[Row]]) -> Iterator[str]:
    """Every bar, what kassay has and whether it is met, and the same of the others."""
    others = [tool for tool in by_tool if tool != "kassay"]
    mine = by_tool.get("kassay", [])
    yield ""
    yield "**Bars**"
    yield ""
    yield from table_head(["quantity", "bar", "kassay", "", *others])
    for bar in BARS:
        said = [f"{bar.name}", f"≤ {bar.limit} {bar.unit}", cell(bar.values(mine), 3), verdict(bar, mine)]
        yield line([*said, *(cell(bar.values(by_tool[tool]), 3) for tool in others)])


def table_head(words: list[str]) -> Iterator[str]:
    """Heading and rule: text left, numbers right."""
    yield line(words)
    yield line(["---", *["--:"] * (len(words) - 1)])


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"
