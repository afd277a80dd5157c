"""A family of complete recipes on many models: every planned row, whatever stopped it."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import as_long, given_only, one_of, ordered, rule
from kassay.kinds.words import AS_EXPECTED, OF_RATIOS, TESTED
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class CaseGateRecord(Record):
    """A gate of checks on one model: all cases hold, or it fails."""

    schema: ClassVar[str] = "kassay.case_gate/1"

    model: str = doc("Name of the model.")
    gate: str = doc("Name of the gate in the study.")
    endpoint: str = doc("Name of the endpoint in the study.")
    cases: int = doc("Cases that were checked, at least 1.")
    passed: int = doc("Cases that hold.")
    verdict: str = doc("`pass` if all hold, else `fails`.")
    reason: str = doc("The verdict in words.")

    combinations = (
        one_of("verdict", ("pass", "fails")),
        ordered("passed", "cases"),
        rule(
            "`verdict` is `pass` exactly where all `cases` are `passed`, one at least",
            lambda gate: (gate.verdict == "pass") == (gate.passed == gate.cases >= 1),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class MatrixRow(Record):
    """One planned comparison of one timed load: its stages in order, and what came of it."""

    schema: ClassVar[str] = "kassay.matrix_row/1"

    study: str = doc("Name of the study.")
    workload: str = doc("Name of the load in the study.")
    model: str = doc("Model of the load.")
    comparison: str = doc("Name of the comparison in the study.")
    candidate: str = doc("Recipe in the ratio's numerator.")
    control: str = doc("Recipe in the ratio's denominator.")
    stages: list[str] = doc("Stages before timing, in the study's order.")
    verdicts: list[str] = doc("What each says; `not run`, or the stop rule's word, where it has no result.")
    reasons: list[str] = doc("Why, in words; empty for a pass.")
    ratios: list[float] | None = doc(
        "Within-block rate ratios in block order, null if not measured or if too few blocks count."
    )
    median: float | None = doc("Median of the ratios.")
    lower: float | None = doc("Lower end of the descriptive interval of the median.")
    upper: float | None = doc("Upper end of the same interval.")
    wins: int | None = doc("Blocks whose ratio is above 1; ties are no wins and stay in n.")
    p: float | None = doc("One-sided exact sign test.")
    holm_p: float = doc("Holm-adjusted p over the whole family; a comparison that was not run keeps 1.")
    family_size: int = doc("Planned comparisons that Holm counts, those without a row here included.")
    alpha: float = doc("Level of the family.")
    screen_ratio: float = doc("Least median ratio of a gain.")
    verdict: str = doc("`gain confirmed`, `no confirmed gain`, or why there is none: the stop rule's word, `not run`.")
    reason: str = doc("The verdict in words.")
    expected: str | None = doc("Verdict that the study expects of a reproduction, null where it states none.")
    as_expected: bool | None = doc("Whether the verdict is the expected one, null where none is stated.")

    combinations = (
        *OF_RATIOS,
        given_only("verdict", TESTED, "ratios"),
        as_long("stages", "verdicts", "reasons"),
        rule(
            "`reasons` are empty exactly where `verdicts` are `pass`",
            lambda row: [not reason for reason in row.reasons] == [word == "pass" for word in row.verdicts],
        ),
        rule(
            "`verdict` is one of a gain only where all `verdicts` are `pass`",
            lambda row: row.verdict not in TESTED or set(row.verdicts) <= {"pass"},
        ),
        AS_EXPECTED,
    )
