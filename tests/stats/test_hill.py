"""The Hill fit against closed forms, published fits and simulation; readings of sweeps; step times."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kassay.stats import Floats, InvalidData
from kassay.stats.hill import Space, ceiling_interval, elasticity, fit_hill, hill_curve
from kassay.stats.saturation import diagnose_sweep
from kassay.stats.step_time import StepPoint, fit_step_time

SHARED = Path(__file__).parents[3] / "shared" / "data"
WIDE = np.array([1.0, 2, 4, 8, 16, 32, 64, 128, 256, 512])
# B200, Qwen2.5-7B, 4,096 cached tokens: batch and tokens per second (mcgrof/public-knlp-key-results@48c0c0f1)
B200_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96)
B200_TOKENS_PER_S = (118.7, 230.9, 452.3, 809.3, 1514.7, 2136.7, 2587.5, 3368.4, 3401.6, 3886.7)
# A100, one attention layer, 16,384 cached tokens: the kernel switches between batch 2 and 4
A100_BATCHES = (1, 2, 4, 8, 16, 32, 64)
A100_TOKENS_PER_S = (4909.18, 5458.52, 3329.45, 4574.57, 5224.49, 5242.21, 5397.52)


def noisy(batches: Floats, *, half_batch: float, gamma: float, noise: float, seed: int) -> list[float]:
    """Rates around a curve with ceiling 5,000 and proportional noise."""
    rng = np.random.Generator(np.random.PCG64(seed))
    curve = hill_curve(batches, ceiling=5000.0, half_batch=half_batch, gamma=gamma)
    return [float(rate) for rate in curve * np.exp(rng.normal(0, noise, size=len(batches)))]


@pytest.mark.parametrize(("fraction", "gain_percent"), [(1 / 2, "14.3"), (9 / 10, "2.6")])
def test_more_capacity_gains_what_the_illustration_prints(fraction: float, gain_percent: str) -> None:
    """f (Bh + B) / (Bh + f B) with f = 4/3: 8/7 at half the ceiling, 40/39 at nine tenths of it."""
    batch = np.array([fraction / (1 - fraction)])
    curve = [hill_curve(factor * batch, ceiling=1.0, half_batch=1.0, gamma=1.0)[0] for factor in (1, 4 / 3)]
    assert f"{100 * (curve[1] / curve[0] - 1):.1f}" == gain_percent


def test_curve_and_elasticity_at_published_points() -> None:
    reached = hill_curve(np.array([16.0, 64.0]), ceiling=1.0, half_batch=5.1, gamma=1.32)
    assert [f"{100 * share:.1f}" for share in reached] == ["81.9", "96.6"]
    assert math.isclose(elasticity(np.array([9.0]), half_batch=1.0, gamma=1.0)[0], 0.1)


def test_two_points_and_gamma_1_are_solved_exactly() -> None:
    fit = fit_hill(np.array([4.0, 64]), np.array([200.0, 800]), space="log", free_gamma=False)
    assert math.isclose(fit.half_batch, 16, rel_tol=1e-9)
    assert math.isclose(fit.ceiling, 1000, rel_tol=1e-9)


@pytest.mark.parametrize("space", ["log", "linear"])
@pytest.mark.parametrize("free_gamma", [True, False])
def test_exact_points_give_the_exact_curve(space: Space, free_gamma: bool) -> None:
    batches = WIDE[:7]
    fit = fit_hill(batches, 1000 * batches / (16 + batches), space=space, free_gamma=free_gamma)
    assert math.isclose(fit.ceiling, 1000, rel_tol=1e-6)
    assert math.isclose(fit.half_batch, 16, rel_tol=1e-6)
    assert math.isclose(fit.gamma, 1, rel_tol=1e-6)
    assert fit.at_bound == ()


def test_linear_least_squares_of_the_bug_case() -> None:
    """O23 (c): the optimum, which a double-reciprocal line (957.98, 15.06) misses."""
    values = np.array([60.0, 110, 200, 335, 500, 665, 800])
    fit = fit_hill(WIDE[:7], values, space="linear", free_gamma=False)
    assert math.isclose(fit.ceiling, 998.27986, rel_tol=1e-6)
    assert math.isclose(fit.half_batch, 15.939464, rel_tol=1e-6)
    assert math.isclose(fit.rss, 7.292890, rel_tol=1e-6)


@pytest.mark.parametrize("space", ["log", "linear"])
def test_a_fit_is_the_same_in_any_unit(space: Space) -> None:
    batches, values = np.array(B200_BATCHES, dtype=np.float64), np.array(B200_TOKENS_PER_S)
    small, large = (fit_hill(batches, scale * values, space=space, free_gamma=True) for scale in (1e-6, 1e6))
    assert math.isclose(large.ceiling / small.ceiling, 1e12, rel_tol=1e-6)
    assert math.isclose(large.half_batch, small.half_batch, rel_tol=1e-6)


def test_the_published_b200_fit_and_what_it_hides() -> None:
    """Linear residuals print the published 4698, 27.1, 1.26; log residuals say 5898, and unreached."""
    sweep = diagnose_sweep(B200_BATCHES, B200_TOKENS_PER_S, value_unit="tokens/s", alpha=0.05)
    linear, log = sweep.linear_fit, sweep.log_fit
    assert (f"{linear.ceiling:.0f}", f"{linear.half_batch:.1f}", f"{linear.gamma:.2f}") == (
        "4698",
        "27.1",
        "1.26",
    )
    assert (f"{log.ceiling:.0f}", f"{log.half_batch:.1f}", f"{log.gamma:.2f}") == ("5898", "43.6", "1.04")
    assert sweep.ceiling_lower is not None
    assert sweep.ceiling_upper is not None
    assert abs(sweep.ceiling_lower - 4863) < 1  # the rates above are rounded to 0.1
    assert abs(sweep.ceiling_upper - 7623) < 1
    assert f"{sweep.reached:.2f}" == "0.69"
    assert sweep.state == "ceiling_extrapolated"
    assert sweep.flags == ("plateau_not_reached", "wide_interval", "residual_spaces_disagree")
    assert sweep.statement == "at least 3887 tokens/s; ceiling not determined"


@pytest.mark.parametrize("gamma", [0.8, 1.0, 1.5])
def test_a_covered_plateau_is_usable_and_right_within_2_percent(gamma: float) -> None:
    values = noisy(WIDE, half_batch=12, gamma=gamma, noise=0.002, seed=21)
    sweep = diagnose_sweep(tuple(WIDE), values, value_unit="tokens/s", alpha=0.05)
    assert sweep.state == "usable"
    assert math.isclose(sweep.log_fit.ceiling, 5000, rel_tol=0.02)
    assert math.isclose(sweep.log_fit.half_batch, 12, rel_tol=0.02)
    assert math.isclose(sweep.log_fit.gamma, gamma, rel_tol=0.02)
    assert sweep.statement.startswith("ceiling ")


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("last", [6, 7, 8])
def test_a_sweep_that_stops_early_is_never_usable(noise: float, last: int) -> None:
    batches = WIDE[:last]
    for seed in range(5):
        values = noisy(batches, half_batch=100, gamma=1, noise=noise, seed=seed)
        sweep = diagnose_sweep(tuple(batches), values, value_unit="tokens/s", alpha=0.05)
        assert sweep.state in ("not_identifiable", "ceiling_extrapolated")
        assert sweep.statement.startswith("at least ")


def test_a_straight_line_has_an_open_upper_end() -> None:
    values = [118 * float(b) * factor for b, factor in zip(WIDE[:6], (1, 1.01, 0.99, 1, 1.01, 0.99), strict=True)]
    sweep = diagnose_sweep(tuple(WIDE[:6]), values, value_unit="tokens/s", alpha=0.05)
    assert sweep.ceiling_upper is None
    assert "upper_end_open" in sweep.flags
    assert sweep.state == "not_identifiable"


def test_a_drop_above_5_percent_is_refused_even_in_small_steps() -> None:
    sweep = diagnose_sweep(A100_BATCHES, A100_TOKENS_PER_S, value_unit="tokens/s", alpha=0.05)
    assert f"{sweep.largest_drop:.2f}" == "0.39"
    assert "not_monotone" in sweep.flags
    assert sweep.state == "not_identifiable"
    values = noisy(WIDE, half_batch=4, gamma=1, noise=0.0, seed=0)
    values[-2:] = [values[-3] * 0.97, values[-3] * 0.94]
    assert diagnose_sweep(tuple(WIDE), values, value_unit="tokens/s", alpha=0.05).state == "not_identifiable"


def test_a_step_is_no_hill_curve() -> None:
    values = [100.0, 101, 400, 402, 399, 401, 400, 402]
    sweep = diagnose_sweep(tuple(WIDE[:8]), values, value_unit="tokens/s", alpha=0.05)
    assert "shape_misfit" in sweep.flags
    assert sweep.state != "usable"


def test_a_misfit_is_said_to_be_one() -> None:
    values = [v * f for v, f in zip(noisy(WIDE, half_batch=6, gamma=1, noise=0, seed=0), [1, 1.2] * 5, strict=True)]
    values = list(np.maximum.accumulate(values))
    sweep = diagnose_sweep(tuple(WIDE), values, value_unit="tokens/s", alpha=0.05)
    assert sweep.rms_log_residual > 0.05
    assert sweep.state != "usable"


def test_few_points_fix_gamma_and_say_so() -> None:
    batches = (1.0, 4.0, 16.0, 64.0, 256.0)
    values = noisy(np.array(batches), half_batch=4, gamma=1, noise=0.002, seed=3)
    sweep = diagnose_sweep(batches, values, value_unit="tokens/s", alpha=0.05)
    assert sweep.log_fit.gamma_fixed
    assert sweep.degrees_of_freedom == 3
    assert "gamma_fixed_at_1" in sweep.flags
    assert sweep.statement.endswith("with gamma fixed at 1")
    three = diagnose_sweep(batches[:3], values[:3], value_unit="tokens/s", alpha=0.05)
    assert three.state == "not_identifiable"
    two = diagnose_sweep(batches[:2], values[:2], value_unit="tokens/s", alpha=0.05)
    assert (two.degrees_of_freedom, two.ceiling_lower, two.ceiling_upper) == (0, None, None)


def test_the_profile_interval_covers_in_simulation() -> None:
    """95 % intervals of 8 points up to 2.6 Bh with 3 % noise: hill.md's own simulation found 93 to 98 %."""
    batches = WIDE[:8]
    covered = 0
    for seed in range(150):
        values = np.array(noisy(batches, half_batch=50, gamma=1, noise=0.03, seed=seed))
        fit = fit_hill(batches, values, space="log", free_gamma=True)
        lower, upper = ceiling_interval(batches, values, fit, alpha=0.05)
        assert lower is not None
        covered += lower <= 5000 and (upper is None or upper >= 5000)
    assert 134 <= covered <= 149


