"""A law of throughput that kassay.stats.laws fitted, as the record that stages leave of it."""

from kassay.kinds.law import LawRecord
from kassay.stats.laws import LawComparison, LawFit


def law_record(
    model: str, recipe: str, comparison: LawComparison, law: LawFit, cached_shares: list[float] | None
) -> LawRecord:
    """One law among its rivals on the same points; `cached_shares` is f_KV at each point, where it was asked."""
    points = comparison.points
    return LawRecord(
        model=model,
        recipe=recipe,
        law=law.law,
        batches=[point.batch for point in points],
        contexts_tokens=[point.context_tokens for point in points],
        steps_s=[point.step_s for point in points],
        residual_space=law.residual_space,
        parameters=law.parameters,
        residuals=list(law.residuals),
        rss=law.rss,
        rms_log_residual=law.rms_log_residual,
        aic=law.aic,
        aicc=law.aicc,
        best=law.law == comparison.best,
        cached_shares=cached_shares,
        flags=list(law.flags),
    )
