"""Did a batch sweep at one context reach the ceiling of its throughput, or did it stop on the way?

The sweep is fitted with the Hill curve (kassay.stats.hill) in log residuals, which decide since throughput
noise is proportional, and in linear ones, which are shown beside them. The rule, first match:
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

from kassay.stats import InvalidData, Sidedness, require_count
from kassay.stats.hill import HillFit, ceiling_interval, fit_hill

FREE_GAMMA_POINTS = 6  # with fewer, gamma trades freely against Smax and Bh and is fixed at 1
FEWEST_POINTS = 4  # three points and three parameters are interpolation
LARGEST_DROP = 0.05  # relative, below any earlier batch: a kernel switch, which the curve cannot represent
REACHED = 0.8  # share of the ceiling that the fit must reach at the largest batch
WIDEST_UPPER = 1.25  # upper end of Smax over its estimate
LARGEST_MISFIT = 0.05  # rms log residual
SPACE_GAP = 0.1  # relative gap between the ceilings of log and linear residuals

State = Literal["not_identifiable", "ceiling_extrapolated", "shape_misfit", "usable"]


@dataclass(frozen=True, kw_only=True)
class SweepDiagnosis:
    """What one fixed-context batch sweep says about its ceiling."""

    method: str  # always `profile likelihood of the ceiling, log residuals`
    sidedness: Sidedness  # always `two-sided`
    alpha: float  # probability outside the interval
    value_unit: str  # unit of the values, such as `tokens/s`
    batches: tuple[float, ...]  # sequences, ascending
    values: tuple[float, ...]  # measured, one per batch
    log_fit: HillFit  # the fit that decides
    linear_fit: HillFit  # shown beside it
    degrees_of_freedom: int  # points minus fitted parameters
    ceiling_lower: float | None  # lower end of the interval of Smax; None without degrees of freedom
    ceiling_upper: float | None  # upper end; None when open or without degrees of freedom
    reached: float  # fitted value at the largest batch over the ceiling, 0 to 1
    rms_log_residual: float  # root mean square of ln S - ln fit
    largest_drop: float  # largest relative fall of a value below that of an earlier batch, 0 if it never falls
    flags: tuple[str, ...]  # what limits the reading
    state: State  # the rule's answer; only `usable` and `shape_misfit` come with a ceiling
    statement: str  # the sentence that may be printed


def diagnose_sweep(
    batches: Sequence[float], values: Sequence[float], *, value_unit: str, alpha: float
) -> SweepDiagnosis:
    """Fit one fixed-context sweep and say what may be printed of its ceiling.

    `batches` ascend (sequences), `values` hold one value above 0 for each, in `value_unit`. Raises
    InvalidData for fewer than two points, unordered or repeated batches, and values not above 0.
    """
    require_count(len(batches), "the number of batches", least=2)
    x, y = np.array(batches, dtype=np.float64), np.array(values, dtype=np.float64)
    if not (np.diff(x) > 0).all():
        raise InvalidData(
            f"the batches are {list(batches)}, allowed: ascending, the repeats of one reduced to a median"
        )
    free_gamma = len(x) >= FREE_GAMMA_POINTS
    log_fit = fit_hill(x, y, space="log", free_gamma=free_gamma)
    linear_fit = fit_hill(x, y, space="linear", free_gamma=free_gamma)
    lower, upper = ceiling_interval(x, y, log_fit, alpha=alpha)
    reached = float(expit(log_fit.gamma * math.log(x[-1] / log_fit.half_batch)))
    drop = float(np.max(1 - y / np.maximum.accumulate(y)))
    flags, state = _reading(log_fit, linear_fit, upper, reached, drop)
    return SweepDiagnosis(
        method="profile likelihood of the ceiling, log residuals",
        sidedness="two-sided",
        alpha=alpha,
        value_unit=value_unit,
        batches=tuple(map(float, batches)),
        values=tuple(map(float, values)),
        log_fit=log_fit,
        linear_fit=linear_fit,
        degrees_of_freedom=len(x) - (3 if free_gamma else 2),
        ceiling_lower=lower,
        ceiling_upper=upper,
        reached=reached,
        rms_log_residual=math.sqrt(log_fit.rss / len(x)),
        largest_drop=drop,
        flags=flags,
        state=state,
        statement=_statement(state, log_fit, float(y.max()), value_unit),
    )


def _reading(
    log_fit: HillFit, linear_fit: HillFit, upper: float | None, reached: float, drop: float
) -> tuple[tuple[str, ...], State]:
    """Every flag that holds, and the state of the first group that has one. NaN raises a flag."""
    groups: dict[State, dict[str, bool]] = {
        "not_identifiable": {
            "few_points": log_fit.n < FEWEST_POINTS,
            "upper_end_open": upper is None,
            "parameter_at_bound": bool(log_fit.at_bound),
            "not_monotone": not drop <= LARGEST_DROP,
        },
        "ceiling_extrapolated": {
            "plateau_not_reached": not reached >= REACHED,
            "wide_interval": upper is None or not upper <= WIDEST_UPPER * log_fit.ceiling,
        },
        "shape_misfit": {"shape_misfit": not math.sqrt(log_fit.rss / log_fit.n) <= LARGEST_MISFIT},
    }
    flags = [flag for group in groups.values() for flag, raised in group.items() if raised]
    state: State = next((name for name, group in groups.items() if any(group.values())), "usable")
    if log_fit.gamma_fixed:
        flags.append("gamma_fixed_at_1")
    if not abs(linear_fit.ceiling / log_fit.ceiling - 1) <= SPACE_GAP:
        flags.append("residual_spaces_disagree")
    return tuple(flags), state


def _statement(state: State, log_fit: HillFit, largest: float, value_unit: str) -> str:
    """The sentence that the state allows."""
    if state in ("not_identifiable", "ceiling_extrapolated"):
        return f"at least {largest:.4g} {value_unit}; ceiling not determined"
    condition = " with gamma fixed at 1" if log_fit.gamma_fixed else ""
    return f"ceiling {log_fit.ceiling:.4g} {value_unit}{condition}"
