"""The figure of a quality gate: estimate and one-sided bounds of every recipe on every model, against the margin.

The axis is linear up to the margin, where gates are decided, and logarithmic beyond it, where harm lies.
"""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.verdict import GateRecord
from kassay.report.certified import amount, limit_of, same_control
from kassay.report.drawing import INK, SETTINGS, Drawing, Style, context, drawn, figure
from kassay.report.words import one_line, tick, title

BOUNDS_PX = 305  # three endpoints side by side
LEAST_MARGIN = 1e-3  # the axis needs a linear part, also where a net change may be no loss at all
DECADE_ROOM = 3.0  # factor between the margin's tick and the next one, so that their labels do not meet


def bound_panel(name: str, gates: Sequence[GateRecord], style_of: dict[str, Style]) -> Drawing:
    """Estimate and one-sided bounds of one gate, recipe by model, with the margin; linear up to it, then log."""
    with context(SETTINGS):
        models = list(dict.fromkeys(gate.model for gate in gates))
        made = figure(BOUNDS_PX, 84 + 17 * len(gates) + 26 * len(models))
        axes = made.subplots()
        margin = max(abs(gates[0].margin), LEAST_MARGIN)
        ticks, labels, row = [], [], 0.0
        for model in models:
            axes.annotate(
                tick(one_line(model)),
                (0, row),
                xycoords=("axes fraction", "data"),
                va="center",
                weight="bold",
                xytext=(4, 0),
                textcoords="offset points",
            )
            row += 1
            for gate in (gate for gate in gates if gate.model == model):
                bound_row(axes, row, gate, style_of[gate.candidate])
                ticks.append(row)
                labels.append(tick(name_of(gate, gates)))
                row += 1
            row += 0.5
        axes.set_xscale("symlog", linthresh=margin, linscale=1.2, subs=[])
        for value in sorted({gate.margin for gate in gates}):
            axes.axvline(value, color=INK, linewidth=1.1, linestyle=(0, (4, 2)), zorder=1)
        bound_axis(axes, gates, margin)
        axes.set_yticks(ticks, labels, fontsize=10.5)
        axes.set_ylim(row - 0.3, -0.8)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(tick(one_line(gates[0].statistic), 40))
        axes.set_title(tick(one_line(name)))
        label = f"{gates[0].statistic} on {gates[0].endpoint}, margin {limit_of(gates[0])}: " + "; ".join(
            f"{name_of(gate, gates)} on {gate.model} {reached(gate)}: {gate.verdict}" for gate in gates
        )
        return drawn(f"bounds-{name}", label, made)


def name_of(gate: GateRecord, gates: Sequence[GateRecord]) -> str:
    """The candidate, and its control where the panel has several."""
    return title(gate.candidate) if same_control(gates) else f"{title(gate.candidate)} / {one_line(gate.control, 60)}"


def reached(gate: GateRecord) -> str:
    """The deciding bound in words."""
    return (
        f"at least {amount(gate, gate.lower, 2)}"
        if gate.decides == "lower"
        else f"at most {amount(gate, gate.upper, 2)}"
    )


def bound_row(axes: Any, row: float, gate: GateRecord, style: Style) -> None:
    """One gate: bounds as a line with ends, estimate as the recipe's marker, its verdict at the right edge."""
    axes.plot(
        [gate.lower, gate.upper],
        [row, row],
        color=style.colour,
        linewidth=1.5,
        marker="|",
        markersize=6,
        zorder=3,
    )
    axes.plot([gate.estimate], [row], markersize=5, zorder=4, **style.points())
    axes.annotate(
        tick(one_line(gate.verdict), 16), (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=10
    )


def bound_axis(axes: Any, gates: Sequence[GateRecord], margin: float) -> None:
    """Ticks at 0, the margin, and round numbers beyond it as far as they are needed."""
    low, high = min(gate.lower for gate in gates), max(max(gate.upper for gate in gates), margin)
    below = gates[0].decides == "lower"  # the margin lies on the left, and must be seen there
    low = min(low, -margin) if below else low
    negative = [-value for value in reversed(ticks_between(margin, -low))] if low < 0 else []
    negative += [-margin] if low < -margin / 2 else []
    decades = ticks_between(margin, high)
    above = [] if below and high <= margin else [margin]
    axes.xaxis.set_major_locator(FixedLocator([*negative, 0.0, *above, *decades]))
    nats = "difference" in gates[0].statistic
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if nats else f"{100 * value:g} %"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(True, axis="x")
    axes.set_xlim(min(low * 1.3, -margin / 6), high * 1.5)


def ticks_between(margin: float, end: float) -> list[float]:
    """Decades clearly beyond the margin up to about `end`; where there is none, the largest round number."""
    inside = [m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5) if margin * DECADE_ROOM < m * 10.0**e <= end * 1.4]
    decades = [value for value in inside if math.log10(value).is_integer()]
    return decades or inside[-1:]
