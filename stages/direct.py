"""Compare candidates with each other, from the quality stages' raw records: do two recipes differ at an endpoint?

Answers by McNemar's exact test, prediction loss by the centered paired bootstrap over documents; Holm within each
family of the study, over all its models. What is not significant is not equal. It measures and certifies nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kassay.arms import answer_arms, loss_arms
from kassay.kinds.direct import DirectRecord
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.bootstrap import centered_test
from kassay.stats.exact import mcnemar_test
from kassay.stats.multiplicity import holm
from kassay.stats.paired import paired_counts, paired_items, select_arm

DRAWS_OF = "relative-nll"  # the gate whose number of resamples an endpoint's direct test takes too


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One comparison before the family is adjusted."""

    model: str
    comparison: str
    method: str
    n: int
    estimate: float
    gains: int | None
    losses: int | None
    draws: int | None
    p: float


def run(stage: Stage) -> Metrics:
    """Every family of the study."""
    require_own_protocol(stage)
    study = stage.params["study"]
    found: Metrics = {}
    for name, family in study["contrasts"].items():
        tested = [
            test(study, family, model, comparison, path)
            for model, path in stage.inputs_of("quality").items()
            for comparison in family["comparisons"]
        ]
        if len(tested) != family["family_size"]:
            raise InvalidData(f"family `{name}` has {len(tested)} comparisons, planned are {family['family_size']}")
        records = adjusted(study, name, family, tested)
        for record in records:
            stage.append(record)
        found[f"{name}: different"] = f"{sum(record.different for record in records)} of {len(records)}"
    return found


def test(study: dict[str, Any], family: dict[str, Any], model: str, comparison: str, path: Path) -> Tested:
    """One comparison on one model. Raises InvalidData for a test or a side that is not implemented."""
    if family["sidedness"] != "two-sided":
        raise InvalidData(f"sidedness is `{family['sidedness']}`, allowed is two-sided")
    pair, planned = study["comparisons"][comparison], study["endpoints"][family["endpoint"]]
    if family["test"] == "mcnemar-exact":
        answers = answer_arms(read_kind(path, Answer), family["endpoint"])
        return of_answers(answers, pair, planned["items"], model, comparison)
    if family["test"] == "centered-bootstrap" and family["p_formula"] == "(k+1)/(B+1)":
        losses = loss_arms(read_kind(path, DocumentLoss), planned["context_tokens"])
        return of_losses(losses, pair, planned["documents"], draws_of(study, family), study["seed"], model, comparison)
    raise InvalidData(f"this stage has no test `{family['test']}` with p = {family['p_formula']}")


def of_answers(arms: Any, pair: dict[str, str], planned_n: int, model: str, comparison: str) -> Tested:
    """McNemar's exact test of answers to the same items."""
    control, candidate = (select_arm(arms, pair[role]) for role in ("control", "candidate"))
    order = paired_items(control, candidate, planned_n=planned_n).item_ids
    counts = paired_counts(control.correct(order), candidate.correct(order))
    result = mcnemar_test(gains=counts.gains, losses=counts.losses)
    return Tested(
        model=model,
        comparison=comparison,
        method=result.method,
        n=planned_n,
        estimate=(counts.gains - counts.losses) / planned_n,
        gains=counts.gains,
        losses=counts.losses,
        draws=None,
        p=result.p,
    )


def of_losses(
    arms: Any, pair: dict[str, str], planned_n: int, draws: int, seed: int, model: str, comparison: str
) -> Tested:
    """The centered paired bootstrap of mean losses of the same documents."""
    control, candidate = (select_arm(arms, pair[role]) for role in ("control", "candidate"))
    order = paired_items(control, candidate, planned_n=planned_n).item_ids
    rng = np.random.Generator(np.random.PCG64(seed))
    result = centered_test(control.losses(order), candidate.losses(order), draws=draws, rng=rng)
    return Tested(
        model=model,
        comparison=comparison,
        method=result.method,
        n=planned_n,
        estimate=result.estimate,
        gains=None,
        losses=None,
        draws=draws,
        p=result.p,
    )


def draws_of(study: dict[str, Any], family: dict[str, Any]) -> int:
    """Resamples of an endpoint: those of its gate. Raises InvalidData if it has none."""
    for gate in study["gates"].values():
        if gate["statistic"] == DRAWS_OF and gate["endpoint"] == family["endpoint"]:
            return int(gate["draws"])
    raise InvalidData(f"endpoint `{family['endpoint']}` has no gate `{DRAWS_OF}` that states the draws")


def adjusted(study: dict[str, Any], name: str, family: dict[str, Any], tested: Sequence[Tested]) -> list[DirectRecord]:
    """The family's records."""
    decided = holm(
        {f"{one.model}/{one.comparison}": one.p for one in tested}, alpha=family["alpha"], sidedness="two-sided"
    )
    return [
        DirectRecord(
            family=name,
            endpoint=family["endpoint"],
            **study["comparisons"][one.comparison],
            **vars(one),
            sidedness=decided.sidedness,
            holm_p=result.adjusted_p,
            family_size=decided.size,
            alpha=decided.alpha,
            different=result.rejected,
        )
        for one, result in zip(tested, decided.comparisons, strict=True)
    ]


if __name__ == "__main__":
    main(run)
