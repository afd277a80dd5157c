"""Decide what the serving loads say, from their records alone: gates on failures, comparisons of arms block by block.

The family was planned before the first request. Rejected when a request failed or was empty in a block that counts, or
when a comparison is invalidated; `no confirmed gain` and `descriptive` are results. Certificates come from the input of
that name where a workflow judges quality; the candidate of a gain needs one that passed.
"""

from collections.abc import Iterable
from typing import Any

from kassay.kinds.serving import ServedLoad, ServerRun
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.serving.verdicts import Comparison, Evidence, contrasts, gates
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData
from kassay.stats.certificate import worst


def run(stage: Stage) -> Metrics | Rejection:
    """Gates and verdicts."""
    require_own_protocol(stage)
    study = stage.params["study"]
    records = stage.inputs["serving"]
    found = Evidence(
        loads=tuple(one for one in read_kind(records, ServedLoad) if not one.pilot),
        servers=tuple(one for one in read_kind(records, ServerRun) if not one.pilot),
        orders=tuple(tuple(order) for order in stage.json_input("orders")["orders"]),
    )
    held = gates(found)
    decided = contrasts(found, list(family(study)), certificates(stage), study)
    for record in (*held, *decided):
        stage.append(record)
    metrics: Metrics = {record.contrast: record.verdict for record in decided}
    said = [f"{one.arm}, {one.load}: {one.failed} failed, {one.empty} empty" for one in held if one.verdict == "fails"]
    said += [f"{one.contrast}: {one.reason}" for one in decided if one.verdict == "invalidated"]
    return stage.rejected("; ".join(said), **metrics) if said else metrics


def family(study: dict[str, Any]) -> Iterable[Comparison]:
    """Every candidate with the control, under every planned load and quantity."""
    for candidate in study["candidates"]:
        for one in study["family"]:
            yield Comparison(load=one["load"], quantity=one["quantity"], candidate=candidate, control=study["control"])


def certificates(stage: Stage) -> dict[str, str]:
    """The worst verdict of each candidate's certificates on the served model; none where no quality is judged.

    Raises InvalidData for certificates of several objectives: which one counts must have been frozen before.
    """
    if "certificates" not in stage.inputs:
        return {}
    made: list[dict[str, Any]] = stage.json_input("certificates")
    own = [one for one in made if one["model"] == stage.params["model"]]
    if len(objectives := {one["objective"] for one in own}) > 1:
        raise InvalidData(f"certificates of the objectives {', '.join(sorted(objectives))}, allowed is one")
    verdicts: dict[str, list[str]] = {}
    for one in own:
        verdicts.setdefault(one["candidate"], []).append(one["verdict"])
    return {candidate: worst(found) for candidate, found in verdicts.items()}


if __name__ == "__main__":
    main(run)
