"""Which explanation of the INT4 speed-up holds: occupancy, the batch, or what is cached; and whose is the ceiling?

Ratios of medians within rounds (baseline over candidate) of each planned pair are fitted by each quantity
(kassay.stats.explanations), the published one, `batch`, and the best with layout-clustered intervals. Rates of single
arms are fitted apart from them, by the laws of kassay.stats.laws, a layout at a time: ratios and rates share no axis.
"""

import multiprocessing
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kassay.errors import KassayError
from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.laws import law_record
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats.claims import Claim, claims
from kassay.stats.clusters import ClusterIntervals, cluster_intervals
from kassay.stats.explanations import (
    BATCH,
    BYTE_LIMIT,
    ONE_CEILING,
    Explained,
    Explanation,
    RatioPoint,
    explain,
    half_batches,
    spread,
)
from kassay.stats.laws import compare_laws
from kassay.stats.step_time import StepPoint

US_PER_S = 1e6
SLACK = 1.01  # of a ratio over its byte limit

Key = tuple[int, int, int, int]  # query heads, KV heads, batch, context
Judged = tuple[Explained, dict[str, ClusterIntervals]]  # of a pair: its fits, and intervals by covariate


def run(stage: Stage) -> Metrics:
    """Every pair, then the claims over them, then the rates."""
    cells = list(read_kind(stage.inputs["cells"], FusionCell))
    arms: dict[str, dict[Key, FusionCell]] = defaultdict(dict)
    for cell in cells:
        if cell.rounds_us is not None:
            arms[cell.arm][cell.query_heads, cell.kv_heads, cell.batch, cell.context_tokens] = cell
    params, told = stage.params, {}
    pairs = {
        (one, other): ratios(arms[one], arms[other]) for one in params["candidates"] for other in params["baselines"]
    }
    if empty := [pair for pair, points in pairs.items() if not points]:
        raise KassayError(f"no cell holds both `{empty[0][0]}` and `{empty[0][1]}`: nothing to compare")
    explained: dict[tuple[str, str], Judged] = {}
    for (candidate, baseline), made in zip(pairs, judged(list(pairs.values()), params, stage.cpus), strict=True):
        explained[candidate, baseline] = made
        record_pair(stage, candidate, baseline, *made)
        told[f"{candidate} over {baseline}"] = f"{made[0].verdict} {made[0].best.covariate}"
        stage.progress(len(explained), len(pairs), f"{candidate} over {baseline}")
    for claim in claims(explained):
        stage.append(claim_record(claim))
        told[claim.claim] = claim.verdict
    record_rates(stage, arms)
    return {"cells that did not run": sum(cell.rounds_us is None for cell in cells), **told}


def judged(pairs: list[list[RatioPoint]], params: dict[str, Any], processes: int) -> Iterator[Judged]:
    """Every pair's fits and intervals in their order, side by side: each has random numbers of its own."""
    work = partial(judge, params=params)
    if processes < 2:
        yield from map(work, pairs)
        return
    with multiprocessing.get_context("spawn").Pool(min(processes, len(pairs))) as workers:
        yield from workers.imap(work, pairs)


def judge(points: list[RatioPoint], params: dict[str, Any]) -> Judged:
    """One pair: every explanation, and the intervals of two."""
    made = explain(points)
    return made, intervals(made, params)


def ratios(candidate: dict[Key, FusionCell], baseline: dict[Key, FusionCell]) -> list[RatioPoint]:
    """The cells that both have, in the order of measurement."""
    found = []
    for key, cell in candidate.items():
        if (other := baseline.get(key)) is None or cell.rounds_us is None or other.rounds_us is None:
            continue
        within = [slow / fast for slow, fast in zip(other.rounds_us, cell.rounds_us, strict=True)]
        query_heads, kv_heads, batch, context = key
        found.append(
            RatioPoint(
                query_heads=query_heads,
                kv_heads=kv_heads,
                batch=batch,
                context_tokens=context,
                ratio=statistics.median(within),
                limit=other.call_bytes / cell.call_bytes,
            )
        )
    return found


def intervals(made: Explained, params: dict[str, Any]) -> dict[str, ClusterIntervals]:
    """Of the batch and of the best covariate, both with one ceiling: by covariate."""
    found = {}
    for covariate in dict.fromkeys((BATCH, made.best.covariate)):
        one = made.of(covariate, ONE_CEILING)
        found[covariate] = cluster_intervals(
            one.x,
            one.y,
            [point.layout for point in made.points],
            one.fit,
            alpha=params["alpha"],
            draws=params["draws"],
            rng=np.random.Generator(np.random.PCG64(params["seed"])),
        )
    return found


