"""Judge every recipe against its control from the quality stages' raw records: gates, certificates, expectations.

Verdicts are computed first and without the expectation. The stage is rejected when a verdict differs from the one that
the study expects, or, where it expects none, when a certificate does not pass. It measures nothing: a changed margin
runs this stage again and no model.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kassay.arms import answer_arms, loss_arms
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.kinds.verdict import CertificateRecord, GateRecord
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData
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


def run(stage: Stage) -> Metrics | Rejection:
    """Certificates of every planned comparison on every model."""
    require_own_protocol(stage)
    study = stage.params["study"]
    names = planned_gates(study)
    records = []
    for model, path in stage.inputs_of("quality").items():
        measured = Measured(path)
        for comparison in study["certificates"]["comparisons"]:
            pair = study["comparisons"][comparison]
            gates = [judged(study, name, model, pair, measured) for name in names]
            for gate in gates:
                stage.append(gate_record(model, gate))
            endpoints = [study["gates"][name]["endpoint"] for name in names]
            made = certificate(gates, **pair, planned_endpoints=endpoints)
            records.append(certificate_record(study, model, comparison, made))
    for record in records:
        stage.append(record)
    stage.write_json("certificates", [asdict(record) for record in records])
    return conclude(stage, records)


class Measured:
    """The records of one model by endpoint and arm."""

    def __init__(self, path: Path) -> None:
        self._answers = read_kind(path, Answer)
        self._losses = read_kind(path, DocumentLoss)

    def answers(self, endpoint: str) -> dict[str, ArmAnswers]:
        """The answers of each arm to one endpoint."""
        return answer_arms(self._answers, endpoint)

    def losses(self, context_tokens: int) -> dict[str, ArmLosses]:
        """The losses of each arm at one context."""
        return loss_arms(self._losses, context_tokens)


def planned_gates(study: dict[str, Any]) -> list[str]:
    """The gates of the one objective that this stage can judge."""
    objectives: dict[str, list[str]] = study["certificates"]["objectives"]
    if len(objectives) != 1:
        raise InvalidData(f"the study has the objectives {', '.join(objectives) or 'none'}, allowed is one")
    return next(iter(objectives.values()))


def judged(study: dict[str, Any], name: str, model: str, pair: dict[str, str], measured: Measured) -> GateResult:
    """One gate of one comparison."""
    gate = study["gates"][name]
    planned = study["endpoints"][gate["endpoint"]]
    if gate["statistic"] == "gross-loss":
        floor = gate["native_floor"]
        floor = floor[model] if isinstance(floor, dict) else floor
        return gross_loss_gate(measured.answers(gate["endpoint"]), plan=answer_plan(study, gate, planned, floor, pair))
    if gate["statistic"] == "relative-nll":
        losses = measured.losses(planned["context_tokens"])
        return relative_nll_gate(losses, plan=nll_plan(study, gate, planned, pair))
    raise InvalidData(f"gate `{name}`: this stage computes no `{gate['statistic']}`")


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


def answer_plan(
    study: dict[str, Any], gate: dict[str, Any], planned: dict[str, Any], floor: float | None, pair: dict[str, str]
) -> GrossLossPlan:
    """The planned gate of one endpoint of answers."""
    return GrossLossPlan(
        endpoint=gate["endpoint"],
        **pair,
        planned_n=planned["items"],
        margin=gate["limit"],
        alpha=study["alpha"],
        true_rate=gate["true_rate"],
        native_floor=floor,
    )


def nll_plan(
    study: dict[str, Any], gate: dict[str, Any], planned: dict[str, Any], pair: dict[str, str]
) -> RelativeLossPlan:
    """The planned gate of one endpoint of prediction loss."""
    return RelativeLossPlan(
        endpoint=gate["endpoint"],
        **pair,
        planned_n=planned["documents"],
        margin=gate["limit"],
        alpha=study["alpha"],
        draws=gate["draws"],
        seed=study["seed"],
    )


def gate_record(model: str, gate: GateResult) -> GateRecord:
    """A gate's result as a record."""
    body = asdict(gate)
    return GateRecord(
        model=model, **{field.name: body[field.name] for field in fields(GateRecord) if field.name != "model"}
    )


def certificate_record(study: dict[str, Any], model: str, comparison: str, made: Certificate) -> CertificateRecord:
    """A certificate as a record, with the study's expectation beside the verdict."""
    expected = (study.get("expected") or {}).get(model, {}).get(comparison)
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
