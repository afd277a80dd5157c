"""Did a batch sweep at one context reach the ceiling of its throughput, or did it stop on the way?

The sweep is fitted with the Hill curve (kassay.stats.hill) in log and in linear residuals. Those that were declared
decide, the others are shown beside them: log for a rate, whose noise is proportional; linear is defensible for a
ratio of 1 to 5. A rate and a ratio are different ordinates, and no fit, axis or pool joins them. The rule, first match:
    not_identifiable      3 points or fewer, upper end open, a parameter at a bound, or a drop above 5 %
    ceiling_extrapolated  fit at the largest batch below 80 % of the ceiling, or upper end > 1.25 x estimate
    shape_misfit          rms log residual above 5 %
    usable                otherwise
In the first two states only "at least [largest measured]" may be printed: no ceiling, no price of a batch
beyond the sweep. Fewer than 6 points fix gamma = 1, and flags and statement say so: the ceiling then hangs on
that shape. R2 is no gate: of 468 public fits with R2 above 0.99, 231 are not usable.

Source: the rule was set on 954 public sweeps, whose states it reproduces where gamma is free (539 of 546;
the seven others have a wider or open upper end here). Values of one sweep share a unit and a context;
repeats of a batch are reduced to their median before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from kassay.stats import Floats, InvalidData, Sidedness, require_count
from kassay.stats.hill import CONVERGED, HillFit, Space, ceiling_interval, fit_hill, hill_curve

FREE_GAMMA_POINTS = 6  # with fewer, gamma trades freely against Smax and Bh and is fixed at 1
FEWEST_POINTS = 4  # three points and three parameters are interpolation
LARGEST_DROP = 0.05  # relative, below any earlier batch: a kernel switch, which the curve cannot represent
REACHED = 0.8  # share of the ceiling that the fit must reach at the largest batch
WIDEST_UPPER = 1.25  # upper end of Smax over its estimate
LARGEST_MISFIT = 0.05  # rms log residual
SPACE_GAP = 0.1  # relative gap between the ceilings of log and linear residuals

CLIMBING = 0.5  # d ln S / d ln B between the last two batches from which the sweep is said to be climbing still
RATIO_UNIT = "1"  # of a value that is a ratio of two rates

State = Literal["not_identifiable", "ceiling_extrapolated", "shape_misfit", "usable"]
Ordinate = Literal["rate", "ratio"]


@dataclass(frozen=True, kw_only=True)
class SweepDiagnosis:
    """What one fixed-context batch sweep says about its ceiling."""

    method: str  # `profile likelihood of the ceiling, log residuals`, or linear ones
    sidedness: Sidedness  # always `two-sided`
    alpha: float  # probability outside the interval
    value_unit: str  # unit of the values, such as `tokens/s`
    batches: tuple[float, ...]  # sequences, ascending
    values: tuple[float, ...]  # measured, one per batch
    residual_space: Space  # of the fit that decides, as declared
    log_fit: HillFit  # decides if `residual_space` is `log`, else shown beside the other
    linear_fit: HillFit  # the other way round
    degrees_of_freedom: int  # points minus fitted parameters
    ceiling_lower: float | None  # lower end of the interval of Smax; None without degrees of freedom
    ceiling_upper: float | None  # upper end; None when open or without degrees of freedom
    reached: float  # fitted value at the largest batch over the ceiling, 0 to 1
    rms_log_residual: float  # root mean square of ln S - ln fit
    largest_drop: float  # largest relative fall of a value below that of an earlier batch, 0 if it never falls
    flags: tuple[str, ...]  # what limits the reading
    state: State  # the rule's answer; only `usable` and `shape_misfit` come with a ceiling
    statement: str  # the sentence that may be printed

    @property
    def fit(self) -> HillFit:
        """The fit that decides."""
        return self.log_fit if self.residual_space == "log" else self.linear_fit

    @property
    def other_fit(self) -> HillFit:
        """The fit that is shown beside it."""
        return self.linear_fit if self.residual_space == "log" else self.log_fit

    @property
    def ordinate(self) -> Ordinate:
        """What the values are."""
        return "ratio" if self.value_unit == RATIO_UNIT else "rate"

    @property
    def priced(self) -> bool:
        """Whether a batch beyond the sweep may be priced."""
        return self.state in ("usable", "shape_misfit")


def diagnose_sweep(
    batches: Sequence[float],
    values: Sequence[float],
    *,
    value_unit: str,
    alpha: float,
    space: Space = "log",
    free_gamma_points: int = FREE_GAMMA_POINTS,
) -> SweepDiagnosis:
    """Fit one fixed-context sweep, in the declared residual `space`, and say what may be printed of its ceiling.

    `batches` ascend (sequences), `values` hold one value above 0 for each, in `value_unit`; gamma is fitted from
    `free_gamma_points` points on. Raises InvalidData for points that are no sweep.
    """
    x, y = _points(batches, values)
    free_gamma = len(x) >= free_gamma_points
    log_fit = fit_hill(x, y, space="log", free_gamma=free_gamma)
    linear_fit = fit_hill(x, y, space="linear", free_gamma=free_gamma)
    fit, other = (log_fit, linear_fit) if space == "log" else (linear_fit, log_fit)
    lower, upper = ceiling_interval(x, y, fit, alpha=alpha)
    reached = float(expit(fit.gamma * math.log(x[-1] / fit.half_batch)))
    drop = float(np.max(1 - y / np.maximum.accumulate(y)))
    rms = _rms_log_residual(x, y, fit)
    flags, state = _reading(fit, other, upper, reached, drop, rms)
    climbing = math.log(y[-1] / y[-2]) > CLIMBING * math.log(x[-1] / x[-2])
    return SweepDiagnosis(
        method=f"profile likelihood of the ceiling, {space} residuals",
        sidedness="two-sided",
        alpha=alpha,
        value_unit=value_unit,
        batches=tuple(map(float, batches)),
        values=tuple(map(float, values)),
        residual_space=space,
        log_fit=log_fit,
        linear_fit=linear_fit,
        degrees_of_freedom=len(x) - (3 if free_gamma else 2),
        ceiling_lower=lower,
        ceiling_upper=upper,
        reached=reached,
        rms_log_residual=rms,
        largest_drop=drop,
        flags=(*flags, "still_climbing") if climbing else flags,
        state=state,
        statement=_statement(state, fit, float(y.max()), value_unit),
    )


def _points(batches: Sequence[float], values: Sequence[float]) -> tuple[Floats, Floats]:
    """The points as arrays; raises InvalidData for fewer than two and for batches that do not ascend."""
    require_count(len(batches), "the number of batches", least=2)
    x = np.array(batches, dtype=np.float64)
    if not (np.diff(x) > 0).all():
        raise InvalidData(
            f"the batches are {list(batches)}, allowed: ascending, the repeats of one reduced to a median"
        )
    return x, np.array(values, dtype=np.float64)


def _rms_log_residual(x: Floats, y: Floats, fit: HillFit) -> float:
    """Root mean square of ln S - ln fit, whichever residuals were minimized."""
    curve = hill_curve(x, ceiling=fit.ceiling, half_batch=fit.half_batch, gamma=fit.gamma)
    return math.sqrt(float(np.mean(np.log(y / curve) ** 2)))


def _reading(
    fit: HillFit, other: HillFit, upper: float | None, reached: float, drop: float, rms: float
) -> tuple[tuple[str, ...], State]:
    """Every flag that holds, and the state of the first group that has one. NaN raises a flag."""
    groups: dict[State, dict[str, bool]] = {
        "not_identifiable": {
            "few_points": fit.n < FEWEST_POINTS,
            "upper_end_open": upper is None,
            "parameter_at_bound": fit.status != CONVERGED,
            "not_monotone": not drop <= LARGEST_DROP,
        },
        "ceiling_extrapolated": {
            "plateau_not_reached": not reached >= REACHED,
            "wide_interval": upper is None or not upper <= WIDEST_UPPER * fit.ceiling,
        },
        "shape_misfit": {"shape_misfit": not rms <= LARGEST_MISFIT},
    }
    flags = [flag for group in groups.values() for flag, raised in group.items() if raised]
    state: State = next((name for name, group in groups.items() if any(group.values())), "usable")
    if fit.gamma_fixed:
        flags.append("gamma_fixed_at_1")
    if not abs(other.ceiling / fit.ceiling - 1) <= SPACE_GAP:
        flags.append("residual_spaces_disagree")
    return tuple(flags), state


def _statement(state: State, fit: HillFit, largest: float, value_unit: str) -> str:
    """The sentence that the state allows."""
    if state in ("not_identifiable", "ceiling_extrapolated"):
        return f"at least {largest:.4g} {value_unit}; ceiling not determined"
    condition = " with gamma fixed at 1" if fit.gamma_fixed else ""
    return f"ceiling {fit.ceiling:.4g} {value_unit}{condition}"


def require_one_ordinate(diagnoses: Sequence[SweepDiagnosis]) -> Ordinate:
    """The ordinate that all share. Raises InvalidData for none, and where rates and ratios would share one."""
    found = {diagnosis.ordinate for diagnosis in diagnoses}
    if len(found) != 1:
        raise InvalidData(f"the fits are of {sorted(found) or 'nothing'}: rates and ratios share no axis and no fit")
    return found.pop()
