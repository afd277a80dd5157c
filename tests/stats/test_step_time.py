"""The affine step time: planted costs, relative residuals, and points that tell nothing apart."""

import math

import pytest

from kassay.stats import InvalidData
from kassay.stats.step_time import StepPoint, fit_step_time


def affine(batch: int, context_tokens: int, factor: float) -> StepPoint:
    """A step of 8.3 ms + 16 us a sequence + 31.8 ns a cached token, times a factor."""
    step_s = 8.3e-3 + 16e-6 * batch + 31.8e-9 * batch * context_tokens
    return StepPoint(batch=batch, context_tokens=context_tokens, step_s=step_s * factor)


def test_affine_step_times_are_recovered() -> None:
    points = [affine(batch, tokens, 1.0) for tokens in (512, 4096) for batch in (1, 8, 32, 128)]
    fit = fit_step_time(points)
    assert math.isclose(fit.fixed_s, 8.3e-3, rel_tol=1e-9)
    assert math.isclose(fit.per_sequence_s, 16e-6, rel_tol=1e-7)
    assert math.isclose(fit.per_cached_token_s, 31.8e-9, rel_tol=1e-9)
    assert fit.rms_relative_residual < 1e-12
    assert (fit.contexts_tokens, fit.degrees_of_freedom, fit.flags) == ((512, 4096), 5, ())


def test_affine_residuals_are_relative() -> None:
    factors = [1.02, 0.98] * 6
    points = [
        affine(b, t, f)
        for (b, t), f in zip([(b, t) for t in (512, 4096) for b in (1, 4, 8, 16, 32, 64)], factors, strict=True)
    ]
    fit = fit_step_time(points)
    assert 0.01 < fit.rms_relative_residual < 0.021
    assert abs(fit.worst_relative_residual) >= fit.rms_relative_residual


def test_a_negative_cost_is_flagged_not_clamped() -> None:
    points = [
        StepPoint(batch=b, context_tokens=t, step_s=0.01 + 1e-3 * b - 1e-9 * b * t)
        for t in (512, 4096)
        for b in (1, 8, 32)
    ]
    fit = fit_step_time(points)
    assert fit.per_cached_token_s < 0
    assert fit.flags == ("negative_per_cached_token_s",)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [affine(b, 512, 1.0) for b in (1, 2, 4, 8)],
        [affine(4, t, 1.0) for t in (512, 1024, 2048)],
        [affine(1, 512, 1.0), affine(2, 1024, 1.0), affine(4, 2048, float("nan"))],
        [affine(1, 512, 1.0), affine(2, 1024, 1.0), affine(4, 2048, 0.0)],
    ],
)
def test_step_times_that_tell_nothing_apart_are_invalid(points: list[StepPoint]) -> None:
    with pytest.raises(InvalidData):
        fit_step_time(points)
