"""The section on fused INT4: claims, which quantity each speed-up follows, and the cells behind three of them."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.report.drawing import FILLED, HOLLOW, INK, SERIES, SETTINGS, Drawing, Style, context, drawn, figure
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, prose, section, table, tag
from kassay.report.sections import absent, word
from kassay.report.sections import drawn as placed
from kassay.report.words import clean, number
from kassay.stats.explanations import COVARIATES, ONE_CEILING, RatioPoint
from kassay.stats.hill import hill_curve

DRAWN = (("int4 each head", "torch repeat"), ("int4", "torch repeat"), ("int4 split", "grouped split"))
WIDE_PX, HIGH_PX = 640, 330
STEPS = [step * decade for decade in (0.01, 0.1, 1.0, 10.0, 100.0) for step in (1.0, 2.0, 5.0)]
MOST_TICKS = 6

CAPTION = (
    "A dot is a cell; colour and marker tell the head layout (query heads/KV heads). Left: against the batch. Right: "
    "against the quantity with the least AICc; the curve is its fit with one ceiling, broken where it is no result."
)


def fusion_section(report: Report) -> Markup:
    """Claims first, then every pair, then figures."""
    verdicts, claims = report.of(FusionVerdict), report.of(FusionClaim)
    anchor, heading = "fusion", "Fused INT4"
    if not verdicts:
        return section(anchor, heading, absent(report, "fusion_law", "explanations"))
    pictures = [
        placed(fusion_figure(points, one, fit_of(report, one)), CAPTION, None)
        for one in verdicts
        if (one.candidate, one.baseline) in DRAWN and (points := points_of(report, one))
    ]
    return section(anchor, heading, claim_table(claims), verdict_table(verdicts), pictures)


def claim_table(claims: Sequence[FusionClaim]) -> Markup:
    """One row a claim."""
    rows = [
        [
            tag("th", one.claim, scope="row"),
            cell(word(one.verdict)),
            *numbers(str(len(one.pairs)), str(one.agreeing), str(one.against)),
            cell(prose(one.reason)),
        ]
        for one in claims
    ]
    header = ["claim", "verdict", "speed-ups", "bear it out", "contradict it", "numbers"]
    return table("What the speed-ups say of the old law together.", header, rows, right=(2, 3, 4))


def verdict_table(verdicts: Sequence[FusionVerdict]) -> Markup:
    """One row a pair."""
    rows = [
        [
            tag("th", f"{one.candidate} over {one.baseline}", scope="row"),
            *numbers(str(one.n), f"{number(one.lowest)}, {number(one.median)}, {number(one.highest)}"),
            *numbers(str(one.above_limit)),
            cell(word(one.verdict)),
            cell(one.covariate),
            *numbers(
                *(spread(value) for value in (one.half_spread, one.half_spread_query_heads, one.half_spread_kv_heads))
            ),
            cell(prose(one.reason)),
        ]
        for one in verdicts
    ]
    header = ["speed-up", "cells", "least, median, largest", "above the byte limit", "verdict", "follows",
              "half-batch: spread over layouts", "times query heads", "times KV heads", "numbers"]  # fmt: skip
    caption = "Speed-ups, ratios within rounds; spreads are the largest half-batch of a layout over the least."
    return table(caption, header, rows, right=(1, 2, 3, 6, 7, 8))


def spread(value: float | None) -> str:
    """A factor, or that there is none."""
    return "–" if value is None else number(value)


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


def fit_of(report: Report, verdict: FusionVerdict) -> FusionFit | None:
    """The fit of what it follows, with one ceiling."""
    pair = (verdict.candidate, verdict.baseline, verdict.covariate, ONE_CEILING)
    found = (
        one for one in report.of(FusionFit) if (one.candidate, one.baseline, one.covariate, one.ceiling_rule) == pair
    )
    return next(found, None)


def fusion_figure(points: Sequence[RatioPoint], verdict: FusionVerdict, fit: FusionFit | None) -> Drawing:
    """The speed-up against the batch, and against what it follows."""
    with context(SETTINGS):
        made = figure(WIDE_PX, HIGH_PX)
        panels = made.subplots(1, 2, sharey=True)
        layouts = list(dict.fromkeys(point.layout for point in points))
        for axes, covariate in zip(panels, ("batch", verdict.covariate), strict=True):
            for place, layout in enumerate(layouts):
                own = [point for point in points if point.layout == layout]
                style = style_of(place)
                x = [COVARIATES[covariate](point) for point in own]
                axes.plot(x, [point.ratio for point in own], linestyle="none", markersize=4.5, label=layout,
                          **style.points())  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            values = [COVARIATES[covariate](point) for point in points]
            axes.xaxis.set_major_locator(FixedLocator(doublings(min(values), max(values))))
            axes.yaxis.set_major_locator(FixedLocator(STEPS))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
                axis.set_minor_locator(NullLocator())
            axes.axhline(1.0, color=INK, linewidth=0.8)
            axes.set_xlabel(covariate)
            axes.grid(True, axis="y")
        if fit is not None:
            x_all = [float(COVARIATES[verdict.covariate](point)) for point in points]
            x_line = np.geomspace(min(x_all), max(x_all), 80)
            line = hill_curve(x_line, ceiling=fit.ceiling, half_batch=fit.half, gamma=fit.gamma)
            broken = fit.status != "converged" or "plateau_not_reached" in fit.flags
            panels[1].plot(x_line, line, color=INK, linewidth=1.4, linestyle="--" if broken else "-", zorder=1)
        panels[0].set_ylabel(f"{clean(verdict.candidate)} over {clean(verdict.baseline)}")
        panels[0].legend(fontsize=9, ncols=2, loc="best")
        name = f"fusion-{verdict.candidate}-{verdict.baseline}".replace(" ", "-")
        return drawn(name, f"Speed-up of {verdict.candidate} over {verdict.baseline}: {verdict.reason}", made)


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
