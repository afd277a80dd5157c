"""Judge every recipe against its control from the quality stages' raw records: gates, certificates, expectations.

Verdicts are computed first and without the expectation. The stage is rejected when a verdict differs from the one that
the study expects, or, where it expects none, when a certificate does not pass. It measures nothing: a changed margin
runs this stage again and no model.
"""

from collections import defaultdict
from dataclasses import asdict, fields
from typing import Any

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.kinds.verdict import CertificateRecord, GateRecord
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats.certificate import (
    Certificate,
    GateResult,
    GrossLossPlan,
    RelativeLossPlan,
    certificate,
    gross_loss_gate,
    relative_nll_gate,
)
from kassay.stats.paired import ArmAnswers, ArmLosses

ANSWER_ENDPOINTS = ("retrieval", "arithmetic")


def run(stage: Stage) -> Metrics | Rejection:
    """Certificates of every candidate on every model."""
    study = stage.params["study"]
    records = []
    for model, path in stage.inputs_of("quality").items():
        answers = {task: answer_arms(read_kind(path, Answer), task) for task in ANSWER_ENDPOINTS}
        losses = loss_arms(read_kind(path, DocumentLoss))
        for candidate in [name for name in study["recipes"] if name != study["control"]]:
            gates = [answer_gate(study, task, candidate, answers[task]) for task in ANSWER_ENDPOINTS]
            gates.append(relative_nll_gate(losses, plan=nll_plan(study, candidate)))
            for gate in gates:
                stage.append(gate_record(model, gate))
            planned = [*ANSWER_ENDPOINTS, "nll"]
            made = certificate(gates, control=study["control"], candidate=candidate, planned_endpoints=planned)
            records.append(certificate_record(study, model, made))
    for record in records:
        stage.append(record)
    stage.write_json("certificates", [asdict(record) for record in records])
    return conclude(stage, records)


def conclude(stage: Stage, records: list[CertificateRecord]) -> Metrics | Rejection:
    """Passed if every certificate is as expected, or passes where nothing is expected."""
    surprising = [record for record in records if record.as_expected is False]
    unproved = [record for record in records if record.expected is None and record.verdict != "pass"]
    metrics: Metrics = {
        "certificates": len(records),
        "as expected": sum(bool(record.as_expected) for record in records),
    }
    if not surprising and not unproved:
        return metrics
    said = [
        f"{record.candidate} on {record.model}: {record.verdict}, expected {record.expected}" for record in surprising
    ]
    said += [f"{record.candidate} on {record.model}: {record.verdict}" for record in unproved]
    return stage.rejected("; ".join(said), **metrics)


def answer_arms(records: list[Answer], task: str) -> dict[str, ArmAnswers]:
    """The answers of each recipe to one task."""
    by_recipe: dict[str, list[Answer]] = defaultdict(list)
    for record in records:
        if record.task == task:
            by_recipe[record.recipe].append(record)
    return {
        recipe: ArmAnswers(
            arm=recipe,
            item_ids=tuple(record.item_id for record in found),
            digests=tuple(record.item_digest for record in found),
            outcomes=tuple(record.outcome for record in found),
        )
        for recipe, found in by_recipe.items()
    }


def loss_arms(records: list[DocumentLoss]) -> dict[str, ArmLosses]:
    """The mean loss of each document under each recipe; documents have equally many targets."""
    by_recipe: dict[str, list[DocumentLoss]] = defaultdict(list)
    for record in records:
        by_recipe[record.recipe].append(record)
    return {
        recipe: ArmLosses(
            arm=recipe,
            item_ids=tuple(record.item_id for record in found),
            digests=tuple(record.item_digest for record in found),
            nll_nats=tuple(sum(record.loss_nats) / len(record.loss_nats) for record in found),
        )
        for recipe, found in by_recipe.items()
    }


def answer_gate(study: dict[str, Any], task: str, candidate: str, arms: dict[str, ArmAnswers]) -> GateResult:
    """The gross-loss gate of one task."""
    planned = study[task]
    return gross_loss_gate(
        arms,
        plan=GrossLossPlan(
            endpoint=task,
            control=study["control"],
            candidate=candidate,
            planned_n=planned["items"],
            margin=planned["margin"],
            alpha=study["alpha"],
            true_rate=planned["true_rate"],
            native_floor=planned["native_floor"],
        ),
    )


def nll_plan(study: dict[str, Any], candidate: str) -> RelativeLossPlan:
    """The planned gate of the prediction loss."""
    planned = study["nll"]
    return RelativeLossPlan(
        endpoint="nll",
        control=study["control"],
        candidate=candidate,
        planned_n=planned["documents"],
        margin=planned["margin"],
        alpha=study["alpha"],
        draws=planned["draws"],
        seed=study["seed"],
    )


def gate_record(model: str, gate: GateResult) -> GateRecord:
    """A gate's result as a record."""
    body = asdict(gate)
    return GateRecord(
        model=model, **{field.name: body[field.name] for field in fields(GateRecord) if field.name != "model"}
    )


def certificate_record(study: dict[str, Any], model: str, made: Certificate) -> CertificateRecord:
    """A certificate as a record, with the study's expectation beside the verdict."""
    expected = study["expected"].get(model, {}).get(made.candidate)
    return CertificateRecord(
        study=study["name"],
        model=model,
        control=made.control,
        candidate=made.candidate,
        verdict=made.verdict,
        failed_gates=list(made.failed_gates),
        open_gates=list(made.open_gates),
        expected=expected,
        as_expected=None if expected is None else made.verdict == expected,
    )


if __name__ == "__main__":
    main(run)
