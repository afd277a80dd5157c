"""Answer forms and cut-off answers of math problems (bug case O17), as exact decimals with every item counted."""

from decimal import Decimal

import pytest

from kassay.kv.tasks.gsm8k import Finish, Reading, bookkeeping, outcome, read
from kassay.stats.answer_gates import GrossLossPlan, gross_loss_gate
from kassay.stats.paired import ArmAnswers

FORMS: list[tuple[str, Finish, str | None, str]] = [
    ("so many #### 70,000", "stop", "70000", "label"),
    ("x #### 18.", "stop", "18", "label"),
    ("x #### $18", "stop", "18", "label"),
    ("x #### 29.00", "stop", "29", "label"),
    ("x #### -7", "stop", "-7", "label"),
    ("x #### \u22127", "stop", "-7", "label"),
    ("x #### 1,234,567.50", "stop", "1234567.5", "label"),
    ("**So she makes \\$18.**", "stop", "18", "no marker"),
    ("I cannot tell.", "stop", None, "no answer"),
    ("so 12 * 3 = 36 and then we add 4 to get", "length", None, "truncated"),
    ("#### 5 and then 7 and", "length", "5", "label"),  # a labelled answer at the cap counts
    ("#### 5, no: ####", "length", None, "truncated"),
    ("#### 5, no: #### none", "stop", None, "no answer"),  # the last label counts
    ("#### 5 #### 6", "stop", "6", "label"),
    ("#### .5", "stop", "0.5", "label"),
    ("", "stop", None, "no answer"),
    ("", "length", None, "truncated"),
]


@pytest.mark.parametrize(("text", "finish", "value", "how"), FORMS)
def test_forms_of_answers(text: str, finish: Finish, value: str | None, how: str) -> None:
    found = read(text, finish)
    assert found.how == how
    assert found.value == (None if value is None else Decimal(value))


def test_values_are_compared_as_exact_decimals() -> None:
    assert outcome(read("#### 29.00", "stop"), Decimal("29")) == "correct"
    assert outcome(read("#### 18.", "stop"), Decimal("18")) == "correct"
    assert outcome(read("#### 0.30000000000000004", "stop"), Decimal("0.3")) == "wrong"
    assert outcome(read("#### 12345678901234567891", "stop"), Decimal("12345678901234567890")) == "wrong"
    assert outcome(read("and 4 to get", "length"), Decimal("4")) == "truncated", (
        "a number of the working scores nothing"
    )


def test_every_item_stays_in_the_denominator_and_each_way_to_miss_is_counted() -> None:
    readings = [read(text, finish) for text, finish, _, _ in FORMS[:10]]
    golds = [Decimal(18)] * 10
    assert bookkeeping(readings, golds) == {
        "correct": 3, "wrong": 5, "unreadable": 1, "truncated": 1, "no marker": 1, "items": 10,
    }  # fmt: skip
    with pytest.raises(ValueError, match="shorter"):
        bookkeeping([Reading(value=None, how="no answer")], [])


def test_a_gate_says_that_the_arms_were_cut_off_unequally_often() -> None:
    def arm(name: str, cut: int) -> ArmAnswers:
        ids = tuple(f"item-{index}" for index in range(200))
        ended = ["truncated"] * cut + ["wrong"] * (10 - cut) + ["correct"] * 190
        return ArmAnswers(arm=name, item_ids=ids, digests=ids, outcomes=tuple(ended))

    plan = GrossLossPlan(
        gate="sums", endpoint="sums", control="native", candidate="A", planned_n=200, margin=0.05, alpha=0.05,
        true_rate=None, native_floor=None,
    )  # fmt: skip
    uneven = gross_loss_gate({"native": arm("native", 2), "A": arm("A", 7)}, plan=plan)
    assert uneven.remark == "cut off are 2 answers of the control and 7 of the candidate"
    assert uneven.control_outcomes == {"correct": 190, "wrong": 8, "unreadable": 0, "truncated": 2, "error": 0}
    assert (uneven.verdict, uneven.power) == ("pass", None)
    assert gross_loss_gate({"native": arm("native", 2), "A": arm("A", 2)}, plan=plan).remark == ""
