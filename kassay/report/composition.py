"""The section on composition: whether two accelerations multiply, drawn and as a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kassay.kinds.composition import CompositionRecord
from kassay.kinds.timing import TIMED
from kassay.report.composition_words import load_name
from kassay.report.conditions import judged_part
from kassay.report.drawing import INK, SERIES, SETTINGS, Drawing, context, drawn, figure
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent, word
from kassay.report.sections import drawn as placed
from kassay.report.words import ABSENT, fixed, number, one_line, tick, title

WIDTH_PX = 560
COMPOSED = [
    "load",
    "S quantized",
    "S speculative",
    "S combined",
    "rho",
    "interval",
    "below / above 1",
    "blocks",
    "class",
]
WIDE = 3.0  # largest over smallest rho beyond which the axis is logarithmic

CAPTION = (
    "A dot is rho of one block, blocks from top to bottom; bar and tick: exact bootstrap interval and median. Left of "
    "1 both together give less than the product of each alone, right of it more. A class is stated where the whole "
    "interval lies on one side; elsewhere the blocks do not tell. Descriptive, and of these loads only."
)


def composition_section(report: Report) -> Markup:
    """Every load with its speed-ups, its rho and its class."""
    made = report.of(CompositionRecord)
    anchor, heading = "composition", "Composition"
    if not made:
        return section(anchor, heading, absent(report, "composition", "composition"))
    counting = [record for record in made if record.rhos]
    picture = placed(composition_figure(counting), CAPTION, block_table(counting)) if counting else None
    return section(anchor, heading, composition_table(made), picture, judged_part(report, CompositionRecord))


def short_name(record: CompositionRecord) -> str:
    """What was served, as long as an axis has room."""
    return one_line(record.load, 60) if record.load != TIMED else load_name(record)


def composition_figure(made: Sequence[CompositionRecord]) -> Drawing:
    """rho of every block of every load, beside 1."""
    with context(SETTINGS):
        shown = figure(WIDTH_PX, 74 + 78 * len(made))
        axes = shown.subplots()
        every = [rho for record in made for rho in record.rhos]
        if max(every) > WIDE * min(every):
            axes.set_xscale("log")
        for row, record in enumerate(made):
            rho_row(axes, row, record)
        axes.axvline(1.0, color=INK, linewidth=1.0, zorder=1)
        axes.set_yticks(range(len(made)), [tick(short_name(record)) for record in made])
        axes.set_ylim(len(made) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(True, axis="x")
        axes.set_xlabel("rho = S combined / (S quantized · S speculative), within a block")
        label = "Composition: " + "; ".join(
            f"{load_name(record)}: rho {number(record.median)}, {record.interval_class}" for record in made
        )
        return drawn("composition", label, shown)


def rho_row(axes: Any, row: int, record: CompositionRecord) -> None:
    """One load: blocks in their order from top to bottom, the interval of the median below them."""
    heights = row - 0.36 + 0.5 * (np.arange(len(record.rhos)) + 0.5) / max(1, len(record.rhos))
    axes.plot(record.rhos, heights, linestyle="none", marker="o", markersize=5, color=SERIES[1], zorder=4)
    ends = {"color": SERIES[1], "linewidth": 2, "solid_capstyle": "butt"}
    axes.plot([record.lower, record.upper], [row + 0.28] * 2, **ends)
    axes.plot([record.median], [row + 0.28], marker="|", markersize=13, markeredgewidth=2.4, color=SERIES[1])


def composition_table(made: Sequence[CompositionRecord]) -> Markup:
    """One row a load, invalidated ones with their reason."""
    rows = []
    for record in made:
        load, *figures, answer = composition_row(record)
        why = tag("span", record.reason, class_="sub") if record.reason else None
        rows.append([tag("th", load, scope="row"), *numbers(*figures), cell([word(answer), why], kind="free")])
    first = made[0]
    arms = ", ".join(title(arm) for arm in (first.quantized, first.speculative, first.combined))
    caption = f"Speed-ups over {title(first.plain)} of {arms} (medians over blocks), and rho, the median within blocks."
    header = [f"{percent_of(first)} interval" if name == "interval" else name for name in COMPOSED]
    return table(caption, header, rows, right=range(1, 8))


def composition_row(record: CompositionRecord) -> list[str]:
    """One load as texts, in the order of COMPOSED."""
    counted = bool(record.rhos)
    return [
        load_name(record),
        *(number(middle(speedups), 4) if counted else ABSENT for speedups in speedups_of(record)),
        number(record.median, 4) if counted else ABSENT,
        f"{fixed(record.lower, 4)} to {fixed(record.upper, 4)}" if counted else ABSENT,
        f"{record.below} / {record.above}" if counted else ABSENT,
        f"{len(record.valid_blocks)} of {record.blocks}",
        record.interval_class,
    ]


def percent_of(record: CompositionRecord) -> str:
    """The interval's level."""
    return f"{100 * (1 - record.alpha):g} %"


def speedups_of(record: CompositionRecord) -> tuple[list[float], ...]:
    """Speed-ups of the three arms, in the order of the columns."""
    return record.quantized_speedups, record.speculative_speedups, record.combined_speedups


def middle(values: Sequence[float]) -> float:
    """The median of values that a record holds."""
    return float(np.median(values))


def block_table(made: Sequence[CompositionRecord]) -> Markup:
    """rho of every block that counts."""
    rows = [
        [tag("th", load_name(record), scope="row"), cell(", ".join(fixed(rho, 4) for rho in record.rhos))]
        for record in made
    ]
    return table("rho in each block.", ["load", "rho, in block order"], rows, right=())
