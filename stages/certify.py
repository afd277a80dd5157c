"""Judge every recipe against its controls from the quality stages' raw records: gates, certificates, qualifications.

Each gate is judged once, whichever objectives ask for it; a certificate is one objective's gates against one control,
and a candidate qualifies for an objective only if it is certified against every planned control. Verdicts are computed
first and without the expectation. The stage is rejected when a verdict differs from the one that the study expects, or,
where it expects none, when a certificate that later stages ask for does not pass. It measures nothing: a changed margin
runs this stage again and no model.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kassay import objectives
from kassay.arms import answer_arms, loss_arms
from kassay.kinds.quality import Answer, DocumentLoss
from kassay.kinds.verdict import CertificateRecord, GateRecord, QualificationRecord
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData
from kassay.stats.answer_gates import GrossLossPlan, NetChangePlan, gross_loss_gate, net_change_gate
from kassay.stats.certificate import Certificate, certificate
from kassay.stats.gates import GateResult
from kassay.stats.loss_gates import LossPlan, nll_difference_gate, relative_nll_gate
from kassay.stats.paired import ArmAnswers, ArmLosses

GENERATOR = "pcg64"  # numpy's, made of the study's seed
LOSS_GATES = {"relative-nll": relative_nll_gate, "nll-difference": nll_difference_gate}


def run(stage: Stage) -> Metrics | Rejection:
    """Certificates of every planned comparison and objective on every model."""
    require_own_protocol(stage)
    study = stage.params["study"]
    given = stage.inputs_of("quality")
    objectives.require_allocation(study, given)
    certificates: list[CertificateRecord] = []
    qualifications: list[QualificationRecord] = []
    for model, path in given.items():
        sha256 = verified_sha256(stage, f"quality.{model}")
        measured = Measured(path, model, study.get("split"))
        own = []
        for comparison in study["certificates"]["comparisons"]:
            own += certified(stage, measured, comparison, sha256)
        certificates += own
        qualifications += qualification_records(study, model, own)
    for record in (*certificates, *qualifications):
        stage.append(record)
    stage.write_json("certificates", [asdict(record) for record in certificates])
    return conclude(stage, study, certificates)


class Measured:
    """The records of one model by endpoint and arm."""

    def __init__(self, path: Path, model: str, split: str | None) -> None:
        self.model = model
        self._answers = read_kind(path, Answer)
        self._losses = read_kind(path, DocumentLoss)
        found = (*self._answers, *self._losses)
        if strange := {record.model for record in found} - {model}:
            raise InvalidData(f"the records of `{model}` hold those of {', '.join(sorted(strange))}")
        if split is not None and (strange := {record.split for record in found} - {split}):
            raise InvalidData(f"the records are of split {', '.join(sorted(strange))}, planned is {split}")

    def answers(self, endpoint: str) -> dict[str, ArmAnswers]:
        """The answers of each arm to one endpoint."""
        return answer_arms(self._answers, endpoint)

    def losses(self, planned: dict[str, Any]) -> dict[str, ArmLosses]:
        """The losses of each arm at one endpoint's context and number of targets."""
        return loss_arms(self._losses, planned["context_tokens"], planned["targets"])


def certified(stage: Stage, measured: Measured, comparison: str, sha256: str) -> list[CertificateRecord]:
    """The gates of one comparison, each appended once, and its certificate for every objective."""
    study = stage.params["study"]
    pair, planned = study["comparisons"][comparison], objectives.objectives_of(study)
    judged: dict[str, GateResult] = {}
    for name in dict.fromkeys(name for names in planned.values() for name in names):
        judged[name] = judge(study, name, pair, measured)
        stage.append(gate_record(measured.model, judged[name]))
    made = [
        certificate([judged[name] for name in names], objective=objective, **pair, planned_gates=names)
        for objective, names in planned.items()
    ]
    return [certificate_record(study, measured.model, comparison, one, sha256) for one in made]


