"""Which saturation curve do the points of batch sweeps follow, and how well is its ceiling known?

    S(B) = Smax B^gamma / (Bh^gamma + B^gamma)        elasticity d ln S / d ln B = gamma (1 - S / Smax)

B is the number of sequences decoded together, S a rate or a ratio in the caller's unit. Smax is a scale, so
it is eliminated in closed form; (Bh, gamma) are searched on a grid and polished from its best minima, which
needs no start from the caller. A parameter is above 0 by construction: where least squares would have it
elsewhere the fit ends at an end of its search range, and its status says that it failed. The interval of Smax
is the profile likelihood's in the fit's own residuals: all Smax whose best residual sum of squares stays within
RSS (1 + F(1 - alpha; 1, dof) / dof). Its upper end is open exactly when the limit Smax -> infinity, a power
law, stays within it too.

Sources: Hill 1910 (J Physiol 40:iv); Bates and Watts 1988, section 6.1, profile intervals. R2 is reported
with its space and decides nothing. What may be printed of a ceiling is kassay.stats.saturation's answer; one
law over several contexts is kassay.stats.step_time's.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq, least_squares, minimize_scalar
from scipy.special import expit, fdtri

from kassay.stats import Floats, InvalidData, require_level

HALF_BATCH_SPAN = 1e3  # Bh is searched from smallest batch / span to largest batch x span; an end is a flag
GAMMA_RANGE = (0.03, 20.0)  # below lies a constant, above a step: an end is a flag
BOUND_DISTANCE = 0.02  # relative distance from an end at which a parameter counts as being there
GRID_POINTS = 60  # per axis: finer than the basins of attraction of all 954 public sweeps
GRID_STARTS = 2  # of the grid's minima, the best ones, that are polished beside the classical start
AGREEMENT = 1e-6  # relative excess of residuals up to which polished starts have found the same optimum
FARTHEST = 1e3  # of a parameter in its logarithm: beyond any curve
LARGEST_STEP = 20.0  # in ln Smax: an end that far out is open
EXACT_FIT = 1e-9  # log residual of data that the curve meets to rounding; the threshold stays above noise

CONVERGED, AT_BOUND, UNFINISHED = "converged", "failed: a parameter at an end of its search range", "failed: no optimum"
R2_OF = {
    "log": "1 - sum((ln S - ln fit)^2) / sum((ln S - mean ln S)^2), all points",
    "linear": "1 - sum((S - fit)^2) / sum((S - mean S)^2), all points",
}

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
    status: str  # CONVERGED, AT_BOUND or UNFINISHED; only the first is a result
    starts: int  # from how many it was polished
    starts_agreed: int  # how many of them ended at this optimum
    rss: float  # residual sum of squares, in this space
    r2: float | None  # as R2_OF defines it for this space; None for constant values


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
    return _fit(batches, values, space, free_gamma, None)


def refit_hill(batches: Floats, values: Floats, fit: HillFit) -> HillFit:
    """The same fit of other points, such as a resample of its own, from its optimum instead of from the grid."""
    near = [math.log(fit.half_batch), math.log(fit.gamma)]
    return _fit(batches, values, fit.residual_space, not fit.gamma_fixed, np.array(near[: 2 - fit.gamma_fixed]))


def _fit(batches: Floats, values: Floats, space: Space, free_gamma: bool, near: Floats | None) -> HillFit:
    """The fit, from the grid or from near a known optimum."""
    _check_points(batches, values, 3 if free_gamma else 2)
    half_ends = (batches.min() / HALF_BATCH_SPAN, batches.max() * HALF_BATCH_SPAN)
    low, high = np.log([half_ends, GAMMA_RANGE]).T[:, : 1 + free_gamma]

    def residuals(theta: Floats) -> Floats:
        return _eliminated(theta, batches, values, space)[0]

    middle = np.array([np.log(batches).mean(), 0.0])[: len(low)]  # the classical start: gamma 1, amid the batches
    starts = [*_minima(residuals, low, high), middle] if near is None else [np.clip(near, low, high), middle]
    found, agreed = _polished(residuals, low, high, starts)
    residual, ceiling = _eliminated(found.x, batches, values, space)
    ends = zip(("half_batch", "gamma"), np.minimum(found.x - low, high - found.x), strict=False)
    at_bound = tuple(name for name, distance in ends if distance < BOUND_DISTANCE)
    rss = float(np.sum(residual**2)) * (1.0 if space == "log" else float(values.max()) ** 2)
    spread = np.log(values) if space == "log" else values
    total = float(np.sum((spread - spread.mean()) ** 2))
    return HillFit(
        method="hill, eliminated scale, grid and polish",
        residual_space=space,
        n=len(values),
        ceiling=float(ceiling),
        half_batch=math.exp(found.x[0]),
        gamma=math.exp(found.x[1]) if free_gamma else 1.0,
        gamma_fixed=not free_gamma,
        at_bound=at_bound,
        status=AT_BOUND if at_bound else CONVERGED if found.success else UNFINISHED,
        starts=len(starts),
        starts_agreed=agreed,
        rss=rss,
        r2=1 - rss / total if total > 0 else None,
    )


def _minima(residuals: Callable[[Floats], Floats], low: Floats, high: Floats) -> list[Floats]:
    """The best points of the grid that have no better neighbour."""
    grid = np.stack(np.meshgrid(*np.linspace(low, high, GRID_POINTS).T, indexing="ij"), axis=-1)
    costs = np.sum(residuals(grid) ** 2, axis=-1)
    around = np.pad(costs, 1, constant_values=np.inf)
    shifts = itertools.product((0, 1, 2), repeat=costs.ndim)
    least = np.min([around[tuple(slice(at, at + GRID_POINTS) for at in shift)] for shift in shifts], axis=0)
    minima = np.flatnonzero((costs == least).ravel())
    chosen = minima[np.argsort(costs.ravel()[minima], kind="stable")][:GRID_STARTS]
    return list(grid.reshape(-1, len(low))[chosen])


def _polished(
    residuals: Callable[[Floats], Floats], low: Floats, high: Floats, starts: list[Floats]
) -> tuple[Any, int]:
    """The best optimum that the starts lead to, and how many of them lead there."""
    tight = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    made = [least_squares(residuals, start, bounds=(low, high), **tight) for start in starts]
    best = min(made, key=lambda one: float(one.cost))
    return best, sum(bool(one.cost <= best.cost * (1 + AGREEMENT) + EXACT_FIT**2) for one in made)


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
    """Profile interval of Smax around a fit, in its own residuals; None for an end that is open or undefined.

    Both ends are None without degrees of freedom.
    """
    require_level(alpha, "alpha")
    freedom = fit.n - (2 if fit.gamma_fixed else 3)
    if freedom < 1:
        return None, None
    profile = _Profile(batches, values, fit)
    best = max(fit.rss / profile.unit**2, fit.n * EXACT_FIT**2)
    threshold = best * (1 + float(fdtri(1, freedom, 1 - alpha)) / freedom)
    lower = profile.crossing(threshold, -1)
    return lower, None if profile.power_law_rss() <= threshold else profile.crossing(threshold, 1)


class _Profile:
    """Residual sum of squares as a function of a fixed ln Smax, followed outward from the best fit."""

    def __init__(self, batches: Floats, values: Floats, fit: HillFit) -> None:
        self.linear, self.fixed = fit.residual_space == "linear", fit.gamma_fixed
        self.unit = float(values.max()) if self.linear else 1.0  # linear residuals are divided by it
        self.log_batches, self.log_values, self.scaled = np.log(batches), np.log(values), values / self.unit
        self.best = math.log(fit.ceiling)
        excess = max(fit.gamma - GAMMA_RANGE[0], 1e-6)  # gamma = its least value + exp(theta[1]) stays in its range
        self.theta = np.array([math.log(fit.half_batch), math.log(excess)][: 1 if fit.gamma_fixed else 2])

    def power_law_rss(self) -> float:
        """The limit of the profile as Smax grows without end: S proportional to B^gamma."""
        x, y = self.log_batches - self.log_batches.mean(), self.log_values - self.log_values.mean()
        if not self.linear:
            slope = 1.0 if self.fixed else max(GAMMA_RANGE[0], float(x @ y) / float(x @ x))
            return float(np.sum((y - slope * x) ** 2))

        def cost(gamma: float) -> float:
            power = np.exp(gamma * (self.log_batches - self.log_batches.max()))
            return float(np.sum((self.scaled - power * (power @ self.scaled) / (power @ power)) ** 2))

        return cost(1.0) if self.fixed else float(minimize_scalar(cost, bounds=GAMMA_RANGE, method="bounded").fun)

    def rss(self, log_ceiling: float, theta: Floats) -> tuple[float, Floats]:
        """Best residual sum of squares at this ceiling and where it lies, from the neighbour's `theta`."""

        def position(theta: Floats) -> tuple[Floats, Any]:
            # Where nothing depends on a parameter, the optimizer's step has no end or is no number.
            theta = np.clip(np.nan_to_num(theta, nan=FARTHEST), -FARTHEST, FARTHEST)
            gamma = 1.0 if self.fixed else GAMMA_RANGE[0] + math.exp(min(theta[1], 50.0))
            return gamma * (theta[0] - self.log_batches), gamma

        def residuals(theta: Floats) -> Floats:
            fitted = log_ceiling - np.logaddexp(0.0, position(theta)[0])
            return self.scaled - np.exp(fitted) / self.unit if self.linear else self.log_values - fitted

        def slopes(theta: Floats) -> Floats:
            place, gamma = position(theta)
            columns = [np.full_like(place, gamma), place * (1 - GAMMA_RANGE[0] / gamma)][: len(theta)]
            left: Floats = expit(place)  # 1 - S / Smax
            if self.linear:
                left = left * (1 - left) * math.exp(log_ceiling) / self.unit
            return np.stack(columns, axis=1) * left[:, np.newaxis]

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
