"""Laws over contexts, returns of a batch, and clusters: planted truths, refusals, and units that do not mix."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kassay.stats import Floats, InvalidData
from kassay.stats.clusters import cluster_intervals
from kassay.stats.hill import fit_hill, hill_curve
from kassay.stats.laws import AFFINE, EACH_CONTEXT, OF_BATCH, OF_CACHED, LawFit, compare_laws
from kassay.stats.returns import batch_returns, cached_time_share, capacity_return
from kassay.stats.saturation import diagnose_sweep, require_one_ordinate
from kassay.stats.step_time import StepPoint, fit_step_time

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (512, 2048, 8192)


def grid(step: Any, noise: float = 0.01, seed: int = 1) -> list[StepPoint]:
    """Steps of a planted law with proportional noise."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return [
        StepPoint(batch=b, context_tokens=t, step_s=float(step(b, t) * np.exp(rng.normal(0, noise))))
        for t in CONTEXTS
        for b in BATCHES
    ]


def affine(batch: int, tokens: int) -> float:
    """A planted affine step."""
    return 8e-3 + 2e-5 * batch + 3e-8 * batch * tokens


def of_batch(batch: int, tokens: int) -> float:
    """A planted rate that the context does not touch, with gamma 1.4."""
    return float(batch / hill_curve(np.array([float(batch)]), ceiling=4000.0, half_batch=9.0, gamma=1.4)[0])


def of_cached(batch: int, tokens: int) -> float:
    """A planted rate that only all cached tokens decide."""
    rate = hill_curve(np.array([float(batch * tokens)]), ceiling=4000.0, half_batch=30_000.0, gamma=1.3)[0]
    return float(batch / rate)


def laws(points: list[StepPoint], space: Any = "log") -> dict[str, LawFit]:
    """The laws by name."""
    return {law.law: law for law in compare_laws(points, space=space).laws}


@pytest.mark.parametrize("space", ["log", "linear"])
@pytest.mark.parametrize(("step", "law"), [(affine, AFFINE), (of_batch, OF_BATCH), (of_cached, OF_CACHED)])
def test_the_planted_law_has_the_least_criterion(step: Any, law: str, space: Any) -> None:
    comparison = compare_laws(grid(step, noise=0.005), space=space)
    assert comparison.best == law
    winner = next(fit for fit in comparison.laws if fit.law == law)
    assert winner.rms_log_residual < 0.02 and len(winner.residuals) == winner.n == 24


def test_planted_costs_are_recovered_and_criteria_are_the_formulas() -> None:
    law = laws(grid(affine, noise=0.0))[AFFINE]
    assert math.isclose(law.parameters["fixed_s"], 8e-3, rel_tol=1e-6)
    assert math.isclose(law.parameters["per_cached_token_s"], 3e-8, rel_tol=1e-6)
    noisy = laws(grid(affine))[AFFINE]
    assert math.isclose(noisy.rss, sum(each**2 for each in noisy.residuals), rel_tol=1e-12)
    assert math.isclose(noisy.aic, 24 * math.log(noisy.rss / 24) + 2 * 4, rel_tol=1e-12)
    assert noisy.aicc is not None and math.isclose(noisy.aicc - noisy.aic, 2 * 4 * 5 / (24 - 4 - 1))


def test_more_parameters_have_less_residual_and_do_not_win_by_it() -> None:
    found = laws(grid(affine, noise=0.02, seed=4))
    assert len(found[EACH_CONTEXT].parameters) == 9 and len(found[AFFINE].parameters) == 3
    assert found[EACH_CONTEXT].rss < found[AFFINE].rss
    assert (found[EACH_CONTEXT].aicc or 0) > (found[AFFINE].aicc or 0)


def test_interpolation_has_no_criterion_and_cannot_win() -> None:
    """Three batches at two contexts: two curves of two parameters and a variance leave one degree of freedom."""
    points = [point for point in grid(affine) if point.batch in (1, 16, 128) and point.context_tokens != 512]
    found = laws(points)
    assert found[EACH_CONTEXT].aicc is None or found[EACH_CONTEXT].n > len(found[EACH_CONTEXT].parameters) + 2
    five = points[:5]
    comparison = compare_laws(five, space="log")
    assert {law.law for law in comparison.laws if law.aicc is None} >= {AFFINE, EACH_CONTEXT}
    assert comparison.best not in (AFFINE, EACH_CONTEXT)


def test_criteria_do_not_depend_on_the_unit_of_time() -> None:
    points = grid(affine)
    slow = [replace(point, step_s=1e3 * point.step_s) for point in points]
    one, other = compare_laws(points, space="log"), compare_laws(slow, space="log")
    assert all(math.isclose(a.aic, b.aic, abs_tol=1e-4) for a, b in zip(one.laws, other.laws, strict=True))


@pytest.mark.parametrize(
    "points", [[p for p in grid(affine) if p.context_tokens == 512], [*grid(affine)[:9]], [], grid(affine)[:2]]
)
def test_one_context_or_one_batch_of_a_context_tells_nothing(points: list[StepPoint]) -> None:
    with pytest.raises(InvalidData):
        compare_laws(points, space="log")


# --- returns

PLATEAU = tuple(1000 * b / (8.0 + b) for b in BATCHES)
CLIMBING = tuple(1000 * b / (300.0 + b) * (1 + 0.02 * (-1) ** i) for i, b in enumerate(BATCHES))


def sweep(values: tuple[float, ...], unit: str = "tok/s") -> Any:
    """A diagnosis."""
    return diagnose_sweep(BATCHES, values, value_unit=unit, alpha=0.05)


