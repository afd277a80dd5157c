"""Explanations of a speed-up: public rows name batch times heads, planted truths are told apart, verdicts refuse."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kassay.stats import InvalidData
from kassay.stats.explanations import (
    BATCH,
    BYTE_LIMIT,
    CACHED_HEADS,
    ONE_CEILING,
    QUERY_HEADS,
    RatioPoint,
    explain,
    half_batches,
    spread,
)

PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "hill_int4_h100.jsonl"
LAYOUTS = [(32, 8), (28, 4), (16, 2), (12, 2)]


def grid(share_of: str, *, by_limit: bool = False, noise: float = 0.01) -> list[RatioPoint]:
    """A planted law with proportional noise."""
    rng = np.random.Generator(np.random.PCG64(1))
    found = []
    for heads, kv in LAYOUTS:
        for context in (1024, 8192):
            for batch in (1, 2, 4, 8, 16, 32, 64, 128):
                x = {"heads": batch * heads / 100, "cached": batch * context * kv / 1e6, "flat": 1e9}[share_of]
                limit = 1 + 2 * heads / kv
                ratio = (limit if by_limit else 4.0) * x / (1 + x) * float(np.exp(rng.normal(0, noise)))
                found.append(
                    RatioPoint(
                        query_heads=heads, kv_heads=kv, batch=batch, context_tokens=context, ratio=ratio, limit=limit
                    )
                )
    return found


def test_the_public_ratios_follow_batch_times_query_heads() -> None:
    """Head dim 128, where half-batch times query heads was 96 to 103 in 8 of 10 layouts, each with its own curve."""
    if not PUBLIC.exists():
        pytest.skip("the public measurements are not at hand: hill_int4_h100.jsonl")
    rows = [json.loads(line) for line in PUBLIC.read_text(encoding="utf-8").splitlines()]
    points = [
        RatioPoint(
            query_heads=row["query_heads"],
            kv_heads=row["kv_heads"],
            batch=row["batch_sequences"],
            context_tokens=row["context_tokens"],
            ratio=row["speedup_ratio_mean"],
            limit=1 + 2 * row["query_heads"] / row["kv_heads"],
        )
        for row in rows
        if row["head_dim"] == 128
    ]
    made = explain(points)
    assert (made.verdict, made.best.covariate, made.left_out.covariate) == ("closest", QUERY_HEADS, QUERY_HEADS)
    batch = made.of(BATCH)
    assert f"{made.best.fit.half_batch:.0f} {made.best.fit.ceiling:.2f} {batch.aicc - made.best.aicc:.0f}" == (
        "113 3.61 394"
    )
    assert f"{made.best.judged.rms_log_residual:.3f} {batch.judged.rms_log_residual:.3f}" == "0.125 0.179"


@pytest.mark.parametrize(
    ("share_of", "by_limit", "named", "rule"),
    [("heads", False, QUERY_HEADS, ONE_CEILING), ("cached", True, CACHED_HEADS, BYTE_LIMIT)],
)
def test_a_planted_law_is_followed(share_of: str, by_limit: bool, named: str, rule: str) -> None:
    made = explain(grid(share_of, by_limit=by_limit))
    assert (made.verdict, made.best.covariate, made.best.ceiling_rule) == ("follows", named, rule)
    assert made.best.fit.ceiling == pytest.approx(1.0 if by_limit else 4.0, rel=0.03)
    halves = half_batches(made.points)
    if share_of == "heads":
        assert [half and half * int(name.split("/")[0]) for name, half in halves.items()] == pytest.approx(
            [100] * 4, rel=0.1
        )


def test_what_settles_nothing_is_flat_or_unsettled() -> None:
    assert explain(grid("flat")).verdict == "flat"
    rng = np.random.Generator(np.random.PCG64(2))
    shuffled = [replace(point, ratio=float(rng.uniform(1, 4))) for point in grid("heads")]
    assert explain(shuffled).verdict != "follows"
    noisy = grid("heads", noise=0.12)
    assert explain(noisy).verdict == "closest"


def test_one_layout_or_a_ratio_that_is_none_is_refused() -> None:
    points = grid("heads")
    with pytest.raises(InvalidData, match="of 1 head layout, allowed are two or more"):
        explain([point for point in points if point.query_heads == 32])
    for bad in (float("nan"), 0.0):
        with pytest.raises(InvalidData, match="not above 0"):
            explain([replace(points[0], ratio=bad), *points[1:]])
    assert spread([3.0]) is None and spread([2.0, 5.0]) == 2.5
