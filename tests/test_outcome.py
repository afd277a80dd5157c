"""Outcomes: five words that are never merged, what a broken file says, and which exit code outranks which."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from kassay import outcome, paths
from kassay.errors import RunError
from kassay.outcome import Artifact, Outcome


def made(**other: Any) -> Outcome:
    """A passed outcome, but for what is given."""
    fields: dict[str, Any] = {
        "stage": "a",
        "run": "r",
        "word": "passed",
        "reason": "",
        "metrics": {"loss": 0.5, "nan": float("nan")},
        "artifacts": {"out": Artifact(file="out.json", sha256="0", bytes=3)},
        "started_at": "2026-01-01T00:00:00.000Z",
        "duration_s": 1.0,
        "attempt": 1,
        "grant": None,
    }
    return Outcome(**fields | other)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    made().save(tmp_path)
    loaded = outcome.load(tmp_path)
    assert loaded is not None and loaded.metrics == {"loss": 0.5, "nan": None}
    assert loaded.artifacts == made().artifacts and loaded.usable
    text = (tmp_path / paths.OUTCOME).read_text()
    assert json.loads(text, parse_constant=pytest.fail)["nonfinite"] == ["metrics.nan: nan"]
    assert outcome.load(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("word", "reason"),
    [("passed", "why"), ("rejected", ""), ("unmet", ""), ("blocked", ""), ("crashed", ""), ("ok", "x")],
)
def test_a_word_needs_its_reason(word: str, reason: str) -> None:
    with pytest.raises(RunError, match="outcome"):
        made(word=word, reason=reason)


UNSTARTED: dict[str, Any] = {"word": "blocked", "reason": "x", "attempt": 0, "metrics": {}, "artifacts": {}}


@pytest.mark.parametrize("word", ["unmet", "blocked", "crashed"])
def test_a_stage_that_was_not_started_has_a_word_and_no_results(word: str) -> None:
    assert made(**UNSTARTED | {"word": word}).attempt == 0


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"word": "passed", "reason": ""}, "is `passed` with nothing"),
        ({"word": "rejected"}, "is `rejected` with nothing"),
        ({"metrics": {"loss": 0.5}}, "is `blocked` with metrics"),
        ({"artifacts": {"out": Artifact(file="o", sha256="0", bytes=3)}}, "is `blocked` with artifacts"),
        ({"grant": {"cpus": 1}}, "is `blocked` with grant"),
    ],
)
def test_what_was_not_started_left_nothing(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError, match=said):
        made(**UNSTARTED | other)
    body = {"schema": outcome.SCHEMA, **made(**UNSTARTED).body(), **other}
    body["artifacts"] = {name: vars(one) for name, one in body["artifacts"].items()}
    (tmp_path / paths.OUTCOME).write_text(json.dumps(body))
    with pytest.raises(RunError, match=f"not a readable outcome: .*{said}"):
        outcome.load(tmp_path)


@pytest.mark.parametrize("word", ["rejected", "unmet", "blocked", "crashed"])
def test_only_passed_is_usable(word: str) -> None:
    assert not made(word=word, reason="x").usable


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"schema": "kassay.outcome/2"}', '{"schema": "kassay.outcome/1"}', "\xff", "SKIP", "WORD"],
)
def test_a_broken_file_is_named(tmp_path: Path, content: str) -> None:
    made().save(tmp_path)
    body = json.loads((tmp_path / paths.OUTCOME).read_text())
    if content == "SKIP":
        content = json.dumps({**body, "artifacts": {"out": {"file": "x"}}})
    if content == "WORD":
        content = json.dumps({**body, "word": "skipped"})
    (tmp_path / paths.OUTCOME).write_text(content, encoding="latin-1")
    with pytest.raises(RunError) as caught:
        outcome.load(tmp_path)
    assert str(tmp_path / paths.OUTCOME) in str(caught.value) and "move" in str(caught.value)


def test_the_exit_code_is_that_of_the_worst() -> None:
    worst = {"crashed": 1, "rejected": 3, "unmet": 4, "blocked": 4, "passed": 0}  # in order of rank
    assert outcome.exit_code([]) == 0
    for size in (1, 2, 3):
        for words in itertools.product(outcome.WORDS, repeat=size):
            assert outcome.exit_code(list(words)) == next(code for word, code in worst.items() if word in words)
