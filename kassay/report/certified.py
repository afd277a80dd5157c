"""What the certificates of a run are called in a report, and what they make of each candidate.

A row is a candidate; where a study plans several controls or objectives for its candidates, it is one certificate each,
and says which. Planned rows come from the study, so that one without a result is there as well.
"""

from collections.abc import Sequence
from typing import Any

from kassay.kinds.verdict import CertificateRecord, GateRecord, QualificationRecord
from kassay.report.evidence import Report
from kassay.report.model import RunView
from kassay.report.words import ABSENT, fixed, one_line, percent, title

QUALIFIED = ["model", "recipe", "objective", "verdict", "certificates", "asked for later"]


def candidates(run: RunView) -> list[str]:
    """The recipes that are judged, in the study's order."""
    return [name for name in run.arms if name != run.control]


def planned_rows(run: RunView) -> dict[str, tuple[str, str]]:
    """Name of a row -> candidate and control, in the study's order; every candidate of a study without certificates."""
    pairs, objectives = planned(run)
    if not pairs:
        return {name: (name, run.control) for name in candidates(run)}
    return {
        named(run, pair["candidate"], pair["control"], objective): (pair["candidate"], pair["control"])
        for pair in pairs
        for objective in objectives
    }


def planned(run: RunView) -> tuple[list[dict[str, Any]], list[str]]:
    """The certified comparisons and the objectives of the study; none where it has no such section."""
    made, pairs = run.study.get("certificates"), run.study.get("comparisons")
    if not isinstance(made, dict) or not isinstance(pairs, dict):
        return [], []
    return [pairs[name] for name in made.get("comparisons", []) if name in pairs], list(made.get("objectives", {}))


def named(run: RunView, candidate: str, control: str, objective: str) -> str:
    """The name of a certificate's row: the candidate, and what else tells it from others of that candidate."""
    pairs, objectives = planned(run)
    against = f" against {title(control)}" if len({pair["control"] for pair in pairs}) > 1 else ""
    asked = f" for {one_line(objective, 40)}" if len(objectives) > 1 else ""
    return f"{title(candidate)}{against}{asked}" if against or asked else candidate


def row_of(report: Report, record: CertificateRecord) -> str:
    """The name of the row that a certificate stands in."""
    return named(report.run, record.candidate, record.control, record.objective)


def qualification_rows(report: Report) -> list[list[str]]:
    """What each candidate qualifies for, where that is more than one certificate says."""
    made = report.of(QualificationRecord)
    if not any(len(one.controls) > 1 for one in made) and len({one.objective for one in made}) < 2:
        return []
    return [qualified(one) for one in made]


def qualified(one: QualificationRecord) -> list[str]:
    """One qualification."""
    told = [f"{title(control)}: {verdict}" for control, verdict in zip(one.controls, one.verdicts, strict=True)]
    return [
        one_line(one.model),
        title(one.candidate),
        one_line(one.objective),
        one_line(one.verdict),
        "; ".join(told),
        "yes" if one.route else "no",
    ]


def amount(gate: GateRecord, value: float | None, places: int = 3) -> str:
    """A number of a gate in its unit: per cent, or nats of a difference of prediction loss."""
    if value is None:
        return ABSENT
    return f"{fixed(value, places + 2)} nats" if "difference" in gate.statistic else percent(value, places)


def power_of(gate: GateRecord) -> str:
    """The power that is stated beside a gate, and the rate at which."""
    return ABSENT if gate.power is None else f"{gate.power:.3f} at {percent(gate.true_rate)}"


def limit_of(gate: GateRecord) -> str:
    """What the deciding bound must keep."""
    return f"{'≥' if gate.decides == 'lower' else '≤'} {amount(gate, gate.margin, 2)}"


def same_control(gates: Sequence[GateRecord]) -> bool:
    """Whether all gates are of one control, so that it need not be named at each."""
    return len({gate.control for gate in gates}) < 2
