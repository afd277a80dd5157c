"""Cells with drafts: every rule on their evidence broken one at a time, by the judge and by the audit's own code."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest

from kassay import speculated
from kassay.audit import blocks, drafted
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import TimingCell
from kassay.validity import Evidence, faults
from tests import timed
from tests.timed import NS

SECTION: dict[str, Any] = {
    "draft_tokens": 2, "longest_ngram": 4, "shortest_ngram": 2, "same_tokens": True, "arms": {"ngram": "plain"},
}  # fmt: skip
CELLS = [
    timed.cell(
        block=block, position=place, recipe=arm, batch=2, pid=1000 + 10 * block + place,
        **({"decode_steps": [3, 3], "full_steps": [2, 2]} if arm == "ngram" else {}),
    )
    for block in (0, 1)
    for place, arm in enumerate(("plain", "ngram"))
]  # fmt: skip
NGRAM = CELLS[3]


def drafts(of: TimingCell, **changes: Any) -> SpeculationCell:
    """Of two requests one took two passes for its four tokens, the other three: twice."""
    given: dict[str, Any] = {
        **{name: getattr(of, name) for name in ("load", "block", "pilot", "position", "recipe")},
        "base": "plain", "batch": 2, "output_tokens": 4, "draft_tokens": 2, "longest_ngram": 4, "shortest_ngram": 2,
        "passes": [[2, 3]] * 2, "drafted": [[3, 2]] * 2, "accepted": [[2, 1]] * 2,
        "pass_requests": [[2, 2, 1]] * 2, "pass_tokens": [[3, 3, 1]] * 2,
    }  # fmt: skip
    return SpeculationCell(**given | changes)


def told(
    of_cell: Callable[[SpeculationCell], list[SpeculationCell]] = lambda one: [one],
    cell: Callable[[TimingCell], TimingCell] = lambda one: one,
    section: dict[str, Any] | None = SECTION,
) -> set[str]:
    """The rules that block 1 breaks; block 0 breaks none. The audit's own code must say the same."""
    cells = [*CELLS[:3], cell(NGRAM)]
    made = [drafts(CELLS[1]), *of_cell(drafts(NGRAM))]
    found = Evidence(cells=tuple(cells), hosts=tuple(timed.around(CELLS)), gpus=(), drafts=tuple(made))
    said = faults(found, None, section)
    assert section is None or {fault.block for fault in said} <= {1}, said
    assert {fault.recipe for fault in said} <= {"ngram"}
    rules = {fault.rule for fault in said if fault.block == 1}
    around = blocks.conditions(map(asdict, found.hosts), [])
    by_cell = drafted.by_cell(map(asdict, made))
    assert blocks.broken(list(map(asdict, cells[2:])), around, None, by_cell, section) == rules
    return rules


def test_cells_with_all_of_their_evidence_count() -> None:
    assert told() == set()
    assert told(lambda one: [replace(one, drafted=[[4, 6]] * 2, pass_tokens=[[3, 3, 3]] * 2)]) == set()


def change(**changes: Any) -> Callable[[SpeculationCell], list[SpeculationCell]]:
    """The record with other values."""
    return lambda one: [replace(one, **changes)]


@pytest.mark.parametrize(
    ("rule", "of_cell"),
    [
        ("drafts", lambda one: []),
        ("drafts", lambda one: [one, one]),
        ("drafts", change(position=0)),
        ("drafts", change(base="ngram")),
        ("drafts", change(batch=3)),
        ("drafts", change(output_tokens=5)),
        ("drafts", change(draft_tokens=3)),
        ("drafts", change(longest_ngram=5)),
        ("drafts", change(shortest_ngram=1)),
        ("drafts", change(passes=[])),
        ("drafts", change(drafted=[[3, 2]])),
        ("drafts", change(accepted=[[2, 1], [2]])),
        ("drafts", change(pass_requests=[[2, 2, 1]])),
        ("drafts", change(pass_tokens=[[3, 3, 1], [3, 3]])),
        ("drafts", change(accepted=[[2, 1], [2, 2]])),  # a token more than was asked for
        ("drafts", change(accepted=[[2, 1], [1, 1]])),  # and one less
        ("drafts", change(drafted=[[3, 2], [1, 2]])),  # more accepted than drafted
        ("drafts", change(drafted=[[3, 2], [5, 2]], pass_tokens=[[3, 3, 3]] * 2)),  # drafts that were too long
        ("schedule", change(pass_requests=[[2, 2, 1], [2, 1, 1]])),  # a request was missing
        ("schedule", change(pass_requests=[[2, 2, 1], [2, 2, 2]])),
        ("schedule", change(pass_tokens=[[3, 3, 1], [3, 4, 1]])),
        ("schedule", change(pass_tokens=[[3, 3, 1], [3, 3, 0]])),
        ("schedule", change(pass_tokens=[[3, 3, 1], [2, 2, 1]])),  # five drafted tokens in four places
        ("schedule", change(pass_requests=[[2, 2, 1], [2, 2]], pass_tokens=[[3, 3, 1], [3, 3]])),
    ],
)
def test_drafts_that_do_not_add_up_invalidate_by_name(rule: str, of_cell: Any) -> None:
    assert told(of_cell) == {rule}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("schedule", {"decode_steps": [3, 4]}),
        ("schedule", {"full_steps": [2, 3]}),
        ("schedule", {"decode_steps": [4, 4], "full_steps": [4, 4]}),  # as if nothing had been accepted
        ("outputs", {"output_sha256s": ["y", "y"]}),
        ("outputs", {"output_sha256s": ["x", "y"]}),
        ("stamps", {"ended_ns": [9 * NS]}),
        ("preemption", {"preemptions": [0, 1]}),
    ],
)
def test_a_cell_that_its_drafts_do_not_explain_is_invalid(rule: str, changes: dict[str, Any]) -> None:
    assert told(cell=lambda one: replace(one, **changes)) == {rule}


def test_other_tokens_count_where_the_study_says_so() -> None:
    free = SECTION | {"same_tokens": False}
    assert told(cell=lambda one: replace(one, output_sha256s=["y", "y"]), section=free) == set()


def test_an_arm_that_does_not_draft_is_held_to_a_step_a_token() -> None:
    """Without the study's word a cell with drafts is no plain one, however complete its record is."""
    plain = SECTION | {"arms": {}}
    assert told(section=None) == {"schedule", "drafts"}
    assert speculated.base_of(plain, "ngram") is None and speculated.base_of(SECTION, "ngram") == "plain"
    whole = replace(NGRAM, decode_steps=[4, 4], full_steps=[4, 4])
    assert told(lambda one: [], cell=lambda one: whole, section=None) == set()
