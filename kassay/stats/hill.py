"""Which saturation curve do the points of batch sweeps follow, and how well is its ceiling known?

    S(B) = Smax B^gamma / (Bh^gamma + B^gamma)        elasticity d ln S / d ln B = gamma (1 - S / Smax)

B is the number of sequences decoded together, S a rate or a ratio in the caller's unit. Smax is a scale, so
it is eliminated in closed form; (Bh, gamma) are searched on a grid and polished, which needs no start. The
interval of Smax is the profile likelihood's in log residuals: all Smax whose best residual sum of squares
stays within RSS (1 + F(1 - alpha; 1, dof) / dof). Its upper end is open exactly when the limit
Smax -> infinity, a power law, stays within it too.

Sources: Hill 1910 (J Physiol 40:iv); Bates and Watts 1988, section 6.1, profile intervals. R2 is reported
with its space and decides nothing. What may be printed of a ceiling is kassay.stats.saturation's answer; one
law over several contexts is kassay.stats.step_time's.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq, least_squares
from scipy.special import expit, fdtri

from kassay.stats import Floats, InvalidData, require_level

HALF_BATCH_SPAN = 1e3  # Bh is searched from smallest batch / span to largest batch x span; an end is a flag
GAMMA_RANGE = (0.03, 20.0)  # below lies a constant, above a step: an end is a flag
BOUND_DISTANCE = 0.02  # relative distance from an end at which a parameter counts as being there
GRID_POINTS = 60  # per axis: finer than the basins of attraction of all 954 public sweeps
LARGEST_STEP = 20.0  # in ln Smax: an end that far out is open
EXACT_FIT = 1e-9  # log residual of data that the curve meets to rounding; the threshold stays above noise

Space = Literal["log", "linear"]


@dataclass(frozen=True, kw_only=True)
class HillFit:
    """Least squares of the Hill curve in one residual space."""

    method: str  # always `hill, eliminated scale, grid and polish`
    residual_space: Space  # `log`: ln S - ln fit; `linear`: S - fit
    n: int  # points
    ceiling: float  # Smax, in the unit of the values
    half_batch: float  # Bh, sequences at half the ceiling
    gamma: float  # shape, 1 for the classical saturation curve
    gamma_fixed: bool  # gamma was set to 1 and not fitted
    at_bound: tuple[str, ...]  # which of `half_batch` and `gamma` ended at an end of its search range
    rss: float  # residual sum of squares, in this space
    r2: float | None  # 1 - rss / spread, in this space, over all points; None for constant values


def hill_curve(batches: Floats, *, ceiling: float, half_batch: float, gamma: float) -> Floats:
    """S at `batches` (float64, any shape, sequences, above 0), in the unit of `ceiling`."""
    return ceiling * np.asarray(expit(gamma * np.log(batches / half_batch)), dtype=np.float64)


def elasticity(batches: Floats, *, half_batch: float, gamma: float) -> Floats:
    """Relative gain of S per relative gain of B: gamma (1 - S / Smax), at `batches` (any shape)."""
    return gamma * (1 - hill_curve(batches, ceiling=1.0, half_batch=half_batch, gamma=gamma))


def fit_hill(batches: Floats, values: Floats, *, space: Space, free_gamma: bool) -> HillFit:
    """Fit the curve to points of shape (n,); batches may repeat, and gamma is 1 unless `free_gamma`.

    Raises InvalidData for batches or values not above 0 and for fewer different batches than fitted
    parameters.
    """
    _check_points(batches, values, 3 if free_gamma else 2)
    low, high = (
        np.log([batches.min() / HALF_BATCH_SPAN, batches.max() * HALF_BATCH_SPAN]),
        np.log(GAMMA_RANGE),
    )
    low, high = np.array([low[0], high[0]])[: 1 + free_gamma], np.array([low[1], high[1]])[: 1 + free_gamma]

    def residuals(theta: Floats) -> Floats:
        return _eliminated(theta, batches, values, space)[0]

    grid = np.stack(np.meshgrid(*np.linspace(low, high, GRID_POINTS).T, indexing="ij"), axis=-1)
    start = grid.reshape(-1, len(low))[np.argmin(np.sum(residuals(grid) ** 2, axis=-1))]
    polished = least_squares(residuals, start, bounds=(low, high), xtol=1e-14, ftol=1e-14, gtol=1e-14).x
    residual, ceiling = _eliminated(polished, batches, values, space)
    ends = zip(("half_batch", "gamma"), np.minimum(polished - low, high - polished), strict=False)
    rss = float(np.sum(residual**2)) * (1.0 if space == "log" else float(values.max()) ** 2)
    spread = np.log(values) if space == "log" else values
    total = float(np.sum((spread - spread.mean()) ** 2))
    return HillFit(
        method="hill, eliminated scale, grid and polish",
        residual_space=space,
        n=len(values),
        ceiling=float(ceiling),
        half_batch=math.exp(polished[0]),
        gamma=math.exp(polished[1]) if free_gamma else 1.0,
        gamma_fixed=not free_gamma,
        at_bound=tuple(name for name, distance in ends if distance < BOUND_DISTANCE),
        rss=rss,
        r2=1 - rss / total if total > 0 else None,
    )


def _check_points(batches: Floats, values: Floats, fewest: int) -> None:
    """Raise InvalidData unless the points are finite, above 0, paired, and at `fewest` different batches."""
    if batches.ndim != 1 or batches.shape != values.shape:
        raise InvalidData(f"batches and values have shapes {batches.shape} and {values.shape}, allowed: one equal axis")
    for name, column in (("batches", batches), ("values", values)):
        if column.dtype != np.float64 or not np.isfinite(column).all() or not (column > 0).all():
            raise InvalidData(f"`{name}` are {column.dtype} or hold one not above 0, allowed: finite float64 above 0")
    if len(np.unique(batches)) < fewest:
        raise InvalidData(f"the sweep has {len(np.unique(batches))} different batches, allowed are {fewest} or more")


def _eliminated(theta: Floats, batches: Floats, values: Floats, space: Space) -> tuple[Floats, Floats]:
    """Residuals (..., n) and best ceiling (...) at theta (..., p), which is ln Bh or ln Bh and ln gamma.

    The ceiling minimizes the residuals in closed form: a mean of logs, or a projection. Linear residuals
    come divided by the largest value, so that the optimizer's tolerances mean the same for every unit.
    """
    gamma = np.exp(theta[..., 1:2]) if theta.shape[-1] == 2 else 1.0
    log_share = -np.logaddexp(0.0, gamma * (theta[..., :1] - np.log(batches)))
    if space == "log":
        raw = np.log(values) - log_share
        log_ceiling = raw.mean(axis=-1, keepdims=True)
        return raw - log_ceiling, np.exp(log_ceiling[..., 0])
    share = np.exp(log_share)
    ceiling = (share @ values) / np.maximum(np.sum(share**2, axis=-1), np.finfo(np.float64).tiny)
    return (values - ceiling[..., np.newaxis] * share) / values.max(), ceiling


def ceiling_interval(
    batches: Floats, values: Floats, fit: HillFit, *, alpha: float
) -> tuple[float | None, float | None]:
    """Profile interval of Smax around a log-residual `fit`; None for an end that is open or undefined.

    Both ends are None without degrees of freedom. Raises InvalidData for a fit of linear residuals.
    """
    require_level(alpha, "alpha")
    if fit.residual_space != "log":
        raise InvalidData(f"the fit has {fit.residual_space} residuals, allowed for the interval: log")
    freedom = fit.n - (2 if fit.gamma_fixed else 3)
    if freedom < 1:
        return None, None
    best = max(fit.rss, fit.n * EXACT_FIT**2)
    threshold = best * (1 + float(fdtri(1, freedom, 1 - alpha)) / freedom)
    profile = _Profile(np.log(batches), np.log(values), fit)
    lower = profile.crossing(threshold, -1)
    return lower, None if profile.power_law_rss() <= threshold else profile.crossing(threshold, 1)


class _Profile:
    """Residual sum of squares as a function of a fixed ln Smax, followed outward from the best fit."""

    def __init__(self, log_batches: Floats, log_values: Floats, fit: HillFit) -> None:
        self.log_batches, self.log_values, self.fixed = log_batches, log_values, fit.gamma_fixed
        self.best = math.log(fit.ceiling)
        excess = max(fit.gamma - GAMMA_RANGE[0], 1e-6)  # gamma = its least value + exp(theta[1]) stays in its range
        self.theta = np.array([math.log(fit.half_batch), math.log(excess)][: 1 if fit.gamma_fixed else 2])

    def power_law_rss(self) -> float:
        """The limit of the profile as Smax grows without end: ln S linear in ln B, with slope gamma."""
        x, y = self.log_batches - self.log_batches.mean(), self.log_values - self.log_values.mean()
        slope = 1.0 if self.fixed else max(GAMMA_RANGE[0], float(x @ y) / float(x @ x))
        return float(np.sum((y - slope * x) ** 2))

    def rss(self, log_ceiling: float, theta: Floats) -> tuple[float, Floats]:
        """Best residual sum of squares at this ceiling and where it lies, from the neighbour's `theta`."""

        def position(theta: Floats) -> tuple[Floats, Any]:
            gamma = 1.0 if self.fixed else GAMMA_RANGE[0] + math.exp(min(theta[1], 50.0))
            return gamma * (theta[0] - self.log_batches), gamma

        def residuals(theta: Floats) -> Floats:
            return self.log_values - log_ceiling + np.logaddexp(0.0, position(theta)[0])

        def slopes(theta: Floats) -> Floats:
            place, gamma = position(theta)
            columns = [np.full_like(place, gamma), place * (1 - GAMMA_RANGE[0] / gamma)][: len(theta)]
            share: Floats = expit(place)
            return np.stack(columns, axis=1) * share[:, np.newaxis]

        found = least_squares(residuals, theta, jac=slopes, method="lm", xtol=1e-12, ftol=1e-12)
        return 2 * float(found.cost), np.asarray(found.x)

    def excess(self, log_ceiling: float, theta: Floats, threshold: float) -> float:
        """How far the profile lies above the threshold."""
        return self.rss(log_ceiling, theta)[0] - threshold

    def crossing(self, threshold: float, side: int) -> float | None:
        """The ceiling on one side (-1 below, 1 above) at which the profile reaches the threshold."""
        inside, theta, step = self.best, self.theta, 0.01
        while step < LARGEST_STEP:
            outside = inside + side * step
            gamma = 1.0 if self.fixed else GAMMA_RANGE[0] + math.exp(theta[1])
            shifted = theta + np.array([side * step / gamma, 0.0])[: len(theta)]  # keeps S where it is a power law
            rss, moved = self.rss(outside, shifted if side > 0 else theta)
            if rss > threshold:
                return math.exp(brentq(self.excess, inside, outside, args=(theta, threshold), xtol=1e-9))
            inside, theta, step = outside, moved, 1.5 * step
        return None
