"""The figures that explain a saturation: step time against cached tokens, residuals of each law, return of a batch.

    step time less c B against B T     a straight line with slope d and height a if the affine law holds: the most
                                       legible test of all, since a curve that bends hides its misfit
    residuals of each law against B    a law that is wrong bends here, whatever its R2
    elasticity against B               what one per cent more sequences still gives

Times, residuals and elasticities each have an axis of their own; rates and ratios never meet on one.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kassay.kinds.law import LawRecord
from kassay.kinds.verdict import SaturationRecord
from kassay.report.drawing import FILLED, INK, SERIES, SETTINGS, SOFT, Drawing, Style, context, drawn, figure
from kassay.report.words import number, tick, title

PANEL_PX = (466, 330)
MS_PER_S = 1e3
AFFINE_NAMES = ("fixed_s", "per_sequence_s", "per_cached_token_s")


def step_panel(law: LawRecord) -> Drawing:
    """Median step times less the cost of the sequences, against all cached tokens, with the affine law."""
    fixed_s, sequence_s, cached_s = (law.parameters[name] for name in AFFINE_NAMES)
    with context(SETTINGS):
        made = figure(*PANEL_PX)
        axes = made.subplots()
        cached = np.array(law.batches) * np.array(law.contexts_tokens)
        left = MS_PER_S * (np.array(law.steps_s) - sequence_s * np.array(law.batches))
        for rank, tokens in enumerate(contexts_of(law)):
            own = np.array(law.contexts_tokens) == tokens
            axes.plot(cached[own], left[own], label=f"{tokens:,} tokens", zorder=3, **points(rank))
        ends = np.array([0.0, float(cached.max())])
        axes.plot(ends, MS_PER_S * (fixed_s + cached_s * ends), color=INK, linewidth=1.1, zorder=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.set_ylim(min(0.0, float(left.min())), None)
        axes.grid(True, axis="y")
        axes.set_xlabel("cached tokens of all sequences, B T")
        axes.set_ylabel("step time less c B, ms")
        axes.set_title(f"{tick(title(law.recipe))}: affine step time")
        axes.legend(fontsize=10.5, title="context", loc="best")
        label = (
            f"Step time of {title(law.recipe)} less the cost of its sequences, over cached tokens: {number(fixed_s)} s "
            f"and {number(cached_s)} s a cached token; root mean square of ln residuals {number(law.rms_log_residual)}"
        )
        return drawn(f"step-{law.recipe}", label, made)


def contexts_of(law: LawRecord) -> list[int]:
    """The different contexts, ascending."""
    return sorted(set(law.contexts_tokens))


def points(rank: int) -> dict[str, Any]:
    """Markers of one context: contexts are told apart by shape and colour."""
    colour = SERIES[rank % len(SERIES)]
    return {"marker": FILLED[rank % len(FILLED)], "color": colour, "linestyle": "none", "markersize": 5}


def residual_panel(laws: Sequence[LawRecord]) -> Drawing:
    """Residuals of every law over batch, one strip a law, all on one scale."""
    shown = sorted(laws, key=lambda law: math.inf if law.aicc is None else law.aicc)
    with context(SETTINGS):
        made = figure(PANEL_PX[0], 60 + 82 * len(shown))
        strips = made.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        batches = sorted(set(shown[0].batches))
        for axes, law in zip(strips, shown, strict=True):
            axes.set_xscale("log", base=2)
            axes.axhline(0.0, color=SOFT, linewidth=0.8, zorder=1)
            for rank, tokens in enumerate(contexts_of(law)):
                own = [index for index, each in enumerate(law.contexts_tokens) if each == tokens]
                x, y = [law.batches[index] for index in own], [law.residuals[index] for index in own]
                axes.plot(x, y, zorder=3, **points(rank))
            best = " (least)" if law.best else ""
            axes.set_title(f"{tick(law.law)}: AICc {criterion(law)}{best}", fontsize=10.5, fontweight="normal")
            axes.xaxis.set_major_locator(FixedLocator(batches))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
        strips[-1].set_xlabel("batch (active sequences)")
        made.supylabel(residual_name(shown[0].residual_space), fontsize=11)
        label = f"Residuals of {title(shown[0].recipe)} by law: " + "; ".join(
            f"{law.law}: AICc {criterion(law)}, rms ln {number(law.rms_log_residual)}" for law in shown
        )
        return drawn(f"residuals-{shown[0].recipe}", label, made)


def residual_name(space: str) -> str:
    """What a residual of this space is."""
    known = {"log": "ln measured - ln fitted", "linear": "measured - fitted, tokens per second"}
    return known.get(space, tick(space))


def criterion(law: LawRecord) -> str:
    """AICc of a law as it is shown."""
    return "does not exist" if law.aicc is None else f"{law.aicc:.1f}"


def return_panel(context_tokens: int, fits: Sequence[SaturationRecord], style_of: dict[str, Style]) -> Drawing:
    """Elasticity of the fitted curves over the measured batches: 1 where rate grows with batch, 0 on the plateau."""
    with context(SETTINGS):
        made = figure(*PANEL_PX)
        axes = made.subplots()
        axes.set_xscale("log", base=2)
        batches = sorted({batch for fit in fits for batch in fit.batches})
        for fit in fits:
            style = style_of[fit.recipe]
            axes.plot(fit.batches, fit.elasticities, label=tick(title(fit.recipe)), linewidth=1.4, **style.points())
        axes.axhline(0.0, color=SOFT, linewidth=0.8, zorder=1)
        axes.axhline(1.0, color=SOFT, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
        axes.xaxis.set_major_locator(FixedLocator(batches))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(True, axis="y")
        axes.set_xlabel("batch (active sequences)")
        axes.set_ylabel("elasticity of rate in batch")
        axes.set_title(f"context {context_tokens:,} tokens: what more batch gives")
        axes.legend(fontsize=10.5, loc="best")
        label = f"Elasticity over batch at {context_tokens} tokens: " + "; ".join(
            f"{title(fit.recipe)} from {number(fit.elasticities[0])} to {number(fit.elasticities[-1])}" for fit in fits
        )
        return drawn(f"return-{context_tokens}", label, made)
