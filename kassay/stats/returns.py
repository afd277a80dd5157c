"""What does a larger batch, or room for one, give at a point of a sweep, and what does it cost each request?

    elasticity          d ln S / d ln B = gamma (1 - S / Smax)
    marginal rate       dS / dB = elasticity * S / B                       per sequence more
    return of capacity  S(f B) / S(B)                                       room for f times the sequences, all in use
    time per token      B / S(B), of each request; f / (return of capacity) times as long with that room
    f_KV                d B T / (a + c B + d B T), the cached tokens' share of a step's time

S is the fitted curve of one sweep, a, c and d the affine step time's (kassay.stats.step_time); f_KV by bytes, which
needs the weights, is kassay.kv.offload's. Inside the sweep the curve is an interpolation. Beyond its largest batch
nothing is priced unless the ceiling may be believed, and a return of capacity says nothing of a device's other limits.
Rates only: a ratio's fit has no time per token.
"""

from dataclasses import dataclass

import numpy as np

from kassay.stats import InvalidData, require_finite
from kassay.stats.hill import elasticity, hill_curve
from kassay.stats.saturation import SweepDiagnosis
from kassay.stats.step_time import StepTimeFit


@dataclass(frozen=True, kw_only=True)
class BatchReturn:
    """The sweep at one of its batches."""

    batch: float  # sequences
    fitted_per_s: float  # S by the curve, in the sweep's unit
    elasticity: float  # relative gain of S per relative gain of B
    marginal_per_s: float  # dS / dB, in the sweep's unit per sequence
    token_time_s: float  # B / measured S: seconds per output token of each request


@dataclass(frozen=True, kw_only=True)
class CapacityReturn:
    """What room for more sequences gives, if all of it is used."""

    batch: float  # sequences before
    factor: float  # sequences after over before
    rate_factor: float  # S after over before
    token_time_factor: float  # time per token of each request, after over before


def batch_returns(diagnosis: SweepDiagnosis) -> tuple[BatchReturn, ...]:
    """One for each measured batch. Raises InvalidData for a sweep of ratios."""
    if diagnosis.ordinate != "rate":
        raise InvalidData("a ratio of rates has no time per token and no marginal rate")
    fit, batches = diagnosis.fit, np.array(diagnosis.batches)
    fitted = hill_curve(batches, ceiling=fit.ceiling, half_batch=fit.half_batch, gamma=fit.gamma)
    elastic = elasticity(batches, half_batch=fit.half_batch, gamma=fit.gamma)
    return tuple(
        BatchReturn(
            batch=float(batch),
            fitted_per_s=float(rate),
            elasticity=float(gain),
            marginal_per_s=float(gain * rate / batch),
            token_time_s=float(batch / measured),
        )
        for batch, rate, gain, measured in zip(batches, fitted, elastic, diagnosis.values, strict=True)
    )


def capacity_return(diagnosis: SweepDiagnosis, *, batch: float, factor: float) -> CapacityReturn:
    """The return of room for `factor` times `batch` sequences.

    Raises InvalidData for a ratio, for arguments not above 0, and beyond the sweep where its ceiling is not known.
    """
    for name, value in (("batch", batch), ("factor", factor)):
        require_finite(value, name)
        if not value > 0:
            raise InvalidData(f"`{name}` is {value}, allowed is above 0")
    if diagnosis.ordinate != "rate":
        raise InvalidData("a ratio of rates has no return of capacity")
    largest = max(batch, batch * factor)
    if largest > diagnosis.batches[-1] and not diagnosis.priced:
        raise InvalidData(
            f"a batch of {largest:g} lies beyond the sweep, which ends at {diagnosis.batches[-1]:g} and is "
            f"`{diagnosis.state}`: {diagnosis.statement}"
        )
    fit = diagnosis.fit
    before, after = hill_curve(
        np.array([batch, batch * factor]), ceiling=1.0, half_batch=fit.half_batch, gamma=fit.gamma
    )
    gained = float(after / before)
    return CapacityReturn(batch=batch, factor=factor, rate_factor=gained, token_time_factor=factor / gained)


def cached_time_share(fit: StepTimeFit, *, batch: float, context_tokens: float) -> float:
    """f_KV by time, 0 to 1. Raises InvalidData where a cost is below zero: the law does not hold there."""
    if costs := [flag for flag in fit.flags if flag.startswith("negative_")]:
        raise InvalidData(f"the affine step time has {', '.join(costs)}: there are no shares of a time that it gives")
    if not (batch > 0 and context_tokens > 0):
        raise InvalidData(f"a batch of {batch} at {context_tokens} tokens, allowed is above 0")
    cached = fit.per_cached_token_s * batch * context_tokens
    return cached / (fit.fixed_s + fit.per_sequence_s * batch + cached)
