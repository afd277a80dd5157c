"""The list of runs: newest first, whatever state a run is in."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kassay import runs
from kassay.errors import ConfigError
from kassay.words import Given
from tests.invented import Invented, gate, run

GIVEN = Given(symbols={}, arguments={}, overrides="")


def report(run_dir: Path, word: str = "passed") -> None:
    """A report that tells how the run's stage ended."""
    body = {"verdict": "All is \x1b[31mwell.", "run": {"stages": [{"name": "certify", "word": word}]}}
    (run_dir / "report.json").write_text(json.dumps(body))


def listed(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], to: str = ""
) -> list[str]:
    """What `make runs` prints."""
    monkeypatch.setattr(runs, "results_folder", lambda: results)
    assert runs.do_runs(argparse.Namespace(to=to), GIVEN) == 0
    return capsys.readouterr().out.splitlines()


def test_runs_are_listed_newest_first_with_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"certify": Invented(records=[gate()])}
    old = run(tmp_path, "zz-20261129T000000Z-0", one)
    new = run(tmp_path, "aa-20261130T000000Z-0", one)
    rejected = run(tmp_path, "mm-20261130T000001Z-0", {"certify": replace(one["certify"], word="rejected")})
    going = run(tmp_path, "gg-20261130T000002Z-0", {"certify": Invented(word=None)})
    broken = run(tmp_path, "bb-20261130T000003Z-0", one)
    (broken / "plan.json").write_text("{")
    (tmp_path / "latest").symlink_to(broken.name)
    (tmp_path / "notes").mkdir()
    report(old)
    report(rejected, word="passed")  # of an earlier session: it ended otherwise since
    (new / "stages" / "elsewhere").symlink_to(tmp_path)  # what is behind a link is not its own
    lines = listed(tmp_path, monkeypatch, capsys)
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert [row[:4] for row in cells[1:]] == [
        [broken.name, "unreadable", "-", "-"],
        [going.name, "lost", "-", "1 lost"],
        [rejected.name, "ended", "3", "1 rejected"],
        [new.name, "ended", "0", "1 passed"],
        [old.name, "ended", "0", "1 passed"],
    ]
    assert [row[5] for row in cells[1:]] == ["-", "-", "-", "-", "All is \\x1b[31mwell."]
    told = [json.loads(line) for line in listed(tmp_path, monkeypatch, capsys, to="json")]
    assert told[3]["bytes"] == sum(
        path.stat().st_size for path in new.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert told[2]["words"] == {"rejected": 1} and told[1]["exit_code"] is None


def test_another_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed are table and json"):
        runs.do_runs(argparse.Namespace(to="csv"), GIVEN)


def test_no_runs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(tmp_path / "absent", monkeypatch, capsys) == []
