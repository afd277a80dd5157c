"""What is sent of an event: words and numbers of the outcome that it tells, no prose, whole lines only."""

import json
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.errors import RecordError
from kassay.mirror.rows import Rows, flat, summary_of
from kassay.outcome import Outcome
from kassay.record import set_aside_torn_tail

RUN = "toy-run"


def line(second: int, event: str, stage: str | None, why: str = "") -> str:
    """One line of events.jsonl."""
    at = f"2026-01-01T00:00:{second:02d}.500Z"
    return json.dumps({"schema": "kassay.event/1", "at": at, "event": event, "stage": stage, "why": why}) + "\n"


def leave(directory: Path, second: int, metrics: dict[str, Any], run: str = RUN) -> None:
    """An outcome that started at a second."""
    directory.mkdir(parents=True)
    Outcome(
        stage="a",
        run=run,
        word="rejected",
        reason="secret prose",
        metrics=metrics,
        artifacts={},
        started_at=f"2026-01-01T00:00:{second:02d}.000Z",
        duration_s=1.5,
        attempt=1,
        grant=None,
    ).save(directory)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """An empty run directory."""
    (tmp_path / RUN / "stages").mkdir(parents=True)
    return tmp_path / RUN


def test_rows_of_a_run(run_dir: Path) -> None:
    leave(run_dir / "stages" / "a", 1, {"loss": 0.5, "ok": True, "of": {"n": 3}, "verdict": "fails", "why": "a b"})
    rows = Rows(run_dir)
    assert rows.fresh() == []
    log = run_dir / paths.EVENTS
    log.write_text(line(0, "run_started", None, "plan 12") + line(2, "stage_ended", "a", "rejected: secret prose"))
    first, second = rows.fresh()
    assert (first.number, first.values) == (0, {"event": "run_started", "_timestamp": 1767225600.5})
    assert second.number == 1 and second.values == {
        "event": "stage_ended",
        "_timestamp": 1767225602.5,
        "stage": "a",
        "outcome": "rejected",
        "a/outcome": "rejected",
        "a/duration_s": 1.5,
        "a/loss": 0.5,
        "a/ok": True,
        "a/of/n": 3,
        "a/verdict": "fails",
    }
    assert rows.fresh() == [] and rows.count == 2 and rows.crashed == set()


def test_a_torn_tail_waits_until_it_is_whole_or_set_aside(run_dir: Path) -> None:
    log = run_dir / paths.EVENTS
    whole = line(1, "run_started", None)
    log.write_bytes((whole + whole[:-1]).encode())
    rows = Rows(run_dir)
    assert [row.number for row in rows.fresh()] == [0]
    assert set_aside_torn_tail(log) is None  # it lacked its newline only
    assert [row.number for row in rows.fresh()] == [1]
    with log.open("a") as stream:
        stream.write(whole[:20])
    assert rows.fresh() == []
    assert set_aside_torn_tail(log) == 3
    with log.open("a") as stream:
        stream.write(line(2, "run_ended", None))
    assert [(row.number, row.values["event"]) for row in rows.fresh()] == [(2, "run_ended")]
    with log.open("a") as stream:
        stream.write("{}\n")
    with pytest.raises(RecordError, match=r"events\.jsonl:4"):
        rows.fresh()


def test_an_event_tells_the_outcome_of_its_time(run_dir: Path) -> None:
    stages = run_dir / "stages"
    leave(stages / ".a.stale-1", 1, {"n": 1})
    leave(stages / ".a.stale-2", 11, {"n": 2})
    leave(stages / "a", 21, {"n": 3})
    leave(stages / ".a.stale-3", 29, {"n": 9}, run="another")
    text = [line(second, "stage_ended", "a", "rejected: x") for second in (5, 15, 25, 35)]
    (run_dir / paths.EVENTS).write_text("".join(text) + line(9, "stage_reused", "a") + line(0, "stage_ended", "a"))
    assert [row.values.get("a/n") for row in Rows(run_dir).fresh()] == [1, 2, 3, 3, None, None]


def test_a_reused_outcome_may_be_of_another_run(run_dir: Path) -> None:
    leave(run_dir / "stages" / "a", 1, {"n": 1}, run="another")
    (run_dir / paths.EVENTS).write_text(line(5, "stage_reused", "a", "from run another") + line(6, "stage_ended", "a"))
    assert [row.values.get("a/n") for row in Rows(run_dir).fresh()] == [1, None]


@pytest.mark.parametrize("text", ["", "two words", "/a/path", "https:x", "a@b", "k=v", "x" * 65, "line\nline"])
def test_prose_paths_and_addresses_are_no_words(text: str) -> None:
    assert flat({"a": text, "b": "2.13.0+cpu", "c": [1], "d": None}) == {"b": "2.13.0+cpu"}


def test_the_summary_has_no_text_of_a_setting(run_dir: Path) -> None:
    settings = {"RESULTS": "/a/path", "TIMING_BLOCKS": 8, "WANDB": True}
    told = {"run": RUN, "created_at": "t", "settings": {name: {"value": value} for name, value in settings.items()}}
    (run_dir / paths.MANIFEST).write_text(json.dumps(told))
    (run_dir / paths.PLAN).write_text(json.dumps({"hash": "h", "profile": "toy"}))
    assert summary_of(run_dir)["settings"] == {"TIMING_BLOCKS": 8, "WANDB": True}
