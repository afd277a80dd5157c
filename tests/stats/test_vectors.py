"""Every derived vector of vectors.json: what no document prints, made by other code than ours, with ten digits."""

import json
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from kassay.kv.geometry import SCALE_BYTES, Geometry, fixed_scales, slots, token_bytes
from kassay.kv.recipe import recipe_named
from kassay.stats.bootstrap import centered_test, mean_difference_bounds, relative_mean_bounds
from kassay.stats.exact import binomial_upper, largest_losses, mcnemar_test, sign_test
from kassay.stats.multiplicity import holm
from kassay.stats.orders import balance_report, williams_orders
from kassay.stats.paired import tango_bounds

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
TANGO = {"tango_z95two": 0.025, "tango_alpha.05": 0.05, "tango_alpha.00625": 0.00625, "tango_alpha.025/12": 0.025 / 12}
RECIPES = {
    "K16/V16": "native",
    "K16/V8": "k16v8-f",
    "K8/V8": "k8v8-f",
    "K16/V8 dyn fp32 scale": "k16v8-d",
    "K8/V8 dyn fp32 scales": "k8v8-d",
}
GEOMETRIES = {  # layers, KV heads, head dim: the models' own configurations
    "Qwen3-8B": (36, 8, 128),
    "Qwen2.5-7B / DS-R1-Qwen-7B": (28, 4, 128),
    "Qwen2.5-0.5B": (24, 2, 64),
    "Qwen2.5-1.5B": (28, 2, 128),
    "Mistral-7B-v0.3 / Llama-3.1-8B": (32, 8, 128),
    "Phi-4": (40, 10, 128),
}
QWEN_BLOCKS = (
    "0.9935141 1.0046516 1.0002696 1.0014335 1.0058214 1.0016846 1.0039351 1.0036023 1.0068204 1.0015314",
    ["1.00090", "1.00488"],
)
PHI_BLOCKS = (
    "0.9736099 0.9712515 0.9746203 0.9733828 0.9734810 0.9757707 0.9715308 0.9759696 0.9730844 0.9755253",
    ["0.97246", "0.97553"],
)


def test_no_vector_is_left_out() -> None:
    used = {"cp_upper_percent", "max_losses", "sign", "wins_needed_if_smallest_p", *TANGO, "mcnemar_exact", "kv_pools"}
    used |= {"worker_payload", "equal_slot_audit_17000_blocks", "doc_bootstrap", "block_interval_seed_success"}
    assert set(VECTORS) == used | {"williams"}


def test_upper_bounds() -> None:
    for row in VECTORS["cp_upper_percent"]:
        bound = 100 * binomial_upper(row["x"], row["n"], alpha=1 - row["conf"]).bound
        assert bound == pytest.approx(row["upper_percent"], abs=6e-10), row


def test_largest_admissible_losses() -> None:
    for row in VECTORS["max_losses"]:
        assert largest_losses(row["n"], margin=row["limit"], alpha=row["alpha"]) == row["max_losses"], row


def test_sign_tests_as_fractions() -> None:
    for row in VECTORS["sign"]:
        made = sign_test(row["wins"], row["n"])
        assert (made.p_exact, made.p) == (row["p"], row["p_float"]), row


def test_wins_that_the_smallest_p_needs() -> None:
    for row in VECTORS["wins_needed_if_smallest_p"]:
        enough = [wins for wins in range(row["blocks"] + 1) if smallest_is_rejected(wins, row["blocks"], row["family"])]
        assert min(enough, default=None) == row["min_wins"], row


def smallest_is_rejected(wins: int, blocks: int, family: int) -> bool:
    """Whether the only comparison that was run is rejected in a family of that size."""
    planned = {str(place): None for place in range(1, family)}
    first = {"0": Fraction(sign_test(wins, blocks).p_exact)}
    return holm(first | planned, alpha=0.05, sidedness="one-sided").comparisons[0].rejected


@pytest.mark.parametrize("name", list(TANGO))
def test_tango_bounds(name: str) -> None:
    alpha = TANGO[name]
    assert -NormalDist().inv_cdf(alpha) == pytest.approx(VECTORS[name]["z"], abs=1e-14)
    for row in VECTORS[name]["rows"]:
        made = tango_bounds(gains=row["gain"], losses=row["loss"], n=row["n"], alpha=alpha, sidedness="one-sided")
        assert 100 * made.lower == pytest.approx(row["lower_pp"], abs=6e-8), row
        assert 100 * made.upper == pytest.approx(row["upper_pp"], abs=6e-8), row


