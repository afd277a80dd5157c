"""Records of fused INT4 for the tests of the report: a grid, four speed-ups with fits, three claims; and a run."""

from pathlib import Path
from typing import Any

from kassay import digest
from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.plan import Plan
from kassay.record import Record
from kassay.stats.explanations import BYTE_LIMIT, CACHED_HEADS, KV_HEADS, ONE_CEILING, QUERY_HEADS
from tests.report.fabricate import FakeRun, stage

LAYOUTS = ((16, 2), (12, 4))
SIZES = tuple((batch, tokens) for tokens in (1024, 4096) for batch in (1, 2, 4, 8, 16, 32, 64))
ARMS = ("int4", "grouped", "int4 each head", "grouped split", "int4 split", "torch repeat")
NUMBERS = (
    "batch x KV heads, share of the byte limit: rms 19.0 %, ceiling 309 % of the byte limit, half at 213.4; with one "
    "ceiling 77.4 (40 to 161), half at 170.8 (100.1 to 339.6); left out: batch x KV heads, 21.1 %; by batch rms "
    "52.0 %, left out 58.9 %"
)


def cell(arm: str, heads: tuple[int, int], batch: int, tokens: int, failed: str = "") -> FusionCell:
    """An arm of one cell, over two rounds; torch moves nine times the bytes and is slower the larger the batch."""
    us = 10.0 * batch * (4 * batch * heads[1] / (32 + batch * heads[1]) if arm == "torch repeat" else 1)
    return FusionCell(
        query_heads=heads[0], kv_heads=heads[1], head_dim=128, page_tokens=16, batch=batch, context_tokens=tokens,
        arm=arm, splits=1, programs=8, tile="64x4x3", call_bytes=batch * tokens * (9 if arm == "torch repeat" else 1),
        calls=8, error=None, failed=failed, rounds_us=None if failed else [us, us * 1.01],
    )  # fmt: skip


def cells(*arms: str) -> list[FusionCell]:
    """Every cell of these arms, of all by default."""
    return [cell(arm, heads, *size) for heads in LAYOUTS for size in SIZES for arm in arms or ARMS]


def fit(candidate: str, baseline: str, **changes: Any) -> FusionFit:
    """The best fit of a speed-up: converged, its plateau reached, within 5 %."""
    return FusionFit(
        **{
            "candidate": candidate, "baseline": baseline, "covariate": QUERY_HEADS, "ceiling_rule": ONE_CEILING,
            "n": 28, "clusters": 2, "residual_space": "log", "ceiling": 4.4, "half": 238.0, "gamma": 1.2,
            "status": "converged", "linear_ceiling": 3.9, "linear_half": 169.0, "ceiling_ends": None,
            "half_ends": None, "gamma_ends": None, "draws": None, "failed_draws": None, "r2": 0.98,
            "rms_log_residual": 0.04, "left_out_rms": 0.05, "aicc": -558.0, "reached": 0.95, "best": True, "flags": [],
        }
        | changes
    )  # fmt: skip


def verdict(candidate: str, baseline: str, **changes: Any) -> FusionVerdict:
    """A speed-up that follows a quantity; the half-batch of each layout lies within the batches measured."""
    quantity = changes.get("covariate", QUERY_HEADS)
    return FusionVerdict(
        **{
            "candidate": candidate, "baseline": baseline, "n": 28, "lowest": 0.5, "median": 2.0, "highest": 3.93,
            "above_limit": 3, "covariate": quantity, "left_out_covariate": quantity, "gain_over_batch": 228.0,
            "layouts": ["16/2", "12/4"], "half_batches": [8.0, 16.0], "half_spread": 2.0,
            "half_spread_query_heads": 1.5, "half_spread_kv_heads": 4.0, "verdict": "follows", "reason": NUMBERS,
        }
        | changes
    )  # fmt: skip


def claim(name: str, agreeing: int, against: int, pairs: int, word: str) -> FusionClaim:
    """A claim over so many speed-ups, with numbers as long as those of a real one."""
    said = "; ".join(f"int4 split: 24.7 (15.6 to {40 + at}) over expanding, 3.91 over grouped" for at in range(pairs))
    names = [f"pair {at}" for at in range(pairs)]
    return FusionClaim(claim=name, pairs=names, agreeing=agreeing, against=against, verdict=word, reason=said)


HEADS = "whole contexts: batch times heads, over a head-expanding baseline"
CLAIMS = [
    claim(HEADS, 3, 0, 4, "unsettled"),
    claim("split contexts: what is cached", 3, 0, 3, "holds"),
    claim("the baseline makes the ceiling", 2, 1, 6, "unsettled"),
]
FIRST, SHARE, SPLIT = ("int4 each head", "torch repeat"), ("int4", "torch repeat"), ("int4 split", "grouped split")
UNSETTLED = ("int4", "grouped")
VERDICTS = [
    verdict(*FIRST),
    verdict(*SHARE, covariate=KV_HEADS, verdict="closest"),
    verdict(*SPLIT, covariate=CACHED_HEADS, verdict="closest", half_batches=[8.0, 900.0], half_spread=112.5),
    verdict(*UNSETTLED, covariate=KV_HEADS, left_out_covariate=QUERY_HEADS, verdict="unsettled"),
]
WORSE = fit(*SHARE, covariate=KV_HEADS, best=False, rms_log_residual=0.65)
FITS = [
    fit(*FIRST),
    WORSE,
    fit(*SHARE, covariate=KV_HEADS, ceiling_rule=BYTE_LIMIT, ceiling=3.09, half=213.4, rms_log_residual=0.19),
    fit(*SPLIT, covariate=CACHED_HEADS, flags=["plateau_not_reached"], rms_log_residual=0.093),
    fit(*UNSETTLED, covariate=KV_HEADS, status="failed: a parameter at an end of its search range"),
]
JUDGED: list[Record] = [*FITS, *VERDICTS, *CLAIMS]


def fusion_run(root: Path) -> FakeRun:
    """A run of the workflow in which nothing has ended yet."""
    made = FakeRun(root)
    made.stages = (stage("fusion", {}), stage("fusion_law", {"cells": "fusion.records"}), stage("report", {}))
    plan = Plan(profile="int4-fusion", workflow="fusion", stages=made.stages, config={})
    digest.write_json(made.directory / "plan.json", plan.to_json())
    return made


def ended(run: FakeRun) -> FakeRun:
    """Both stages ended."""
    run.end("fusion", records=cells())
    run.end("fusion_law", records=JUDGED)
    return run
