"""The figures of a report, each a function of records: saturation curves, block ratios, memory.

Every measured point is drawn, in front; curves are solid where they were measured and dashed where they are
not. A ceiling is drawn only where its fit is `usable`. Recipes differ by colour and by marker.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.memory import MemoryPart
from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import ContrastRecord, SaturationRecord
from kassay.kv.accounting import of_cache
from kassay.report.drawing import INK, SETTINGS, SOFT, Drawing, Style, context, drawn, figure
from kassay.report.heat_map import words
from kassay.report.markup import Markup, tag
from kassay.report.words import number, one_line, percent, size, tick, title
from kassay.stats.hill import hill_curve

BEYOND = 4.0  # curves are dashed up to this multiple of the largest batch
JITTER = 0.06  # of a factor in batch: repetitions side by side, in x only
PANEL_PX = (466, 330)
RATIOS_PX = 466
WIDE_RATIOS = 3.0  # largest over smallest ratio beyond which their axis is logarithmic
CURVE_POINTS = 200


def hill_panel(
    context_tokens: int,
    fits: Sequence[SaturationRecord],
    cells: Sequence[SweepCell],
    style_of: dict[str, Style],
) -> Drawing:
    """Decode rate over batch at one context, all recipes of it."""
    with context(SETTINGS):
        made = figure(*PANEL_PX)
        axes = made.subplots()
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        batches = sorted({batch for fit in fits for batch in fit.batches})
        for rank, fit in enumerate(fits):
            hill_curve_of(axes, fit, style_of[fit.recipe])
            own = [cell for cell in cells if (cell.model, cell.recipe) == (fit.model, fit.recipe)]
            hill_points(axes, own, style_of[fit.recipe], rank - (len(fits) - 1) / 2)
        axes.axvline(batches[-1], color=SOFT, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.xaxis.set_major_locator(FixedLocator(batches))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        top = max([axes.get_ylim()[1], *(fit.ceiling_per_s * 1.08 for fit in fits if fit.state == "usable")])
        plain_log_ticks(axes, "y", axes.get_ylim()[0], top)
        for rank, fit in enumerate(fits):
            ceiling_mark(axes, fit, style_of[fit.recipe], batches[-1] * BEYOND * 1.12**rank)
        axes.grid(True, axis="y")
        axes.set_xlabel("batch (active sequences)")
        axes.set_ylabel("decode rate, tokens per second")
        axes.set_title(f"context {context_tokens:,} tokens")
        legend(axes, [fit.recipe for fit in fits], style_of, "upper left")
        label = f"Decode rate over batch at a context of {context_tokens} tokens: " + "; ".join(
            f"{title(fit.recipe)}: {fit.state}, {one_line(fit.statement, 120)}" for fit in fits
        )
        return drawn(f"hill-{context_tokens}", label, made)


def hill_curve_of(axes: Any, fit: SaturationRecord, style: Style) -> None:
    """The fitted curve: solid inside the measured range, dashed outside."""
    low, high = min(fit.batches), max(fit.batches)
    for start, end, line in ((low, high, "-"), (high, high * BEYOND, (0, (4, 3)))):
        x = np.geomspace(start, end, CURVE_POINTS)
        y = hill_curve(x, ceiling=fit.ceiling_per_s, half_batch=fit.half_batch, gamma=fit.gamma)
        axes.plot(x, y, color=style.colour, linewidth=1.4, linestyle=line, zorder=2)


def hill_points(axes: Any, cells: Sequence[SweepCell], style: Style, rank: float) -> None:
    """Every repetition as a point, warm-ups small and open."""
    for cell in cells:
        rates = [cell.rate_per_s(elapsed_ns) for elapsed_ns in cell.elapsed_ns]
        middle = (len(rates) - 1) / 2
        x = [cell.batch * 2 ** (1.2 * JITTER * rank + JITTER * (index - middle)) for index in range(len(rates))]
        points = style.points() | {"linestyle": "none", "zorder": 4, "markeredgewidth": 1.0}
        axes.plot(x[cell.warmups :], rates[cell.warmups :], markersize=3.8, **points)
        points |= {"markerfacecolor": "none", "alpha": 0.5}
        axes.plot(x[: cell.warmups], rates[: cell.warmups], markersize=3.2, **points)


def ceiling_mark(axes: Any, fit: SaturationRecord, style: Style, x: float) -> None:
    """The ceiling's interval at the right edge, an arrow where it leaves the frame; a line only if it is usable."""
    if fit.state == "usable":
        axes.axhline(fit.ceiling_per_s, color=style.colour, linewidth=0.9, linestyle=(0, (6, 2, 1, 2)), zorder=1)
    if fit.ceiling_lower_per_s is None:
        return
    bottom, top = axes.get_ylim()
    lower = min(max(fit.ceiling_lower_per_s, bottom), top)
    if fit.ceiling_upper_per_s is not None and fit.ceiling_upper_per_s <= top:
        upper = fit.ceiling_upper_per_s
        axes.plot([x, x], [lower, upper], color=style.colour, linewidth=1.2, marker="_", markersize=7, zorder=3)
    else:
        arrow = {"arrowstyle": "->", "color": style.colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, top), (x, min(lower, top * 0.93)), arrowprops=arrow)


