"""Does throughput follow the batch, the cached tokens of all sequences, or the affine step time?

    hill of B, each context     S = Smax B^g / (Bh^g + B^g), parameters of its own at every context
    hill of B, pooled           the same curve at every context
    hill of B T, pooled         the same curve of all cached tokens
    affine step time            S = B / (a + c B + d B T)

All predict the same numbers, tokens per second at the measured points, and are fitted and judged in one residual
space, so that residuals and criteria compare. For k parameters and n points, the variance counted as one more,
    AIC  = n ln(RSS / n) + 2 (k + 1)           AICc = AIC + 2 (k + 1)(k + 2) / (n - k - 2)
AICc does not exist for n <= k + 2; such a law is interpolation and cannot win. Sources: Akaike 1974 (IEEE TAC 19:716);
Hurvich and Tsai 1989 (Biometrika 76:297). In-sample: no law is proven by it, and RSS alone favours more parameters.
Rates only; a ratio of rates has no step time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from kassay.stats import Floats, InvalidData
from kassay.stats.hill import EXACT_FIT, Space, fit_hill, hill_curve
from kassay.stats.saturation import FREE_GAMMA_POINTS
from kassay.stats.step_time import StepPoint, StepTimeFit, fit_step_time

EACH_CONTEXT, OF_BATCH, OF_CACHED, AFFINE = (
    "hill of B, each context",
    "hill of B, pooled",
    "hill of B T, pooled",
    "affine step time",
)


@dataclass(frozen=True, kw_only=True)
class LawFit:
    """One law on the points of all contexts."""

    law: str  # one of the four names above
    residual_space: Space  # of fit, residuals and criteria
    n: int  # points
    parameters: dict[str, float]  # fitted, by name and unit
    residuals: tuple[float, ...]  # measured less fitted in this space, in the order of the points
    rss: float  # their sum of squares
    rms_log_residual: float  # root mean square of ln S - ln fit, whatever the space
    aic: float
    aicc: float | None  # None where it does not exist
    flags: tuple[str, ...]  # what limits the fit


@dataclass(frozen=True, kw_only=True)
class LawComparison:
    """All laws on the same points."""

    points: tuple[StepPoint, ...]
    laws: tuple[LawFit, ...]
    best: str | None  # the law with the least AICc; None if none has one
    step_time: StepTimeFit  # by relative least squares, where the affine law started


def compare_laws(points: Sequence[StepPoint], *, space: Space) -> LawComparison:
    """Fit the four laws; raises InvalidData where the step time cannot be fitted or a context has one batch."""
    step_time = fit_step_time(points)
    batches = np.array([float(point.batch) for point in points])
    contexts = np.array([float(point.context_tokens) for point in points])
    rates = batches / np.array([point.step_s for point in points])
    laws = (
        each_context(batches, contexts, rates, space),
        pooled(OF_BATCH, "half_batch", batches, rates, space),
        pooled(OF_CACHED, "half_cached_tokens", batches * contexts, rates, space),
        affine(step_time, batches, contexts, rates, space),
    )
    known = [law for law in laws if law.aicc is not None]
    best = min(known, key=lambda law: law.aicc or 0.0).law if known else None
    return LawComparison(points=tuple(points), laws=laws, best=best, step_time=step_time)


def judged(
    law: str, parameters: dict[str, float], rates: Floats, fitted: Floats, space: Space, flags: Sequence[str]
) -> LawFit:
    """A law with its residuals and criteria."""
    logs = np.log(rates / fitted)
    residuals = logs if space == "log" else rates - fitted
    n, counted = len(rates), len(parameters) + 1
    unit = 1.0 if space == "log" else float(rates.max())
    rss = float(np.sum(residuals**2))
    aic = n * math.log(max(rss / unit**2 / n, EXACT_FIT**2)) + 2 * n * math.log(unit) + 2 * counted
    return LawFit(
        law=law,
        residual_space=space,
        n=n,
        parameters=parameters,
        residuals=tuple(map(float, residuals)),
        rss=rss,
        rms_log_residual=math.sqrt(float(np.mean(logs**2))),
        aic=aic,
        aicc=aic + 2 * counted * (counted + 1) / (n - counted - 1) if n - counted - 1 > 0 else None,
        flags=tuple(flags),
    )


def hill(name: str, x: Floats, rates: Floats, space: Space) -> tuple[dict[str, float], Floats, list[str]]:
    """Parameters, fitted rates and flags of one Hill curve; gamma is 1 below six points or three different x."""
    free = len(x) >= FREE_GAMMA_POINTS and len(np.unique(x)) >= 3
    fit = fit_hill(x, rates, space=space, free_gamma=free)
    found = {"ceiling_per_s": fit.ceiling, name: fit.half_batch} | ({"gamma": fit.gamma} if free else {})
    curve = hill_curve(x, ceiling=fit.ceiling, half_batch=fit.half_batch, gamma=fit.gamma)
    return found, curve, [*(f"{end}_at_bound" for end in fit.at_bound), *([] if free else ["gamma_fixed_at_1"])]


def pooled(law: str, name: str, x: Floats, rates: Floats, space: Space) -> LawFit:
    """One curve for all contexts."""
    parameters, curve, flags = hill(name, x, rates, space)
    return judged(law, parameters, rates, curve, space, flags)


def each_context(batches: Floats, contexts: Floats, rates: Floats, space: Space) -> LawFit:
    """A curve of its own for every context."""
    fitted = np.empty_like(rates)
    parameters: dict[str, float] = {}
    flags: list[str] = []
    for context in np.unique(contexts):
        own = contexts == context
        if len(np.unique(batches[own])) < 2:
            raise InvalidData(f"context {context:g} has one batch, allowed are two or more")
        found, fitted[own], told = hill("half_batch", batches[own], rates[own], space)
        parameters |= {f"{name} at {context:g}": value for name, value in found.items()}
        flags += [f"{flag} at {context:g}" for flag in told]
    return judged(EACH_CONTEXT, parameters, rates, fitted, space, flags)


def affine(start: StepTimeFit, batches: Floats, contexts: Floats, rates: Floats, space: Space) -> LawFit:
    """The affine step time, moved from its relative least squares to the optimum in this space."""
    terms = np.stack([np.ones_like(batches), batches, batches * contexts], axis=1)
    costs = np.array([start.fixed_s, start.per_sequence_s, start.per_cached_token_s])
    scale = np.maximum(np.abs(costs), 1e-3 * (batches / rates).min() / terms.max(axis=0))

    def fitted(theta: Floats) -> Floats:
        made: Floats = batches / np.maximum(terms @ (theta * scale), np.finfo(np.float64).tiny)
        return made

    def residuals(theta: Floats) -> Floats:
        made: Floats = np.log(rates / fitted(theta)) if space == "log" else (rates - fitted(theta)) / rates.max()
        return made

    theta = best_of(residuals, costs / scale)
    named = dict(zip(("fixed_s", "per_sequence_s", "per_cached_token_s"), map(float, theta * scale), strict=True))
    flags = [f"negative_{name}" for name, cost in named.items() if not cost >= 0]
    return judged(AFFINE, named, rates, fitted(theta), space, flags)


def best_of(residuals: Callable[[Floats], Floats], start: Floats) -> Floats:
    """The polished parameters, or the start where polishing made nothing better."""
    polished = least_squares(residuals, start, xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    found: Floats = min((start, polished), key=lambda theta: float(np.sum(residuals(theta) ** 2)))
    return found