def record_pair(
    stage: Stage, candidate: str, baseline: str, made: Explained, ends: dict[str, ClusterIntervals]
) -> None:
    """Ten fits and a verdict."""
    for one in made.explanations:
        known = ends.get(one.covariate) if one.ceiling_rule == ONE_CEILING else None
        stage.append(fit_record(candidate, baseline, made, one, known))
    values = [point.ratio for point in made.points]
    halves = half_batches(made.points)
    heads = {point.layout: (point.query_heads, point.kv_heads) for point in made.points}
    whole = {name: half for name, half in halves.items() if half is not None}
    batch = made.of(BATCH)
    stage.append(
        FusionVerdict(
            candidate=candidate,
            baseline=baseline,
            n=len(values),
            lowest=min(values),
            median=statistics.median(values),
            highest=max(values),
            above_limit=sum(point.ratio > SLACK * point.limit for point in made.points),
            covariate=made.best.covariate,
            left_out_covariate=made.left_out.covariate,
            gain_over_batch=batch.aicc - made.best.aicc,
            layouts=list(halves),
            half_batches=list(halves.values()),
            half_spread=spread(list(whole.values())),
            half_spread_query_heads=spread([half * heads[name][0] for name, half in whole.items()]),
            half_spread_kv_heads=spread([half * heads[name][1] for name, half in whole.items()]),
            verdict=made.verdict,
            reason=reason(made, ends),
        )
    )


def reason(made: Explained, ends: dict[str, ClusterIntervals]) -> str:
    """The verdict in a sentence."""
    best, known = made.best, ends[made.best.covariate]
    one = made.of(best.covariate, ONE_CEILING)
    low, high = known.half_batch
    said = f"{best.covariate}, {best.ceiling_rule}: rms {100 * best.judged.rms_log_residual:.1f} %"
    if best.ceiling_rule == BYTE_LIMIT:
        said += f", ceiling {100 * best.fit.ceiling:.0f} % of the byte limit, half at {best.fit.half_batch:.4g}"
    lowest, highest = known.ceiling
    said += f"; with one ceiling {one.fit.ceiling:.3g} ({lowest:.3g} to {highest:.3g})"
    said += f", half at {one.fit.half_batch:.4g} ({low:.4g} to {high:.4g})"
    said += f"; left out: {made.left_out.covariate}, {100 * made.left_out.left_out_rms:.1f} %"
    batch = made.of(BATCH)
    said += f"; by batch rms {100 * batch.judged.rms_log_residual:.1f} %, left out {100 * batch.left_out_rms:.1f} %"
    return said


def fit_record(
    candidate: str, baseline: str, made: Explained, one: Explanation, ends: ClusterIntervals | None
) -> FusionFit:
    """One explanation."""
    fit = one.fit
    return FusionFit(
        candidate=candidate,
        baseline=baseline,
        covariate=one.covariate,
        ceiling_rule=one.ceiling_rule,
        n=fit.n,
        clusters=len({point.layout for point in made.points}),
        residual_space=fit.residual_space,
        ceiling=fit.ceiling,
        half=fit.half_batch,
        gamma=fit.gamma,
        status=fit.status,
        linear_ceiling=one.linear.ceiling,
        linear_half=one.linear.half_batch,
        ceiling_ends=list(ends.ceiling) if ends else None,
        half_ends=list(ends.half_batch) if ends else None,
        gamma_ends=list(ends.gamma) if ends else None,
        draws=ends.draws if ends else None,
        failed_draws=ends.failed_draws if ends else None,
        r2=fit.r2,
        rms_log_residual=one.judged.rms_log_residual,
        left_out_rms=one.left_out_rms,
        aicc=one.aicc,
        reached=one.reached,
        best=one is made.best,
        flags=[*one.judged.flags, *(ends.flags if ends else ())],
    )


def claim_record(claim: Claim) -> FusionClaim:
    """A claim as a record."""
    return FusionClaim(
        claim=claim.claim,
        pairs=list(claim.pairs),
        agreeing=claim.agreeing,
        against=claim.against,
        verdict=claim.verdict,
        reason=claim.reason,
    )


def record_rates(stage: Stage, arms: dict[str, dict[Key, FusionCell]]) -> None:
    """The laws of each arm's rates, a layout at a time."""
    for arm, cells in arms.items():
        for query_heads, kv_heads in dict.fromkeys(key[:2] for key in cells):
            points = [
                StepPoint(
                    batch=key[2], context_tokens=key[3], step_s=statistics.median(cell.rounds_us or []) / US_PER_S
                )
                for key, cell in cells.items()
                if key[:2] == (query_heads, kv_heads)
            ]
            comparison = compare_laws(points, space="log")
            for law in comparison.laws:
                stage.append(law_record(f"{query_heads}/{kv_heads}", arm, comparison, law, None))


if __name__ == "__main__":
    main(run)