def plain_log_ticks(axes: Any, name: str, low: float, high: float) -> None:
    """Round ticks of a log axis (`x` or `y`) as plain numbers, more of them if it spans less than a decade."""
    steps = (1, 2, 5) if high > 8 * low else (1, 1.5, 2, 3, 4, 5, 7)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    axis = {"x": axes.xaxis, "y": axes.yaxis}[name]
    axis.set_major_locator(FixedLocator([step * 10.0**decade for decade in decades for step in steps]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())
    axes.set(**{f"{name}lim": (low, high)})


def legend(axes: Any, recipes: Sequence[str], style_of: dict[str, Style], place: str) -> None:
    """Colour and marker of each recipe."""
    for recipe in recipes:
        axes.plot([], [], linewidth=1.4, markersize=5, label=tick(title(recipe)), **style_of[recipe].points())
    axes.legend(loc=place, fontsize=10.5, handlelength=2.2, borderaxespad=0.2)


def ratio_figure(contrasts: Sequence[ContrastRecord], style_of: dict[str, Style]) -> Drawing:
    """Within-block ratios of every comparison: a dot per block, median, interval, 1 and the screen."""
    measured = [record for record in contrasts if record.ratios]
    with context(SETTINGS):
        made = figure(RATIOS_PX, 74 + 78 * max(1, len(measured)))
        axes = made.subplots()
        for row, record in enumerate(measured):
            ratio_row(axes, row, record, style_of[record.candidate])
        ratio_axis(axes, measured)
        label = "Within-block ratios: " + "; ".join(
            f"{title(record.candidate)}: median {number(record.median)}, {record.verdict}" for record in measured
        )
        return drawn("ratios", label, made)


def ratio_axis(axes: Any, measured: Sequence[ContrastRecord]) -> None:
    """Lines at 1 and at the screen; a logarithmic axis where a disturbed block would squeeze all others."""
    every = [ratio for record in measured for ratio in record.ratios or []]
    unit = ""
    if max(every) > WIDE_RATIOS * min(every):
        axes.set_xscale("log")
        plain_log_ticks(axes, "x", *axes.get_xlim())
        unit = ", logarithmic"
    axes.axvline(1.0, color=INK, linewidth=1.0, zorder=1)
    for screen in sorted({record.screen_ratio for record in measured}):
        axes.axvline(screen, color=SOFT, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        place = {"xycoords": ("data", "axes fraction"), "fontsize": 10.5}
        axes.annotate(f" screen {screen:g}", (screen, 1.0), color=SOFT, **place)
    axes.annotate("equal ", (1.0, 1.0), ha="right", **place)
    axes.set_yticks(range(len(measured)), [tick(title(record.candidate)) for record in measured])
    axes.set_ylim(len(measured) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.set_xlabel(f"rate / rate of the control in a block (right of 1: faster{unit})")


def ratio_row(axes: Any, row: int, record: ContrastRecord, style: Style) -> None:
    """One comparison: planned blocks from top to bottom, a gap where one does not count, then the median's interval."""
    heights = row - 0.36 + 0.5 * (np.array(record.valid_blocks, dtype=float) + 0.5) / max(1, record.blocks)
    axes.plot(record.ratios or [], heights, linestyle="none", markersize=5, zorder=4, **style.points())
    if record.lower is not None and record.upper is not None:
        axes.plot(
            [record.lower, record.upper],
            [row + 0.28] * 2,
            color=style.colour,
            linewidth=2,
            solid_capstyle="butt",
        )
    if record.median is not None:
        axes.plot([record.median], [row + 0.28], marker="|", markersize=13, markeredgewidth=2.4, color=style.colour)


GROUPS = (("keys", ("keys",)), ("values", ("values",)), ("scales", ("key_scales", "value_scales")))
NAME_PX, SPAN_PX, TOLD_PX = 136, 218, 110
STEP_PX, TOTAL_PX, REST_PX = 14, 19, 9  # heights: of a step, of a total, of the room after it
LEAST_STEP = 1e-3  # of the control's bytes; what is less is in the table and not drawn


def memory_figure(parts: Sequence[MemoryPart], control: str) -> Drawing:
    """A waterfall from the control's cache to each recipe's: what keys, values and scales take off or add."""
    held: dict[str, dict[str, int]] = {}
    for part in parts:
        if of_cache(part.part):
            own = held.setdefault(part.recipe, {})
            own[part.part] = own.get(part.part, 0) + part.payload_bytes
    totals = {recipe: sum(own.values()) for recipe, own in held.items()}
    most = max([1, *totals.values()])
    made: list[Markup] = []
    y = 4
    for recipe in sorted(held, key=lambda name: name != control):
        if recipe != control and control in held:
            steps, y = memory_steps(y, held[control], held[recipe], most)
            made += steps
        share = f", {percent(totals[recipe] / totals[control], 1)}" if totals.get(control) else ""
        made += memory_bar(y, 0, totals[recipe], most, f"{size(totals[recipe])}{share}", title(recipe))
        y += TOTAL_PX + REST_PX
    width = NAME_PX + SPAN_PX + TOLD_PX
    label = "Cache payload: " + "; ".join(f"{title(recipe)} {size(total)}" for recipe, total in totals.items())
    svg = tag("svg", made, viewBox=f"0 0 {width} {y}", width=width, style="font: 11px var(--sans)", role="img")
    return Drawing(name="memory-payload", label=label, svg=svg, width_px=width)


def memory_steps(y: int, base: dict[str, int], own: dict[str, int], most: int) -> tuple[list[Markup], int]:
    """The bars between the control's bytes and a recipe's, one for each group that differs; and where they end."""
    at = whole = sum(base.values())
    made: list[Markup] = []
    for name, members in GROUPS:
        change = sum(own.get(part, 0) - base.get(part, 0) for part in members)
        if abs(change) >= LEAST_STEP * whole:
            made += memory_bar(y, at, at + change, most, f"{100 * change / whole:+.1f} %".replace("-", "−"), name)
            y += STEP_PX
        at += change
    return made, y


def memory_bar(y: int, start: int, end: int, most: int, told: str, name: str) -> list[Markup]:
    """A bar between two numbers of bytes: a total from 0, solid; a saving or an addition outlined, with its sign."""
    left, right = (NAME_PX + SPAN_PX * value / most for value in sorted((start, end)))
    total = start == 0
    height = (TOTAL_PX if total else STEP_PX) - 4
    colour = "var(--series-1)" if total else "var(--good)" if end < start else "var(--bad)"
    outline = {} if total else {"stroke": colour, "stroke_dasharray": "3 2"}
    bar = tag(
        "rect",
        x=f"{left:.2f}",
        y=y,
        width=f"{max(1.0, right - left):.2f}",
        height=height,
        fill=colour,
        fill_opacity=1.0 if total else 0.18,
        **outline,
    )
    weight, foot = ("600" if total else "400"), y + height - (4 if total else 1)
    return [
        bar,
        words(NAME_PX - 8, foot, tick(name), anchor="end", weight=weight, size=11 if total else 10),
        words(round(right) + 6, foot, told, anchor="start", size=11 if total else 10),
    ]
