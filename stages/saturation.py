"""Fit the Hill curve S(B) = S_max B^g / (B_half^g + B^g) to each sweep and say whether its ceiling may be believed.

One fit per recipe and context, on the medians of the measured repetitions; R2 is no gate. A ceiling that the data never
approach is not printed as one.
"""

import statistics
from collections import defaultdict

from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import SaturationRecord
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats.saturation import SweepDiagnosis, diagnose_sweep


def run(stage: Stage) -> Metrics:
    """One saturation record per recipe and context."""
    require_own_protocol(stage)
    sweeps: dict[tuple[str, str, int], list[SweepCell]] = defaultdict(list)
    for cell in read_kind(stage.inputs["sweep"], SweepCell):
        sweeps[cell.model, cell.recipe, cell.context_tokens].append(cell)
    states: Metrics = {}
    for (model, recipe, context_tokens), cells in sorted(sweeps.items()):
        cells.sort(key=lambda cell: cell.batch)
        diagnosis = diagnose_sweep(
            [cell.batch for cell in cells],
            [median_rate_per_s(cell) for cell in cells],
            value_unit="tok/s",
            alpha=stage.params["study"]["sweep"]["alpha"],
        )
        stage.append(saturation_record(model, recipe, context_tokens, diagnosis))
        states[f"{recipe} at {context_tokens}"] = diagnosis.state
    return states


def median_rate_per_s(cell: SweepCell) -> float:
    """Median decode rate over all sequences in tokens per second, warm-ups excluded."""
    return cell.rate_per_s(statistics.median(cell.elapsed_ns[cell.warmups :]))


def saturation_record(model: str, recipe: str, context_tokens: int, diagnosis: SweepDiagnosis) -> SaturationRecord:
    """A diagnosis as a record."""
    fit = diagnosis.log_fit
    return SaturationRecord(
        model=model,
        recipe=recipe,
        context_tokens=context_tokens,
        batches=[int(batch) for batch in diagnosis.batches],
        rates_per_s=list(diagnosis.values),
        ceiling_per_s=fit.ceiling,
        ceiling_lower_per_s=diagnosis.ceiling_lower,
        ceiling_upper_per_s=diagnosis.ceiling_upper,
        half_batch=fit.half_batch,
        gamma=fit.gamma,
        gamma_fixed=fit.gamma_fixed,
        reached=diagnosis.reached,
        rms_log_residual=diagnosis.rms_log_residual,
        flags=list(diagnosis.flags),
        state=diagnosis.state,
        statement=diagnosis.statement,
    )


if __name__ == "__main__":
    main(run)
