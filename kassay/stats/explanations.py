"""Which quantity does a speed-up follow: the batch, the heads in flight, or what is cached?

Ratios of one candidate over one baseline, over head layouts, batches and contexts, are fitted with the Hill curve of
each covariate (kassay.stats.hill), in log residuals: they span more than a decade. The ceiling is one number, or one
share of each layout's byte limit (bytes of the baseline over bytes of the candidate); both predict the same logarithms,
so that residuals and AICc compare across all of them. Cells of one layout err together, so AICc counts too many points:
the error on each layout that a fit did not see stands beside it, and a verdict needs both. First match:

    flat        the nine middle tenths of the ratios lie within 1.2 of each other: nothing saturates
    unsettled   least AICc and least left-out error name two covariates, or the best fit failed
    closest     they name one, and its rms log residual is above 5 %: the curve misses
    follows     they name one, within 5 %

Ratios only; rates are kassay.stats.laws's. Sources: as there, and Stone 1974 (JRSS B 36:111) for leaving out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from kassay.stats import Floats, InvalidData
from kassay.stats.hill import CONVERGED, HillFit, fit_hill, hill_curve, refit_hill
from kassay.stats.laws import LawFit, judged
from kassay.stats.saturation import LARGEST_MISFIT, REACHED, SPACE_GAP

FLAT = 1.2  # ratio of the 95th to the 5th percentile
ONE_CEILING, BYTE_LIMIT = "one ceiling", "share of the byte limit"
BATCH, QUERY_HEADS, KV_HEADS = "batch", "batch x query heads", "batch x KV heads"
CACHED, CACHED_HEADS = "batch x context", "batch x context x KV heads"
OCCUPANCY = (QUERY_HEADS, KV_HEADS)

Verdict = Literal["flat", "unsettled", "closest", "follows"]


@dataclass(frozen=True, kw_only=True)
class RatioPoint:
    """One cell."""

    query_heads: int
    kv_heads: int
    batch: int
    context_tokens: int
    ratio: float  # time of the baseline over time of the candidate
    limit: float  # bytes of the baseline over bytes of the candidate

    @property
    def layout(self) -> str:
        """The cluster: cells of one layout share its errors."""
        return f"{self.query_heads}/{self.kv_heads}"


COVARIATES: dict[str, Callable[[RatioPoint], int]] = {
    BATCH: lambda one: one.batch,
    QUERY_HEADS: lambda one: one.batch * one.query_heads,
    KV_HEADS: lambda one: one.batch * one.kv_heads,
    CACHED: lambda one: one.batch * one.context_tokens,
    CACHED_HEADS: lambda one: one.batch * one.context_tokens * one.kv_heads,
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One covariate under one ceiling rule."""

    covariate: str
    ceiling_rule: str
    x: Floats  # the covariate of each point
    y: Floats  # the ratios, or their shares of the limit
    fit: HillFit  # log residuals
    linear: HillFit  # the same in linear ones
    judged: LawFit  # residuals and criteria
    left_out_rms: float  # rms log residual over layouts that the fit did not see
    reached: float  # fitted value at the largest x over the ceiling

    @property
    def aicc(self) -> float:
        """AICc, infinite where it does not exist."""
        return float("inf") if self.judged.aicc is None else self.judged.aicc


@dataclass(frozen=True, kw_only=True)
class Explained:
    """All explanations of one speed-up."""

    points: tuple[RatioPoint, ...]
    explanations: tuple[Explanation, ...]
    best: Explanation  # least AICc
    left_out: Explanation  # least error on layouts left out
    verdict: Verdict

    def of(self, covariate: str, rule: str | None = None) -> Explanation:
        """The better explanation by one covariate, or that under one rule."""
        found = [one for one in self.explanations if one.covariate == covariate and rule in (None, one.ceiling_rule)]
        return min(found, key=lambda one: one.aicc)


def explain(points: Sequence[RatioPoint]) -> Explained:
    """Fit every covariate under both rules. Raises InvalidData for fewer than two layouts or bad ratios."""
    layouts = [point.layout for point in points]
    if len(set(layouts)) < 2:
        raise InvalidData(f"the ratios are of {len(set(layouts))} head layout, allowed are two or more")
    ratios = np.array([point.ratio for point in points], dtype=np.float64)
    limits = np.array([point.limit for point in points], dtype=np.float64)
    rules = {ONE_CEILING: np.ones_like(limits), BYTE_LIMIT: limits}
    made = tuple(
        explanation(name, rule, np.array([float(of(point)) for point in points]), ratios / unit, layouts)
        for name, of in COVARIATES.items()
        for rule, unit in rules.items()
    )
    best = min(made, key=lambda one: one.aicc)
    left_out = min(made, key=lambda one: one.left_out_rms)
    return Explained(
        points=tuple(points), explanations=made, best=best, left_out=left_out, verdict=verdict(ratios, best, left_out)
    )


def explanation(covariate: str, rule: str, x: Floats, y: Floats, layouts: Sequence[str]) -> Explanation:
    """One curve of all points."""
    fit = fit_hill(x, y, space="log", free_gamma=True)
    linear = fit_hill(x, y, space="linear", free_gamma=True)
    named = {"ceiling": fit.ceiling, "half": fit.half_batch, "gamma": fit.gamma}
    reached = float(expit(fit.gamma * np.log(x.max() / fit.half_batch)))
    flags = [f"{name}_at_bound" for name in fit.at_bound]
    flags += ["plateau_not_reached"] if not reached >= REACHED else []
    flags += ["residual_spaces_disagree"] if not abs(linear.ceiling / fit.ceiling - 1) <= SPACE_GAP else []
    return Explanation(
        covariate=covariate,
        ceiling_rule=rule,
        x=x,
        y=y,
        fit=fit,
        linear=linear,
        judged=judged(covariate, named, y, curve(fit, x), "log", flags),
        left_out_rms=left_out_rms(x, y, fit, layouts),
        reached=reached,
    )


def left_out_rms(x: Floats, y: Floats, fit: HillFit, layouts: Sequence[str]) -> float:
    """Each layout predicted by the fit of the others."""
    names = np.array(layouts)
    errors = []
    for name in dict.fromkeys(layouts):
        out = names == name
        errors.append(np.log(y[out] / curve(refit_hill(x[~out], y[~out], fit), x[out])))
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def curve(fit: HillFit, x: Floats) -> Floats:
    """The fitted values."""
    return hill_curve(x, ceiling=fit.ceiling, half_batch=fit.half_batch, gamma=fit.gamma)


def verdict(ratios: Floats, best: Explanation, left_out: Explanation) -> Verdict:
    """The rule of the module; NaN settles nothing."""
    low, high = np.quantile(ratios, [0.05, 0.95])
    if high / low < FLAT:
        return "flat"
    if best.fit.status != CONVERGED or best.covariate != left_out.covariate:
        return "unsettled"
    return "follows" if best.judged.rms_log_residual <= LARGEST_MISFIT else "closest"


def half_batches(points: Sequence[RatioPoint]) -> dict[str, float | None]:
    """Half-batch of each layout's own curve of the batch, all contexts together; None where that fit failed."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(point.layout for point in points):
        own = [point for point in points if point.layout == name]
        x, y = (np.array([float(getattr(one, key)) for one in own]) for key in ("batch", "ratio"))
        fit = fit_hill(x, y, space="log", free_gamma=True)
        found[name] = fit.half_batch if fit.status == CONVERGED else None
    return found


def spread(values: Sequence[float]) -> float | None:
    """Largest over least; None for fewer than two."""
    return max(values) / min(values) if len(values) > 1 else None
