"""What is run again, taken, kept or forced; the book that saves reading, and when it must not be believed."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kassay import identity, paths
from kassay.errors import PlanError
from kassay.running import named
from tests.conftest import Project

STAGES: dict[str, Any] = {
    "a": {"program": "ok", "params": {"value": 1}},
    "b": {"program": "ok", "inputs": {"x": "a.out"}, "params": {"value": 2}},
}


def changed(value: int) -> dict[str, Any]:
    """The same stages with another parameter of `a`."""
    return {**STAGES, "a": {"program": "ok", "params": {"value": value}}}


def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The stage directories that are examined by reading, as it goes on."""
    seen: list[Path] = []
    real = identity.examine

    def examine(directory: Path, wanted: identity.Wanted) -> identity.Found:
        seen.append(directory)
        return real(directory, wanted)

    monkeypatch.setattr(identity, "examine", examine)
    return seen


def settled(project: Project) -> None:
    """Let so much time pass since the last change that the book may remember it."""
    for path in project.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path)
    time.sleep(0.05)


def test_a_forced_stage_runs_again_once_and_what_is_below_only_if_it_differs(project: Project) -> None:
    project.go(STAGES)
    went = project.go(STAGES, force={"a"})
    assert went.started == {"a": "forced"} and went.reused == {"b": ""}
    assert not project.go(STAGES).started


def test_a_kept_result_is_stale_in_words_until_it_is_made_again(project: Project) -> None:
    first = project.go(STAGES)
    went = project.go(changed(5), keep={"a"})
    assert not went.started and went.code == 0
    kept = json.loads((went.run.directory / paths.KEPT).read_bytes())["stages"]
    assert kept == {"a": "parameter value: 1 -> 5"}
    told = [line for line in (went.run.directory / paths.EVENTS).read_text().splitlines() if "stage_kept" in line]
    assert len(told) == 1 and "stale, parameter value: 1 -> 5; from run " + first.run.directory.name in told[0]
    again = project.go(changed(5))
    assert again.started == {"a": "parameter value: 1 -> 5", "b": "input x changed"}
    assert json.loads((again.run.directory / paths.KEPT).read_bytes())["stages"] == {}


def test_a_damaged_result_is_not_kept(project: Project) -> None:
    first = project.go(STAGES)
    (paths.stage_dir(first.run.directory, "a") / "out.json").write_text("{}")
    assert "a" in project.go(changed(5), keep={"a"}).started


def test_keeping_what_is_up_to_date_marks_nothing(project: Project) -> None:
    project.go(STAGES)
    went = project.go(STAGES, keep={"a"})
    assert not went.started and not (went.run.directory / paths.KEPT).exists()


def test_the_book_answers_without_reading_and_notices_every_change(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = project.go(STAGES).run.directory
    settled(project)
    project.go(STAGES)
    seen = reads(monkeypatch)
    assert not project.go(STAGES).started and not seen
    for path in (paths.stage_dir(directory, "a") / name for name in ("out.json", paths.OUTCOME, paths.RECEIPT)):
        before = path.read_bytes()
        status = path.stat()
        path.write_bytes(before[:-2] + (b"1}" if before.endswith(b"}") else b"\n}"))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # t8e: same size, time put back
        assert path.stat().st_size == status.st_size
        project.go(STAGES)
        assert seen, f"{path.name} changed and nobody looked"
        settled(project)
        project.go(STAGES)
        seen.clear()


def test_an_edited_program_is_seen_through_the_book(project: Project) -> None:
    project.go(STAGES)
    settled(project)
    project.go(STAGES)
    text = (project.root / "stages" / "ok.py").read_text()
    (project.root / "stages" / "ok.py").write_text(text + "\n# edited\n")
    assert project.go(STAGES).started["a"] == "code stages/ok.py changed"


@pytest.mark.parametrize("damage", [b"", b"garbage", b"0" * 64 + b"\n{}", None])
def test_a_damaged_book_is_as_good_as_none(project: Project, damage: bytes | None) -> None:
    directory = project.go(STAGES).run.directory
    settled(project)
    project.go(STAGES)
    book = directory / paths.BOOK
    book.write_bytes(book.read_bytes()[:-20] if damage is None else damage)
    assert not project.go(STAGES).started


def test_names_of_the_command_line(project: Project) -> None:
    plan = project.plan({"a": {"program": "ok", "each": {"m": ["x", "y"]}}, "ab": {"program": "ok"}})
    assert named(plan, "STAGE", "a") == {"a.x", "a.y"}
    assert named(plan, "STAGE", " a.x , ab") == {"a.x", "ab"}
    assert named(plan, "STAGE", None) == frozenset()
    for text, said in (("a.z", "STAGE: no stage `a.z` in workflow `toy`; did you mean"), ("", "it names no stage")):
        with pytest.raises(PlanError, match=said):
            named(plan, "STAGE", text)
