"""The stage that answers printed figures, run as a program on facts of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kassay import paths

FACTS = paths.ROOT / "data" / "published" / "figures.jsonl"


def fact(**changes: Any) -> dict[str, Any]:
    """A fact: 77.458 less 77.360, printed as 0.099."""
    body = {
        "schema": "kassay.figure/1",
        "figure": "score.change",
        "source": "document.txt",
        "line": 4,
        "study": "mine",
        "quantity": "change (pp)",
        "printed": "0.099",
        "derivation": "difference",
        "exact": {},
        "rounded": {"minuend": "77.458", "subtrahend": "77.360"},
        "inferred": [],
        "remark": "",
    }
    return body | changes


def written(path: Path, *facts: dict[str, Any]) -> Path:
    """A facts file."""
    path.write_text("".join(json.dumps(body) + "\n" for body in facts))
    return path


def test_the_shipped_facts_pass_with_one_record_each(run_stage: Callable[..., Any]) -> None:
    ran = run_stage("published", {}, {"figures": FACTS})
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    assert ran.outcome.metrics == {
        "figures": 265,
        "equal": 207,
        "consistent within input rounding": 8,
        "contradicted": 0,
        "not derivable": 50,
    }
    names = [json.loads(text)["figure"] for text in FACTS.read_text().splitlines()]
    assert [body["figure"] for body in ran.records("figure-answer")] == names
    assert ran.outcome.duration_s < 5


def test_it_loads_no_torch(run_stage: Callable[..., Any]) -> None:
    ran = run_stage("published", {}, {"figures": FACTS})
    receipt = json.loads((ran.directory / paths.RECEIPT).read_text())
    assert {"numpy", "scipy"} <= set(receipt["packages"]) and "torch" not in receipt["packages"]


def test_a_contradicted_figure_rejects_and_is_named(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    three = (fact(), fact(figure="score.other", printed="0.1"), fact(figure="x", printed="0.2"))
    facts = written(tmp_path / "facts.jsonl", *three)
    ran = run_stage("published", {}, {"figures": facts})
    assert (ran.code, ran.outcome.word) == (3, "rejected")
    assert ran.outcome.reason == "contradicted: x: printed 0.2, derived 0.098"
    answers = {body["figure"]: body["answer"] for body in ran.records("figure-answer")}
    assert answers == {"score.change": "consistent within input rounding", "score.other": "equal", "x": "contradicted"}


def test_faulty_facts_are_a_crash_that_says_all_of_them(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    facts = written(tmp_path / "facts.jsonl", fact(derivation="nothing"), fact(figure="b", rounded={"minuend": "1.0"}))
    ran = run_stage("published", {}, {"figures": facts})
    assert (ran.code, ran.outcome.word) == (1, "crashed")
    assert "no derivation is called `nothing`" in ran.outcome.reason and "figure `b`" in ran.outcome.reason
