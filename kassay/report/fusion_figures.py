"""The figures of fused INT4: cells of a speed-up against the batch, and against the quantity that its verdict is about.

The curve is the fit of the verdict. Where its ceiling is a share of each layout's byte limit, the right panel shows
that share, since there is no one curve of the speed-up itself. It is broken unless it may be read as a law; the caption
says why.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.fusion import FusionCell, FusionFit, FusionVerdict
from kassay.report.drawing import FILLED, HOLLOW, INK, SERIES, SETTINGS, Drawing, Style, context, drawn, figure
from kassay.report.evidence import Report
from kassay.report.figures import plain_log_ticks
from kassay.report.fusion_words import best_fit, pair_of
from kassay.report.markup import Markup, tag
from kassay.report.sections import drawn as placed
from kassay.report.words import clean, counted, listed, number, percent
from kassay.stats.explanations import BATCH, BYTE_LIMIT, COVARIATES, RatioPoint
from kassay.stats.hill import CONVERGED, hill_curve
from kassay.stats.saturation import LARGEST_MISFIT

DRAWN = (("int4 each head", "torch repeat"), ("int4", "torch repeat"), ("int4 split", "grouped split"))
WIDE_PX, HIGH_PX = 640, 330
MOST_TICKS = 6
CURVE_POINTS = 80


def fusion_pictures(report: Report) -> list[Markup]:
    """A note on how to read them, and a figure each of three speed-ups; nothing of a pair without cells."""
    verdicts = report.of(FusionVerdict)
    made = []
    for one in verdicts:
        points = points_of(report, one) if (one.candidate, one.baseline) in DRAWN else []
        if points:
            fit = best_fit(report, one)
            made.append(placed(fusion_figure(points, one, fit), caption(points, one, fit), None))
    told = (
        f"{len(made)} of {counted(len(verdicts), 'speed-up')} drawn. A dot is a cell; colour and marker tell the head "
        "layout (query heads/KV heads). At the line of 1 both sides are equally fast, or the byte limit is met."
    )
    return [tag("p", told, class_="note"), *made] if made else []


def points_of(report: Report, verdict: FusionVerdict) -> list[RatioPoint]:
    """The cells of a pair, from their raw rounds."""
    arms: dict[str, dict[tuple[int, int, int, int], FusionCell]] = {verdict.candidate: {}, verdict.baseline: {}}
    for one in report.of(FusionCell):
        if one.arm in arms and one.rounds_us is not None:
            arms[one.arm][one.query_heads, one.kv_heads, one.batch, one.context_tokens] = one
    fast, slow = arms[verdict.candidate], arms[verdict.baseline]
    return [
        RatioPoint(
            query_heads=key[0], kv_heads=key[1], batch=key[2], context_tokens=key[3],
            limit=slow[key].call_bytes / fast[key].call_bytes,
            ratio=statistics.median(
                a / b for a, b in zip(slow[key].rounds_us or [], fast[key].rounds_us or [], strict=True)
            ),
        )
        for key in fast
        if key in slow
    ]  # fmt: skip


def of_limit(fit: FusionFit | None) -> bool:
    """Whether a fit is of shares of the byte limit."""
    return fit is not None and fit.ceiling_rule == BYTE_LIMIT


def doubts(verdict: FusionVerdict, fit: FusionFit) -> list[str]:
    """Why a curve is no law; nothing where it may be read as one."""
    found = [] if fit.status == CONVERGED else [f"the fit {fit.status}"]
    found += ["two quantities are named"] if verdict.covariate != verdict.left_out_covariate else []
    found += (
        [f"it misses by more than {percent(LARGEST_MISFIT, 0)}"] if not fit.rms_log_residual <= LARGEST_MISFIT else []
    )
    return found + (["it does not reach its plateau"] if "plateau_not_reached" in fit.flags else [])


def caption(points: Sequence[RatioPoint], verdict: FusionVerdict, fit: FusionFit | None) -> list[Markup | str]:
    """Which speed-up it is, what both panels show, and what the curve is worth."""
    shown = "its share of the byte limit" if of_limit(fit) else "the same"
    said = f", {counted(len(points), 'cell')}. Left: the speed-up against the batch. Right: {shown} against "
    said += f"{verdict.covariate}, the quantity with the least AICc. "
    if fit is None:
        return [tag("b", pair_of(verdict)), f"{said}No fit of it is recorded."]
    ceiling = f"{percent(fit.ceiling, 0)} of the byte limit" if of_limit(fit) else number(fit.ceiling)
    why = doubts(verdict, fit)
    said += f"Curve: ceiling {ceiling}, half at {number(fit.half)}, rms {percent(fit.rms_log_residual, 1)}; "
    return [
        tag("b", pair_of(verdict)),
        said + (f"broken: {listed(why)}." if why else "solid: it may be read as a law."),
    ]


def fusion_figure(points: Sequence[RatioPoint], verdict: FusionVerdict, fit: FusionFit | None) -> Drawing:
    """The speed-up against the batch, and it or its share of the byte limit against what it follows."""
    with context(SETTINGS):
        made = figure(WIDE_PX, HIGH_PX)
        left, right = made.subplots(1, 2, sharey=not of_limit(fit))
        panel(left, points, BATCH, shares=False)
        panel(right, points, verdict.covariate, shares=of_limit(fit))
        if fit is not None:
            x_all = [float(COVARIATES[verdict.covariate](point)) for point in points]
            x_line = np.geomspace(min(x_all), max(x_all), CURVE_POINTS)
            line = hill_curve(x_line, ceiling=fit.ceiling, half_batch=fit.half, gamma=fit.gamma)
            broken = "--" if doubts(verdict, fit) else "-"
            right.plot(x_line, line, color=INK, linewidth=1.4, linestyle=broken, zorder=1)
        for axes in (left, right):
            plain_log_ticks(axes, "y", *axes.get_ylim())
        left.set_ylabel(clean(pair_of(verdict)))
        if of_limit(fit):
            right.set_ylabel(BYTE_LIMIT)
        left.legend(fontsize=9, ncols=2, loc="best")
        name = f"fusion-{verdict.candidate}-{verdict.baseline}".replace(" ", "-")
        return drawn(name, f"Speed-up of {pair_of(verdict)}: {verdict.reason}", made)


def panel(axes: Any, points: Sequence[RatioPoint], covariate: str, *, shares: bool) -> None:
    """Every cell against one quantity, a style a layout."""
    for place, layout in enumerate(dict.fromkeys(point.layout for point in points)):
        own = [point for point in points if point.layout == layout]
        x = [COVARIATES[covariate](point) for point in own]
        y = [point.ratio / point.limit if shares else point.ratio for point in own]
        axes.plot(x, y, linestyle="none", markersize=4.5, label=layout, **style_of(place).points())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    values = [COVARIATES[covariate](point) for point in points]
    axes.xaxis.set_major_locator(FixedLocator(doublings(min(values), max(values))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set_xlabel(covariate)
    axes.grid(True, axis="y")


def doublings(low: int, high: int) -> list[float]:
    """Powers of two from the one below `low` to `high`, few enough to be read."""
    first, last = math.floor(math.log2(low)), math.floor(math.log2(high))
    return [2.0**at for at in range(first, last + 1, 1 + (last - first) // MOST_TICKS)]


def short(value: float) -> str:
    """A tick: 0.5, 2048, 16K, 1M, in units of 1,024."""
    for unit, least, letter in ((1 << 20, 1 << 20, "M"), (1 << 10, 1 << 12, "K")):
        if value >= least:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def style_of(place: int) -> Style:
    """Colour and marker of a layout; from the seventh on hollow."""
    rank = place % len(SERIES)
    hollow = place >= len(SERIES)
    return Style(colour=SERIES[rank], marker=(HOLLOW if hollow else FILLED)[rank], hollow=hollow)
