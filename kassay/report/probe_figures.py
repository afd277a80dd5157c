"""The figures of the probes: the screen's ratios, loss changes by arm, single layers, and what pre-bias repairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.probe import ProbeFinding
from kassay.report.drawing import INK, SETTINGS, SOFT, Drawing, Style, context, drawn, figure
from kassay.report.words import number, percent, tick, title
from kassay.stats.probes import CATASTROPHIC, MATERIAL, TAU

WIDE_PX, ROW_PX, FRAME_PX = 600, 24, 118
ROW_SHARE = 0.5  # of a row, over which the models of an arm are spread
LEAST = 1e-4  # of a loss change: the axis is linear within, logarithmic beyond
DECADES = (0.001, 0.01, 0.1, 1.0, 10.0)

Values = dict[tuple[str, str], float]  # model, arm -> number


def screen_figure(ratios: dict[str, list[float]], means: dict[str, float], style_of: dict[str, Style]) -> Drawing:
    """Ratio of logit errors of every prompt, and the mean of each model beside the threshold."""
    with context(SETTINGS):
        made = figure(WIDE_PX, FRAME_PX - 26 + 40 * len(ratios))
        axes = made.subplots()
        for row, (model, found) in enumerate(ratios.items()):
            axes.plot(found, [row] * len(found), linestyle="none", markersize=6, zorder=3, **style_of[model].points())
            axes.plot([means[model]] * 2, [row - 0.3, row + 0.3], color=style_of[model].colour, linewidth=2.4)
        axes.axvline(TAU, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
        axes.annotate(f" flagged above {TAU:g}", (TAU, 1.0), xycoords=("data", "axes fraction"), fontsize=10.5)
        rows_of(axes, list(ratios))
        axes.set_xlim(0, max([TAU * 1.3, *(ratio * 1.1 for found in ratios.values() for ratio in found)]))
        axes.set_xlabel("logit error with INT6 keys / with INT8 keys (bar: mean)")
        said = "; ".join(f"{model}: mean {number(mean)}" for model, mean in means.items())
        return drawn("screen", f"Sensitivity screen: {said}", made)


def change_figure(name: str, arms: Sequence[str], changes: Values, style_of: dict[str, Style]) -> Drawing:
    """Relative change of the prediction loss of every arm and model, with the limits of the classes."""
    with context(SETTINGS):
        made = figure(WIDE_PX, FRAME_PX + ROW_PX * len(arms))
        axes = made.subplots()
        axes.set_xscale("symlog", linthresh=LEAST, linscale=0.6)
        dots(axes, arms, changes, style_of)
        limits = ((MATERIAL["loss"], "material"), (CATASTROPHIC["loss"], "catastrophic"))
        for limit, word in limits:
            axes.axvline(limit, color=SOFT, linewidth=1.0, linestyle=(0, (4, 2)))
            place: Any = {"xycoords": ("data", "axes fraction"), "fontsize": 10, "color": SOFT}
            axes.annotate(f" {word}", (limit, 1.0), **place)
        axes.axvline(0, color=INK, linewidth=1.0)
        rows_of(axes, [tick(title(arm)) for arm in arms])
        largest = max([1.0, *changes.values()])
        axes.set_xlim(-10 * LEAST, largest * 3)
        ticks = [-LEAST * 10, 0.0, *(decade for decade in DECADES if decade <= largest * 3)]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+g} %" if value else "0"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("change of the prediction loss to the native cache")
        above(axes, len(style_of))
        worst = max(changes, key=lambda key: changes[key])
        label = f"Loss change by arm; the largest is {percent(changes[worst])} of {title(worst[1])} on {worst[0]}"
        return drawn(name, label, made)


def layer_figure(
    costs: dict[str, list[float]], recoveries: dict[str, list[float]], styles: dict[str, Style]
) -> Drawing:
    """What each layer's demotion costs, and what its repair takes back, over the layers."""
    with context(SETTINGS):
        made = figure(WIDE_PX, 300)
        left, right = made.subplots(1, 2)
        for axes, found, text in (
            (left, costs, "loss change by demoting one layer"),
            (right, recoveries, "recovery by repairing one layer"),
        ):
            for model, values in found.items():
                shown = [np.nan if value is None else value for value in values]
                axes.plot(
                    range(len(shown)), shown, linewidth=1.2, markersize=5.5, label=model, **styles[model].points()
                )
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_title(text, fontsize=11)
            axes.set_xlabel("attention layer")
            layers = max((len(values) for values in found.values()), default=1)
            axes.xaxis.set_major_locator(FixedLocator(range(0, layers, max(1, layers // 9))))
            axes.grid(True, axis="y")
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+g} %" if value else "0"))
        left.legend(loc="best", fontsize=10.5)
        said = "; ".join(
            f"{model}: layer {int(np.argmax(found))} costs {percent(max(found))}" for model, found in costs.items()
        )
        return drawn("layers", f"Single layers: {said}", made)


def repair_figure(arms: Sequence[str], accuracy: Values, style_of: dict[str, Style]) -> Drawing:
    """Right answers of every arm and model."""
    with context(SETTINGS):
        made = figure(WIDE_PX, FRAME_PX + ROW_PX * len(arms))
        axes = made.subplots()
        dots(axes, arms, accuracy, style_of)
        rows_of(axes, [tick(title(arm)) for arm in arms])
        axes.set_xlim(-0.02, 1.04)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.set_xlabel("retrieval questions answered")
        above(axes, len(style_of))
        said = "; ".join(f"{title(arm)} on {model}: {percent(share)}" for (model, arm), share in accuracy.items())
        return drawn("prebias", f"Retrieval by arm: {said}", made)


def dots(axes: Any, arms: Sequence[str], found: Values, style_of: dict[str, Style]) -> None:
    """A row for each arm, and in it a dot for each model, one above the other."""
    for rank, (model, style) in enumerate(style_of.items()):
        rows = [row for row, arm in enumerate(arms) if (model, arm) in found]
        heights = [row + ROW_SHARE * (rank - (len(style_of) - 1) / 2) / len(style_of) for row in rows]
        values = [found[model, arms[row]] for row in rows]
        axes.plot(values, heights, linestyle="none", markersize=5.5, zorder=3, label=model, **style.points())


def above(axes: Any, models: int) -> None:
    """The legend above the frame, where no dot can be."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.04), ncols=models, fontsize=10.5, borderaxespad=0.2)


def rows_of(axes: Any, names: Sequence[str]) -> None:
    """Names as rows from top to bottom, with room at both ends."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")


def signed(value: float | None) -> str:
    """A change in per cent, with its sign."""
    return percent(value) if value is None or not value > 0 else f"+{percent(value)}"


def values_of(found: Sequence[ProbeFinding], probe: str, quantity: str) -> Values:
    """The numbers of one probe by model and arm, those that could be computed."""
    return {
        (one.model, one.arm): one.value
        for one in found
        if (one.probe, one.quantity) == (probe, quantity) and one.value is not None
    }