def test_mcnemar() -> None:
    for row in VECTORS["mcnemar_exact"]:
        assert mcnemar_test(gains=row["gain"], losses=row["loss"]).p == pytest.approx(row["p"], abs=1e-15), row


def test_williams_orders() -> None:
    for arms, rows in VECTORS["williams"].items():
        made = williams_orders([chr(ord("a") + place) for place in range(int(arms))])
        assert [[ord(arm) - ord("a") for arm in order] for order in made] == rows
        report = balance_report(made)
        assert report.position_balanced and report.carry_over_balanced


def canonical() -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
    """Losses of 64 documents under control and candidate, as vectors.json defines them."""
    place = np.arange(64)
    control = 2 + ((29 * place) % 64) / 64
    return control, control + (((37 * place) % 64) - 31.5) / 3150 + 0.001


def test_document_bootstrap_at_every_level() -> None:
    told = VECTORS["doc_bootstrap"]
    control, candidate = canonical()
    for statistic, make in (("mean_diff", mean_difference_bounds), ("relative_mean", relative_mean_bounds)):
        for level, bound in told[statistic].items():
            alpha = 1 - float(level) if float(level) > 0.5 else float(level)
            made = make(control, candidate, alpha=alpha, draws=100_000, rng=np.random.default_rng(20261020))
            assert (made.upper if float(level) > 0.5 else made.lower) == pytest.approx(bound, rel=1e-9), (
                statistic,
                level,
            )
    assert made.estimate == pytest.approx(told["point_relative"], rel=1e-12)


def test_centered_test() -> None:
    made = centered_test(*canonical(), draws=100_000, rng=np.random.default_rng(20261020))
    told = VECTORS["doc_bootstrap"]
    assert made.p == pytest.approx(told["centered_p_plus_one"], rel=1e-12)
    assert made.extreme_draws / made.draws == pytest.approx(told["centered_p_plain"], rel=1e-12)


@pytest.mark.parametrize("draws", [1000, 2000])
def test_few_draws_often_miss_the_published_interval(draws: int) -> None:
    """Why the exact distribution is the reference: so many of 200 seeds give both printed ends."""
    told = VECTORS["block_interval_seed_success"][str(draws)]
    for name, (ratios, ends) in (("qwen3", QWEN_BLOCKS), ("phi4", PHI_BLOCKS)):
        values = np.array([float(text) for text in ratios.split()])
        hits = 0
        for seed in range(told["seeds"]):
            medians = np.median(values[np.random.default_rng(seed).integers(0, 10, size=(draws, 10))], axis=1)
            hits += [f"{end:.5f}" for end in np.quantile(medians, [0.025, 0.975])] == ends
        assert hits / told["seeds"] == told[name]


def test_pools_of_every_model_and_layout() -> None:
    for row in VECTORS["kv_pools"]:
        layers, kv_heads, head_dim = GEOMETRIES[row["model"]]
        shape, recipe = (
            Geometry(layers=layers, kv_heads=kv_heads, head_dim=head_dim),
            recipe_named(RECIPES[row["layout"]]),
        )
        assert token_bytes(shape, recipe) == row["token_bytes"], row
        scales = SCALE_BYTES * fixed_scales(shape, recipe)  # beside the pool in the vectors, inside the budget for us
        found = slots(shape, recipe, budget_bytes=row["pool_GiB"] * 2**30 + scales, page_tokens=16)
        assert (found, found // 16, found * row["token_bytes"]) == (row["slots"], row["blocks"], row["backing"]), row


def test_worker_payload_and_equal_slots() -> None:
    told, shape = VECTORS["worker_payload"], Geometry(layers=36, kv_heads=8, head_dim=128)
    assert told["request"] == 40 * 2**30 - 36 * 2**20 - 55_296
    for name, recipe in (("native", "native"), ("k16v8", "k16v8-f"), ("k8v8_dyn", "k8v8-d")):
        size = token_bytes(shape, recipe_named(recipe))
        pages = told["request"] // (16 * size)
        assert {"blocks": pages, "slots": 16 * pages, "backing": 16 * pages * size} == told[name]
    audit = VECTORS["equal_slot_audit_17000_blocks"]
    recipes = {"native": "native", "k16v8": "k16v8-f", "k8v8": "k8v8-f", "k8v8_dyn_scales": "k8v8-d"}
    sizes = {name: audit["slots"] * token_bytes(shape, recipe_named(recipe)) for name, recipe in recipes.items()}
    assert sizes == {name: audit[name] for name in recipes} and audit["slots"] == 17_000 * 16
