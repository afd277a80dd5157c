"""Compare candidates with each other, from the quality stages' raw records: do two recipes differ at an endpoint?

Answers by McNemar's exact test, prediction loss by the centered paired bootstrap over documents, both two-sided; Holm
on exact fractions within each family of the study, over all its models. A family is judged whole or not at all: a
model, an arm or an item that lacks is an error. What is not significant is not equal. Nothing is measured or certified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from kassay.arms import answer_arms, loss_arms
from kassay.kinds.direct import DirectRecord
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.bootstrap import centered_test
from kassay.stats.exact import mcnemar_test
from kassay.stats.multiplicity import holm
from kassay.stats.paired import ArmAnswers, ArmLosses, answers_of, losses_of

DRAWS_OF = ("relative-nll", "nll-difference")  # gates whose number of resamples an endpoint's direct test takes too
ADDED = {"(k+1)/(B+1)": 1, "k/B": 0}  # what each formula of a resampled p adds to k and to B


@dataclass(frozen=True, kw_only=True)
class Tested:
    """One comparison before the family is adjusted."""

    model: str
    comparison: str
    method: str
    n: int
    items_sha256: str
    estimate: float
    gains: int | None
    losses: int | None
    draws: int | None
    seed: int | None
    p_exact: str
    unchanged: bool


def run(stage: Stage) -> Metrics:
    """Every family of the study."""
    require_own_protocol(stage)
    study = stage.params["study"]
    given = stage.inputs_of("quality")
    for model in given:
        verified_sha256(stage, f"quality.{model}")
    if sorted(given) != sorted(study["models"]):
        raise InvalidData(
            f"the models {', '.join(sorted(given))} are compared, planned are {', '.join(study['models'])}"
        )
    found: Metrics = {}
    for name, family in study["contrasts"].items():
        tested = [
            test(study, family, model, comparison, path)
            for model, path in given.items()
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
    if family["test"] == "centered-bootstrap" and family["p_formula"] in ADDED:
        losses = loss_arms(read_kind(path, DocumentLoss), planned["context_tokens"], planned["targets"])
        drawn = {"draws": draws_of(study, family), "seed": study["seed"], "added": ADDED[family["p_formula"]]}
        return of_losses(losses, pair, planned["documents"], drawn, model, comparison)
    raise InvalidData(f"this stage has no test `{family['test']}` with p = {family['p_formula']}")


def of_answers(
    arms: dict[str, ArmAnswers], pair: dict[str, str], planned_n: int, model: str, comparison: str
) -> Tested:
    """McNemar's exact test of answers to the same items."""
    items, counts = answers_of(arms, **pair, planned_n=planned_n)
    result = mcnemar_test(gains=counts.gains, losses=counts.losses)
    return Tested(
        model=model,
        comparison=comparison,
        method=result.method,
        n=planned_n,
        items_sha256=items.items_sha256,
        estimate=(counts.gains - counts.losses) / planned_n,
        gains=counts.gains,
        losses=counts.losses,
        draws=None,
        seed=None,
        p_exact=result.p_exact,
        unchanged=counts.gains == counts.losses == 0,
    )


def of_losses(
    arms: dict[str, ArmLosses],
    pair: dict[str, str],
    planned_n: int,
    drawn: dict[str, int],
    model: str,
    comparison: str,
) -> Tested:
    """The centered paired bootstrap of mean losses of the same documents."""
    items, losses = losses_of(arms, **pair, planned_n=planned_n)
    rng = np.random.Generator(np.random.PCG64(drawn["seed"]))
    result = centered_test(*losses, draws=drawn["draws"], rng=rng)
    p = Fraction(result.extreme_draws + drawn["added"], result.draws + drawn["added"])
    return Tested(
        model=model,
        comparison=comparison,
        method=result.method,
        n=planned_n,
        items_sha256=items.items_sha256,
        estimate=result.estimate,
        gains=None,
        losses=None,
        draws=result.draws,
        seed=drawn["seed"],
        p_exact=str(p),
        unchanged=bool(np.array_equal(*losses)),
    )


def draws_of(study: dict[str, Any], family: dict[str, Any]) -> int:
    """Resamples of an endpoint: those of its gate. Raises InvalidData unless its gates state one number."""
    stated = {
        int(gate["draws"])
        for gate in study["gates"].values()
        if gate["statistic"] in DRAWS_OF and gate["endpoint"] == family["endpoint"]
    }
    if len(stated) != 1:
        raise InvalidData(f"endpoint `{family['endpoint']}` has no gate {' or '.join(DRAWS_OF)} that states the draws")
    return stated.pop()


def adjusted(study: dict[str, Any], name: str, family: dict[str, Any], tested: Sequence[Tested]) -> list[DirectRecord]:
    """The family's records."""
    p_values = {f"{one.model}/{one.comparison}": Fraction(one.p_exact) for one in tested}
    decided = holm(p_values, alpha=family["alpha"], sidedness="two-sided")
    return [
        DirectRecord(
            family=name,
            endpoint=family["endpoint"],
            **study["comparisons"][one.comparison],
            **vars(one),
            p=float(Fraction(one.p_exact)),
            sidedness=decided.sidedness,
            holm_p=result.adjusted_p,
            holm_p_exact=result.adjusted_p_exact,
            family_size=decided.size,
            alpha=decided.alpha,
            different=result.rejected,
        )
        for one, result in zip(tested, decided.comparisons, strict=True)
    ]


if __name__ == "__main__":
    main(run)
