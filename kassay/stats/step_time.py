"""Does one law explain the decode step at every context, where a Hill curve explains one context at a time?

    step_s = a + c B + d B T

a is the fixed cost of a step, c the cost of a sequence, d that of a cached token of a sequence; B
sequences, T cached tokens per sequence. At a fixed T it is the Hill curve of B / step_s with gamma = 1,
Smax = 1 / (c + d T) and Bh = a / (c + d T), so it compares with kassay.stats.hill. Relative residuals are
minimized (timing noise is proportional), which is linear least squares after division by the measured step.
A coefficient is never clamped: a negative one is flagged, since a cost below zero means that the law does
not hold. It fits times, never ratios.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kassay.stats import InvalidData, require_count, require_finite


@dataclass(frozen=True, kw_only=True)
class StepPoint:
    """One measured decode step."""

    batch: int  # sequences decoded together, at least 1
    context_tokens: int  # cached tokens per sequence, at least 1
    step_s: float  # seconds per decode step of the whole batch, above 0


@dataclass(frozen=True, kw_only=True)
class StepTimeFit:
    """The affine step time over several contexts."""

    method: str  # always `affine step time, relative least squares`
    n: int  # points
    contexts_tokens: tuple[int, ...]  # the different contexts, ascending
    fixed_s: float  # a, seconds
    per_sequence_s: float  # c, seconds per sequence
    per_cached_token_s: float  # d, seconds per cached token of a sequence
    degrees_of_freedom: int  # points minus 3
    rms_relative_residual: float  # root mean square of fit / measured - 1
    worst_relative_residual: float  # the residual fit / measured - 1 that is largest in size
    flags: tuple[str, ...]  # `negative_<field>` for each cost below zero, `no_degrees_of_freedom`


def fit_step_time(points: Sequence[StepPoint]) -> StepTimeFit:
    """Fit a, c and d; raises InvalidData without two contexts and three independent points above 0."""
    _check_points(points)
    contexts_tokens = tuple(sorted({point.context_tokens for point in points}))
    if len(contexts_tokens) < 2:
        raise InvalidData(f"the points have contexts {list(contexts_tokens)}, allowed are two or more different ones")
    terms = np.array([(1, point.batch, point.batch * point.context_tokens) for point in points], dtype=np.float64)
    design = terms / np.array([[point.step_s] for point in points])
    scale = np.linalg.norm(design, axis=0)
    costs, _, rank, _ = np.linalg.lstsq(design / scale, np.ones(len(points)))
    if rank < 3:
        raise InvalidData("the points do not tell the three costs apart: vary the batch at two or more contexts")
    costs = costs / scale
    residuals = design @ costs - 1
    named = dict(zip(("fixed_s", "per_sequence_s", "per_cached_token_s"), map(float, costs), strict=True))
    flags = [f"negative_{name}" for name, cost in named.items() if not cost >= 0]
    if len(points) == 3:
        flags.append("no_degrees_of_freedom")
    return StepTimeFit(
        method="affine step time, relative least squares",
        n=len(points),
        contexts_tokens=contexts_tokens,
        fixed_s=named["fixed_s"],
        per_sequence_s=named["per_sequence_s"],
        per_cached_token_s=named["per_cached_token_s"],
        degrees_of_freedom=len(points) - 3,
        rms_relative_residual=math.sqrt(float(np.mean(residuals**2))),
        worst_relative_residual=float(residuals[np.argmax(np.abs(residuals))]),
        flags=tuple(flags),
    )


def _check_points(points: Sequence[StepPoint]) -> None:
    """Raise InvalidData unless every point has counts of at least 1 and a finite time above 0."""
    for point in points:
        require_count(point.batch, "batch", least=1)
        require_count(point.context_tokens, "context_tokens", least=1)
        require_finite(point.step_s, "step_s")
        if not point.step_s > 0:
            raise InvalidData(f"`step_s` is {point.step_s}, allowed is above 0")
