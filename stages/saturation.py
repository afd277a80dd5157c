"""Fit the Hill curve S(B) = S_max B^g / (B_half^g + B^g) to each sweep and say whether its ceiling may be believed.

One fit per recipe and context, on the medians of the measured repetitions, in the residuals that were declared; R2 is
no gate. A ceiling that the data never approach is not printed as one. Where a recipe was swept at several contexts,
its rates are also fitted by batch, by cached tokens, and by the affine step time, each with residuals and AIC.
"""

import statistics
from collections import defaultdict

from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import SaturationRecord
from kassay.laws import law_record
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats.hill import R2_OF
from kassay.stats.laws import AFFINE, LawComparison, LawFit, compare_laws
from kassay.stats.returns import batch_returns, cached_time_share
from kassay.stats.saturation import SweepDiagnosis, diagnose_sweep, require_one_ordinate
from kassay.stats.step_time import StepPoint

NS_PER_S = 1e9


def run(stage: Stage) -> Metrics:
    """One saturation record per recipe and context, and the laws over all contexts of a recipe."""
    require_own_protocol(stage)
    sweeps: dict[tuple[str, str, int], list[SweepCell]] = defaultdict(list)
    for cell in read_kind(stage.inputs["sweep"], SweepCell):
        sweeps[cell.model, cell.recipe, cell.context_tokens].append(cell)
    told: Metrics = {}
    diagnoses = []
    points: dict[tuple[str, str], list[StepPoint]] = defaultdict(list)
    for (model, recipe, context_tokens), cells in sorted(sweeps.items()):
        cells.sort(key=lambda cell: cell.batch)
        diagnosis = diagnose_sweep(
            [cell.batch for cell in cells],
            [median_rate_per_s(cell) for cell in cells],
            value_unit="tok/s",
            alpha=stage.params["study"]["sweep"]["alpha"],
            space=stage.params["residuals"],
        )
        diagnoses.append(diagnosis)
        stage.append(saturation_record(model, recipe, context_tokens, diagnosis))
        told[f"{recipe} at {context_tokens}"] = diagnosis.state
        points[model, recipe] += [step_point(cell) for cell in cells]
    require_one_ordinate(diagnoses)
    for (model, recipe), measured in points.items():
        if comparison := compared(measured, stage.params["residuals"]):
            for law in comparison.laws:
                stage.append(law_record(model, recipe, comparison, law, cached_shares(comparison, law)))
            told[f"{recipe}: law with the least AICc"] = comparison.best
    return told


def compared(points: list[StepPoint], space: str) -> LawComparison | None:
    """The laws on these points; None at one context or one batch of a context, where they say nothing."""
    batches: dict[int, set[int]] = defaultdict(set)
    for point in points:
        batches[point.context_tokens].add(point.batch)
    if len(batches) < 2 or min(map(len, batches.values())) < 2:
        return None
    return compare_laws(points, space="linear" if space == "linear" else "log")


def step_point(cell: SweepCell) -> StepPoint:
    """The median decode step of a cell."""
    step_s = statistics.median(cell.elapsed_ns[cell.warmups :]) / cell.output_tokens / NS_PER_S
    return StepPoint(batch=cell.batch, context_tokens=cell.context_tokens, step_s=step_s)


def median_rate_per_s(cell: SweepCell) -> float:
    """Median decode rate over all sequences in tokens per second, warm-ups excluded."""
    return cell.rate_per_s(statistics.median(cell.elapsed_ns[cell.warmups :]))


def saturation_record(model: str, recipe: str, context_tokens: int, diagnosis: SweepDiagnosis) -> SaturationRecord:
    """A diagnosis as a record."""
    fit, returns = diagnosis.fit, batch_returns(diagnosis)
    return SaturationRecord(
        model=model,
        recipe=recipe,
        context_tokens=context_tokens,
        batches=[int(batch) for batch in diagnosis.batches],
        rates_per_s=list(diagnosis.values),
        residual_space=fit.residual_space,
        status=fit.status,
        starts=fit.starts,
        starts_agreed=fit.starts_agreed,
        degrees_of_freedom=diagnosis.degrees_of_freedom,
        r2=fit.r2,
        r2_definition=R2_OF[fit.residual_space],
        ceiling_per_s=fit.ceiling,
        ceiling_lower_per_s=diagnosis.ceiling_lower,
        ceiling_upper_per_s=diagnosis.ceiling_upper,
        other_ceiling_per_s=diagnosis.other_fit.ceiling,
        half_batch=fit.half_batch,
        gamma=fit.gamma,
        gamma_fixed=fit.gamma_fixed,
        reached=diagnosis.reached,
        rms_log_residual=diagnosis.rms_log_residual,
        fitted_per_s=[made.fitted_per_s for made in returns],
        elasticities=[made.elasticity for made in returns],
        marginal_per_s=[made.marginal_per_s for made in returns],
        token_time_s=[made.token_time_s for made in returns],
        flags=list(diagnosis.flags),
        state=diagnosis.state,
        statement=diagnosis.statement,
    )


def cached_shares(comparison: LawComparison, law: LawFit) -> list[float] | None:
    """f_KV at each point of the affine law; None for other laws, and where a cost is below zero."""
    if law.law != AFFINE or law.flags or comparison.step_time.flags:
        return None
    return [
        cached_time_share(comparison.step_time, batch=point.batch, context_tokens=point.context_tokens)
        for point in comparison.points
    ]


if __name__ == "__main__":
    main(run)
