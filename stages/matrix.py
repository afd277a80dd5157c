"""Put a family of loads on many models into one table: every planned row, with what stopped it where something did.

Reads what the study's earlier stages left, each a group of inputs: `gates.<any>` records of gates (one model, one gate
a record), `timing.<load>` and `orders.<load>` cells and orders of a timed load. What is not among the inputs was not
run; a result that a stop rule forbids is an error. It measures nothing, and is rejected when a row is not as expected.
"""

from typing import Any

from kassay import validity
from kassay.kinds.matrix import CaseGateRecord, MatrixRow
from kassay.kinds.timing import TimingCell
from kassay.kinds.verdict import GateRecord
from kassay.matrix import rows
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Rejection, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, block_ratios


def run(stage: Stage) -> Metrics | Rejection:
    """Every row of the matrix."""
    require_own_protocol(stage)
    for name in stage.inputs:
        verified_sha256(stage, name)
    made = rows(stage.params["study"], gate_verdicts(stage), timed_ratios(stage))
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


def timed_ratios(stage: Stage) -> dict[tuple[str, str], tuple[float, ...]]:
    """(load, comparison) -> ratios within blocks, pilots excluded."""
    study = stage.params["study"]
    found = {}
    for workload, path in stage.inputs_of("timing").items():
        orders = [tuple(order) for order in stage.json_input(f"orders.{workload}")["orders"]]
        cells = [cell for cell in read_kind(path, TimingCell) if not cell.pilot]
        if {cell.model for cell in cells} - {study["workloads"][workload]["model"]}:
            raise InvalidData(f"the cells of `{workload}` are of another model than its own")
        validity.require_evidence(cells)
        blocks = [
            BlockCell(block=cell.block, position=cell.position, arm=cell.recipe, rate_per_s=cell.rate_per_s())
            for cell in cells
        ]
        for name, pair in study["comparisons"].items():
            found[workload, name] = block_ratios(blocks, orders=orders, **pair)
    return found


if __name__ == "__main__":
    main(run)
