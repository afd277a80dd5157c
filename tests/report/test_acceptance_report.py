"""The section on drafts: acceptance as recorded, what timed cells did with theirs, and no number where nothing ran."""

from types import SimpleNamespace
from typing import Any

from kassay.kinds.speculation import AcceptanceRecord, SpeculationCell
from kassay.report.acceptance import acceptance_row, acceptance_section, timed_rows
from kassay.report.acceptance_words import acceptance_line
from tests import timed


def report(*records: Any) -> Any:
    """What the section asks of a report."""
    run = SimpleNamespace(why_absent=lambda program: f"`{program}` is blocked: `calibrate` was unmet")
    return SimpleNamespace(of=lambda kind: tuple(one for one in records if isinstance(one, kind)), run=run)


def point(
    recipe: str = "native", batch: int = 1, context: int = 64, draft: int = 2, accepted: int = 3, **more: Any
) -> AcceptanceRecord:
    """Two requests of eight tokens."""
    given: dict[str, Any] = {
        "model": "robust", "recipe": recipe, "batch": batch, "context_tokens": context, "output_tokens": 8,
        "draft_tokens": draft, "longest_ngram": 4, "shortest_ngram": 2, "requests": 2, "prompts_sha256": "x",
        "passes": [8 - accepted, 8], "drafted": [6, 0], "accepted": [accepted, 0], "acceptance": accepted / 6,
        "tokens_per_pass": 16 / (16 - accepted), "other_requests": 0, "largest_rounding": 1.5e-5,
        "smallest_margin": 2e-4, "rounding_tolerance": 0.01,
    }  # fmt: skip
    return AcceptanceRecord(**given | more)


POINTS = [
    point(recipe, batch, context, draft, accepted)
    for recipe in ("native", "k8v8-d")
    for batch in (1, 2)
    for context in (64, 1024)
    for draft, accepted in ((2, 3), (4, 1))
]


def test_acceptance_is_drawn_and_told_point_by_point() -> None:
    made = report(*POINTS)
    page = acceptance_section(made)
    assert page.count("<svg") == 1 and page.count("<tr>") == 1 + len(POINTS)
    assert "K8/V8 dynamic, 1,024 tokens, batch 2, draft 4: 0.167" in page
    assert acceptance_row(POINTS[-1]) == [
        "K8/V8 dynamic", "1,024", "2", "4", "1 of 6", "0.167", "1.07", "0 of 2", "1.5e-05", "0.00020"
    ]  # fmt: skip
    assert acceptance_line(made) == (
        "Over 16 points acceptance is 0.17 to 0.50; all 32 outputs are those of plain decoding."
    )


def test_other_outputs_and_no_drafts_are_told() -> None:
    none = point(accepted=0, drafted=[0, 0], acceptance=None)
    made = report(none, point(other_requests=1))
    assert acceptance_row(none)[5] == "–" and "3 of 4 outputs are those of plain decoding" in acceptance_line(made)
    assert "<svg" in acceptance_section(made)
    assert (
        acceptance_line(report(none)) == "Over 1 point nothing was drafted; all 2 outputs are those of plain decoding."
    )


def test_nothing_is_drawn_or_said_where_nothing_was_measured() -> None:
    page = acceptance_section(report())
    assert "<svg" not in page and "was unmet" in page and "Not measured" in acceptance_line(report())


def cell(block: int, pilot: bool = False, **changes: Any) -> list[Any]:
    """A timing cell with a warm-up and one repetition, and its drafts, those of the warm-up absurd."""
    own = timed.cell(block=block, pilot=pilot, recipe="native-ngram", batch=2, position=1)
    given: dict[str, Any] = {
        "load": "timed", "block": block, "pilot": pilot, "position": 1, "recipe": "native-ngram", "base": "native",
        "batch": 2, "output_tokens": 4, "draft_tokens": 2, "longest_ngram": 4, "shortest_ngram": 2,
        "passes": [[99, 99], [2, 3]], "drafted": [[99, 99], [3, 2]], "accepted": [[99, 99], [2, 1]],
        "pass_requests": [[99], [2, 2, 1]], "pass_tokens": [[99], [3, 3, 1]],
    }  # fmt: skip
    return [own, SpeculationCell(**given | changes)]


def test_drafts_of_timed_cells_leave_warm_ups_and_pilots_out() -> None:
    made = report(*cell(0), *cell(1), *cell(0, pilot=True, drafted=[[99, 99], [50, 50]]))
    # 13 positions a repetition, of which 5 passes' own tokens and 5 drafted ones are no padding
    assert timed_rows(made) == [
        ["timed", "native-ngram", "6 of 10", "0.600", "1.60", "2 to 3", f"{100 * 3 / 13:.1f} %"]
    ]
    assert "native-ngram" in acceptance_section(made)
