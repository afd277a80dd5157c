"""The section on latency: how long each timed repetition took, as a distribution, recipe beside recipe.

Times are of whole batches, as the cells recorded them: a repetition generates a fixed number of tokens a request.
Quantiles are linear interpolations of order statistics (Hyndman and Fan type 7), over all blocks that count; pilots and
warm-ups are left out. They are descriptive: what decides are the ratios within blocks.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter

from kassay.kinds.timing import TIMED, TimingCell
from kassay.report.conditions import blocks_of
from kassay.report.drawing import RULE, SETTINGS, Drawing, Style, context, drawn, figure, styles
from kassay.report.evidence import Report
from kassay.report.figures import plain_log_ticks
from kassay.report.markup import Markup, numbers, section, table, tag
from kassay.report.sections import absent, control_of, recipes_of
from kassay.report.sections import drawn as placed
from kassay.report.words import counted, number, one_line, tick, title

PANEL_PX = (466, 320)
MS_PER_NS = 1e-6
MOST_POINTS = 200  # of a curve; more repetitions are drawn as so many quantiles
SHARES = (0.05, 0.5, 0.95, 0.99)

Load = tuple[str, str, int, int, int]  # model, name of the load, batch, context tokens, output tokens

CAPTION = (
    "Share of repetitions that had ended by then; a curve further left is faster. All blocks that count together, so "
    "the drift of the host is in it: the comparison that decides is the paired one above."
)


def latency_section(report: Report) -> Markup:
    """A distribution for each timed load, and its quantiles."""
    times = times_of(report)
    anchor, heading = "latency", "Latency"
    if not times and any(not made.pilot for made in report.of(TimingCell)):
        told = f"No block counts, so nothing is drawn: {left_out(report)}"
        return section(anchor, heading, tag("p", told, class_="note"))
    if not times:
        return section(anchor, heading, absent(report, "timing", "latencies"))
    style_of = styles(recipes_of(report), control_of(report))
    unknown = [recipe for own in times.values() for recipe in own if recipe not in style_of]
    style_of |= styles(list(dict.fromkeys(unknown)), "")
    panels = [
        placed(latency_panel(rank, load, own, style_of), None, None) for rank, (load, own) in enumerate(times.items())
    ]
    data = tag("details", tag("summary", "data table: quantiles of latency"), quantile_table(times))
    caption = tag("p", f"{CAPTION} {left_out(report)}".strip(), class_="note")
    return section(anchor, heading, tag("div", panels, class_="panels"), caption, data)


def times_of(report: Report) -> dict[Load, dict[str, list[float]]]:
    """Load -> recipe -> milliseconds of every repetition that counts, ascending."""
    found: dict[Load, dict[str, list[float]]] = {}
    out = {(block.model, block.load, block.block) for block in blocks_of(report) if not block.valid}
    for made in report.of(TimingCell):
        spans = list(zip(made.started_ns, made.ended_ns, strict=False))[made.warmups :]
        if made.pilot or not spans or (made.model, made.load, made.block) in out:
            continue
        load = (made.model, made.load, made.batch, made.context_tokens, made.output_tokens)
        own = found.setdefault(load, {}).setdefault(made.recipe, [])
        own += [(ended - started) * MS_PER_NS for started, ended in spans]
    return {load: {recipe: sorted(own) for recipe, own in recipes.items()} for load, recipes in found.items()}


def left_out(report: Report) -> str:
    """How many blocks do not count; empty where all do."""
    blocks = blocks_of(report)
    out = sum(not block.valid for block in blocks)
    return f"{out} of {counted(len(blocks), 'block')} {'does' if out == 1 else 'do'} not count." if out else ""


def load_words(load: Load) -> str:
    """What one repetition does."""
    model, name, batch, context_tokens, output_tokens = load
    which = "" if name == TIMED else f", {tick(one_line(name))}"
    return f"{tick(one_line(model))}{which}: {batch} × ({context_tokens:,} + {output_tokens:,} tokens)"


def latency_panel(rank: int, load: Load, times: dict[str, list[float]], style_of: dict[str, Style]) -> Drawing:
    """Cumulative shares of the repetitions of one load."""
    with context(SETTINGS):
        made = figure(*PANEL_PX)
        axes = made.subplots()
        for recipe, own in times.items():
            ends, shares = curve(own)
            style = style_of[recipe]
            axes.step([ends[0], *ends], [0.0, *shares], where="post", color=style.colour, linewidth=1.4)
            axes.plot([quantile(own, 0.5)], [0.5], markersize=6, zorder=4, label=tick(title(recipe)), **style.points())
        axes.axhline(0.5, color=RULE, linewidth=0.8)
        axes.set_ylim(0, 1.04)
        axes.set_xscale("log")
        plain_log_ticks(axes, "x", *axes.get_xlim())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
        axes.grid(True, axis="y")
        axes.set_xlabel("milliseconds for one batch, logarithmic (mark: median)")
        axes.set_ylabel("share of repetitions")
        axes.set_title(load_words(load))
        axes.legend(loc="best", fontsize=10.5, handlelength=1.2)
        said = "; ".join(
            f"{title(recipe)} median {number(quantile(own, 0.5))} ms, 95 % within {number(quantile(own, 0.95))} ms"
            for recipe, own in times.items()
        )
        return drawn(f"latency-batch-{rank}", f"Latency of a batch, {load_words(load)}: {said}", made)


def curve(own: Sequence[float]) -> tuple[list[float], list[float]]:
    """Points of a cumulative share: every repetition, or so many quantiles of more than that."""
    if len(own) <= MOST_POINTS:
        return list(own), [(index + 1) / len(own) for index in range(len(own))]
    shares = [(index + 1) / MOST_POINTS for index in range(MOST_POINTS)]
    return [quantile(own, share) for share in shares], shares


def quantile(own: Sequence[float], share: float) -> float:
    """The quantile of ascending values."""
    return float(np.quantile(own, share))


def quantile_table(times: dict[Load, dict[str, list[float]]]) -> Markup:
    """The numbers behind the curves."""
    rows = [
        [
            tag("td", load_words(load)),
            tag("th", title(recipe), scope="row"),
            *numbers(f"{len(own):,}", number(own[0], 4), *(number(quantile(own, share), 4) for share in SHARES)),
            *numbers(number(own[-1], 4)),
        ]
        for load, recipes in times.items()
        for recipe, own in recipes.items()
    ]
    repetitions = sum(len(own) for recipes in times.values() for own in recipes.values())
    header = ["load", "recipe", "repetitions", "least", *(f"{100 * share:g} %" for share in SHARES), "largest"]
    caption = f"Milliseconds for one batch, {counted(repetitions, 'repetition')}; warm-ups and pilots left out."
    return table(caption, header, rows, right=range(2, 9))