@pytest.mark.parametrize(
    ("batches", "values"),
    [
        ((1,), (1.0,)),
        ((1, 1, 2, 4), (1.0, 1.0, 2.0, 3.0)),
        ((2, 1), (1.0, 2.0)),
        ((1, 2, 4), (1.0, float("nan"), 3.0)),
        ((1, 2, 4), (1.0, 0.0, 3.0)),
        ((1, 2, 4), (1.0, -2.0, 3.0)),
        ((0, 2, 4), (1.0, 2.0, 3.0)),
        ((1, 2, 4), (1.0, 2.0)),
        ((1, 2, float("inf")), (1.0, 2.0, 3.0)),
    ],
)
def test_points_that_are_no_sweep_are_invalid(batches: tuple[float, ...], values: tuple[float, ...]) -> None:
    with pytest.raises(InvalidData):
        diagnose_sweep(batches, values, value_unit="tokens/s", alpha=0.05)


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


# --- the public measurements, where they are at hand


def rows(name: str) -> list[dict[str, Any]]:
    """The records of one public data file; skips the test without it."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"the public measurements are not at hand: {path}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_published_ratio_fit_on_its_767_records() -> None:
    data = rows("hill_int4_h100.jsonl")
    batches = np.array([row["batch_sequences"] for row in data], dtype=np.float64)
    ratios = np.array([row["speedup_ratio_mean"] for row in data], dtype=np.float64)
    fit = fit_hill(batches, ratios, space="linear", free_gamma=True)
    assert fit.r2 is not None
    got = (fit.n, f"{fit.ceiling:.3f}", f"{fit.half_batch:.3f}", f"{fit.gamma:.3f}", f"{fit.r2:.4f}")
    assert got == (767, "3.746", "5.089", "1.322", "0.8027")


def test_states_of_every_tenth_public_sweep() -> None:
    """The states that the rule was set with, on sweeps of six or more batches (fewer fix gamma here)."""
    key = ("family", "gpu", "model", "label_in_source", "kv_cache_format", "context_tokens")
    sweeps: dict[tuple[str, ...], dict[float, float]] = {}
    for row in rows("decode_sweeps.jsonl"):
        if row.get("throughput_tokens_per_s"):
            points_of = sweeps.setdefault(tuple(str(row.get(name)) for name in key), {})
            points_of[row["batch_sequences"]] = row["throughput_tokens_per_s"]
    fitted = [fit for fit in rows("hill_fits.jsonl") if fit["points"] >= 6]
    agreed = []
    for fit in fitted[::10]:
        points = sorted(sweeps[tuple(str(fit.get(name)) for name in key)].items())
        batches, values = zip(*points, strict=True)
        sweep = diagnose_sweep(batches, values, value_unit="tokens/s", alpha=0.05)
        agreed.append(sweep.state == fit["verdict"])
        if fit["verdict"] == "usable" and agreed[-1]:
            assert math.isclose(sweep.log_fit.ceiling, fit["ceiling_tokens_per_s"], rel_tol=1e-3)
    assert sum(agreed) >= 0.97 * len(agreed)


def test_the_public_b200_step_times() -> None:
    """45 points, 1K to 384K tokens: a = 8.3 ms, c = 16 us, d about 31.8 ns, rms 3.9 %."""
    points = [
        StepPoint(batch=row["batch_sequences"], context_tokens=row["context_tokens"], step_s=row["step_latency_s"])
        for row in rows("decode_sweeps.jsonl")
        if row["family"].startswith("b200") and row["scope"] == "model_decode_step"
    ]
    fit = fit_step_time(points)
    assert fit.n == 45
    assert f"{1e3 * fit.fixed_s:.1f}" == "8.3"
    assert f"{1e6 * fit.per_sequence_s:.0f}" == "16"
    assert math.isclose(fit.per_cached_token_s, 31.8e-9, rel_tol=0.01)
    assert f"{100 * fit.rms_relative_residual:.1f}" == "3.9"
