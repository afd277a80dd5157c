"""Put a family of loads on many models into one table: every planned row, with what stopped it where something did.

Reads what the study's earlier stages left, each a group of inputs: `gates.<any>` records of gates (one model, one gate
a record), `timing.<load>` and `orders.<load>` cells of that load and their orders. What is not among the inputs was not
run; a result that a stop rule forbids is an error. Which blocks of a load count is decided by the limits that the study
froze (kassay.validity), as for one model: each leaves a record, and a load of which too few count is `invalidated`,
which says nothing of the others. It measures nothing, and is rejected when a row is not as expected.
"""

from typing import Any

from kassay import judging
from kassay.kinds.matrix import CaseGateRecord, MatrixRow
from kassay.kinds.verdict import GateRecord
from kassay.matrix import rows
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData


def run(stage: Stage) -> Metrics | Rejection:
    """Every row of the matrix."""
    require_own_protocol(stage)
    for name in stage.inputs:
        verified_sha256(stage, name)
    made = rows(stage.params["study"], gate_verdicts(stage), *timed_loads(stage))
    for record in made:
        stage.append(record)
    metrics: Metrics = {"rows": len(made)}
    for record in made:
        metrics[record.verdict] = metrics.get(record.verdict, 0) + 1
    surprising = [record for record in made if record.as_expected is False]
    return stage.rejected("; ".join(map(said, surprising)), **metrics) if surprising else metrics


def said(record: MatrixRow) -> str:
    """A row that is not as expected."""
    return f"{record.comparison} at {record.workload}: {record.verdict}, expected {record.expected}"


def gate_verdicts(stage: Stage) -> dict[tuple[str, str, str], tuple[str, str]]:
    """(model, comparison, stage) -> verdict and reason; a gate of checks holds for every comparison of its model."""
    pairs = stage.params["study"]["comparisons"]
    found: dict[tuple[str, str, str], tuple[str, str]] = {}
    for path in stage.inputs_of("gates").values():
        for gate in read_kind(path, GateRecord):
            for name, pair in pairs.items():
                if (pair["candidate"], pair["control"]) == (gate.candidate, gate.control):
                    add(found, (gate.model, name, gate.gate), (gate.verdict, gate.reason))
        for case in read_kind(path, CaseGateRecord):
            for name in pairs:
                add(found, (case.model, name, case.gate), (case_verdict(case), case.reason))
    return found


def add(found: dict[Any, Any], key: tuple[str, str, str], value: tuple[str, str]) -> None:
    """One more verdict. Raises InvalidData for a second one of the same gate."""
    if key in found:
        raise InvalidData(f"gate `{key[2]}` of `{key[1]}` on `{key[0]}` has two records")
    found[key] = value


def case_verdict(case: CaseGateRecord) -> str:
    """The verdict of a gate of checks, which must be that of its counts."""
    verdict = "pass" if case.passed == case.cases >= 1 else "fails"
    if verdict != case.verdict:
        raise InvalidData(f"gate `{case.gate}` on `{case.model}` says `{case.verdict}`, its counts `{verdict}`")
    return verdict


def timed_loads(stage: Stage) -> tuple[dict[tuple[str, str], tuple[float, ...]], dict[tuple[str, str], str]]:
    """(load, comparison) -> ratios within the blocks that count, or why too few of them do.

    A comparison whose arms the blocks of a load do not hold was not timed there.
    """
    study = stage.params["study"]
    ratios: dict[tuple[str, str], tuple[float, ...]] = {}
    invalid: dict[tuple[str, str], str] = {}
    for workload, path in stage.inputs_of("timing").items():
        made, model = judging.evidence(path, workload), study["workloads"][workload]["model"]
        if {cell.model for cell in made.cells} - {model}:
            raise InvalidData(f"the cells of `{workload}` are of another model than its own")
        found = judging.judged(made, stage.json_input(f"orders.{workload}")["orders"], study["timing"])
        for record in found.records(model, workload):
            stage.append(record)
        short = found.short_of(judging.needed_ratios(study["timing"]))
        for name, pair in study["comparisons"].items():
            if not all(set(pair.values()) <= set(order) for order in found.planned):
                continue
            if short:
                invalid[workload, name] = short
            else:
                ratios[workload, name] = found.ratios(**pair)
    return ratios, invalid


if __name__ == "__main__":
    main(run)