def test_returns_are_those_of_the_illustration() -> None:
    """At half the ceiling, 4/3 of the batch: 8/7 of the rate and 7/6 of the time per token."""
    made = capacity_return(sweep(PLATEAU), batch=8, factor=4 / 3)
    assert math.isclose(made.rate_factor, 8 / 7, rel_tol=1e-6)
    assert math.isclose(made.token_time_factor, 7 / 6, rel_tol=1e-6)


def test_elasticity_marginal_rate_and_token_time_agree_with_the_curve() -> None:
    at = next(each for each in batch_returns(sweep(PLATEAU)) if each.batch == 8)
    assert math.isclose(at.elasticity, 0.5, rel_tol=1e-6) and math.isclose(at.token_time_s, 8 / 500, rel_tol=1e-9)
    step = 1e-4
    difference = (1000 * (8 + step) / (16 + step) - 500) / step
    assert math.isclose(at.marginal_per_s, difference, rel_tol=1e-4)


def test_a_batch_beyond_an_unreached_plateau_is_not_priced() -> None:
    climbing = sweep(CLIMBING)
    assert climbing.state in ("not_identifiable", "ceiling_extrapolated")
    assert capacity_return(climbing, batch=64, factor=2).rate_factor > 1
    with pytest.raises(InvalidData, match=r"beyond the sweep.*ceiling not determined"):
        capacity_return(climbing, batch=128, factor=4 / 3)
    assert capacity_return(sweep(PLATEAU), batch=128, factor=4 / 3).rate_factor > 1


@pytest.mark.parametrize("change", [{"batch": 0}, {"factor": -1}, {"batch": float("nan")}, {"factor": float("inf")}])
def test_no_return_of_no_batch(change: dict[str, float]) -> None:
    with pytest.raises(InvalidData):
        capacity_return(sweep(PLATEAU), **{"batch": 8, "factor": 2, **change})


def test_ratios_and_rates_share_no_axis_and_no_fit() -> None:
    rates, ratios = sweep(PLATEAU), sweep(tuple(v / 200 for v in PLATEAU), unit="1")
    assert (require_one_ordinate([rates, rates]), require_one_ordinate([ratios])) == ("rate", "ratio")
    with pytest.raises(InvalidData, match="share no axis"):
        require_one_ordinate([rates, ratios])
    for refuse in (batch_returns, lambda made: capacity_return(made, batch=1, factor=2)):
        with pytest.raises(InvalidData, match="ratio of rates"):
            refuse(ratios)


def test_f_kv_by_time_grows_with_what_is_cached_and_needs_costs_above_0() -> None:
    fit = fit_step_time(grid(affine, noise=0.0))
    share = cached_time_share(fit, batch=64, context_tokens=2048)
    assert math.isclose(share, 3e-8 * 64 * 2048 / affine(64, 2048), rel_tol=1e-6)
    assert cached_time_share(fit, batch=64, context_tokens=8192) > share
    with pytest.raises(InvalidData, match="negative"):
        cached_time_share(replace(fit, flags=("negative_fixed_s",)), batch=1, context_tokens=1)
    with pytest.raises(InvalidData):
        cached_time_share(fit, batch=0, context_tokens=1)


# --- clusters


def clustered(rng: np.random.Generator, clusters: int) -> tuple[Floats, Floats, list[str]]:
    """Points whose errors are those of their cluster."""
    batches = np.tile(np.array(BATCHES, dtype=np.float64), clusters)
    errors = np.repeat(rng.normal(0, 0.1, size=clusters), len(BATCHES))
    values = hill_curve(batches, ceiling=4.0, half_batch=0.5, gamma=1.0) * np.exp(errors)
    names = [str(index) for index in np.repeat(np.arange(clusters), len(BATCHES))]
    return batches, values, names


def test_intervals_over_clusters_cover_where_rows_do_not() -> None:
    """Ten clusters with an error of 10 % each, which eight rows share: rows taken as independent claim too much."""
    rng = np.random.Generator(np.random.PCG64(7))
    covered = {"clusters": 0, "rows": 0}
    for _ in range(20):
        batches, values, names = clustered(rng, 10)
        fit = fit_hill(batches, values, space="log", free_gamma=False)
        for kind, by in (("clusters", names), ("rows", [str(index) for index in range(len(names))])):
            made = cluster_intervals(batches, values, by, fit, alpha=0.05, draws=50, rng=rng)
            covered[kind] += made.ceiling[0] <= 4.0 <= made.ceiling[1]
    assert covered["clusters"] >= 14 and covered["rows"] <= covered["clusters"] - 3, covered


def test_few_clusters_say_so_and_one_is_none() -> None:
    batches, values, names = clustered(np.random.Generator(np.random.PCG64(3)), 3)
    fit = fit_hill(batches, values, space="log", free_gamma=True)
    asked: dict[str, Any] = {"alpha": 0.05, "draws": 5}
    made = cluster_intervals(batches, values, names, fit, rng=np.random.Generator(np.random.PCG64(1)), **asked)
    again = cluster_intervals(batches, values, names, fit, rng=np.random.Generator(np.random.PCG64(1)), **asked)
    assert made == again and "few_clusters" in made.flags and made.clusters == 3
    for wrong in (["a"] * len(values), names[1:]):
        with pytest.raises(InvalidData):
            cluster_intervals(batches, values, wrong, fit, rng=np.random.Generator(np.random.PCG64(1)), **asked)