def judge(study: dict[str, Any], name: str, pair: dict[str, str], measured: Measured) -> GateResult:
    """One gate of one comparison."""
    gate = study["gates"][name]
    endpoint = gate["endpoint"]
    planned = study["endpoints"][endpoint]
    given = {"gate": name, "endpoint": endpoint, **pair, "margin": gate["limit"], "alpha": study["alpha"]}
    if gate["statistic"] in ("gross-loss", "net-change"):
        floor = gate["native_floor"]
        given |= {"planned_n": planned["items"], "true_rate": gate["true_rate"]}
        given["native_floor"] = floor[measured.model] if isinstance(floor, dict) else floor
        if gate["statistic"] == "gross-loss":
            return gross_loss_gate(measured.answers(endpoint), plan=GrossLossPlan(**given))
        return net_change_gate(measured.answers(endpoint), plan=NetChangePlan(**given))
    if gate["statistic"] in LOSS_GATES:
        if gate["generator"] != GENERATOR:
            raise InvalidData(
                f"gate `{name}`: the generator is `{gate['generator']}`, this stage draws with {GENERATOR}"
            )
        given |= {"planned_n": planned["documents"], "draws": gate["draws"], "seed": study["seed"]}
        return LOSS_GATES[gate["statistic"]](measured.losses(planned), plan=LossPlan(**given))
    raise InvalidData(f"gate `{name}`: this stage computes no `{gate['statistic']}`")


def qualification_records(
    study: dict[str, Any], model: str, made: Sequence[CertificateRecord]
) -> list[QualificationRecord]:
    """What every candidate is certified for on one model."""
    route = objectives.route_of(study) if study["certificates"].get("route") else None
    found = []
    for candidate in objectives.candidates_of(study):
        for objective in objectives.objectives_of(study):
            one = objectives.qualified(study, made, candidate, objective)
            found.append(
                QualificationRecord(
                    study=study["name"],
                    model=model,
                    objective=objective,
                    candidate=candidate,
                    controls=list(one.controls),
                    verdicts=list(one.verdicts),
                    verdict=one.verdict,
                    route=objective == route,
                )
            )
    return found


def conclude(stage: Stage, study: dict[str, Any], records: Sequence[CertificateRecord]) -> Metrics | Rejection:
    """Passed if every certificate is as expected, or passes where nothing is expected and it is asked for later."""
    route = study["certificates"].get("route")
    surprising = [record for record in records if record.as_expected is False]
    asked = [record for record in records if record.expected is None and route in (None, record.objective)]
    unproved = [record for record in asked if record.verdict != "pass"]
    metrics: Metrics = {
        "certificates": len(records),
        "as expected": sum(bool(record.as_expected) for record in records),
    }
    if not surprising and not unproved:
        return metrics
    said = [f"{named(study, record)}: {record.verdict}, expected {record.expected}" for record in surprising]
    said += [f"{named(study, record)}: {record.verdict}" for record in unproved]
    return stage.rejected("; ".join(said), **metrics)


def named(study: dict[str, Any], record: CertificateRecord) -> str:
    """A certificate in words: its control and objective only where the candidate has more than one."""
    against = len(objectives.controls_of(study, record.candidate)) > 1
    objective = len(objectives.objectives_of(study)) > 1
    return (
        f"{record.candidate} on {record.model}"
        f"{f' against {record.control}' if against else ''}{f' for {record.objective}' if objective else ''}"
    )


def gate_record(model: str, gate: GateResult) -> GateRecord:
    """A gate's result as a record."""
    body = asdict(gate)
    return GateRecord(
        model=model, **{field.name: body[field.name] for field in fields(GateRecord) if field.name != "model"}
    )


def certificate_record(
    study: dict[str, Any], model: str, comparison: str, made: Certificate, sha256: str
) -> CertificateRecord:
    """A certificate as a record, with the study's expectation beside the verdict."""
    expected = expectation(study, model, made.objective).get(comparison)
    return CertificateRecord(
        study=study["name"],
        model=model,
        comparison=comparison,
        objective=made.objective,
        control=made.control,
        candidate=made.candidate,
        gates=[gate.gate for gate in made.gates],
        alpha=study["alpha"],
        family_alpha=study["certificates"]["family_alpha"],
        slots=study["certificates"]["slots"],
        quality_sha256=sha256,
        verdict=made.verdict,
        failed_gates=list(made.failed_gates),
        open_gates=list(made.open_gates),
        expected=expected,
        as_expected=None if expected is None else made.verdict == expected,
    )


def expectation(study: dict[str, Any], model: str, objective: str) -> dict[str, str]:
    """Comparison -> expected verdict: of `<model>:<objective>`, or of the model where there is but one objective."""
    stated: dict[str, dict[str, str]] = study.get("expected") or {}
    alone = len(study["certificates"]["objectives"]) == 1
    return stated.get(f"{model}:{objective}") or (stated.get(model, {}) if alone else {})


if __name__ == "__main__":
    main(run)
