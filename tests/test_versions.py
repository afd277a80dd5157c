"""A run of another version of kassay: it is named as older or newer, and the next command is told."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kassay import audit, versions
from kassay.errors import VersionError
from kassay.kinds.source import SourceRecord
from kassay.record import read_kind
from kassay.report.evidence import load_report
from tests.commandline import kassay
from tests.invented import Invented, gate, run
from tests.kinds.case import values_of
from tests.kinds.measured import MEASURED

RUN = "tiny-20261130T000000Z-0"
COMMIT = "1f2e3d4c" * 5
OLDER = "record of schema `kassay.gate/1` is older than `kassay.gate/2`, which this kassay reads"
GOLDEN = Path(__file__).parent / "goldens" / "older-records.txt"


def line(version: int) -> str:
    """A gate as another kassay wrote it, with other fields."""
    return json.dumps({"schema": f"kassay.gate/{version}", "model": "robust", "verdict": "pass"})


def made(results: Path, *records: Any, commit: str | None = COMMIT) -> Path:
    """A run whose gates are these."""
    source = SourceRecord(**values_of(SourceRecord, MEASURED[SourceRecord].base, {"commit": commit}))
    stages = {"freeze": Invented(program="freeze", records=[source]), "certify": Invented(records=records)}
    return run(results, RUN, stages, created_at="2026-11-30T00:00:00.000Z")


def test_older_records_are_refused_with_the_next_command(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    made(tree / "results", gate(), line(1), line(1))
    done = kassay(tree, "audit", RUN)
    assert (done.returncode, done.stdout) == (2, "")
    if os.environ.get("UPDATE_GOLDENS"):
        GOLDEN.write_text(done.stderr)
    assert done.stderr == GOLDEN.read_text()


@pytest.mark.parametrize("commit", [COMMIT, None])
def test_the_commit_that_wrote_it_is_told_where_it_is_known(tmp_path: Path, commit: str | None) -> None:
    directory = made(tmp_path, line(1), commit=commit)
    with pytest.raises(VersionError) as refused:
        audit.audit(directory)
    assert refused.value.messages == (f"certify/records.jsonl:1: {OLDER}",)
    told = refused.value.hint or ""
    assert (f"a clone at commit {COMMIT}, which wrote it" in told) == (commit is not None)
    assert commit is not None or "in the kassay that wrote it" in told
    with pytest.raises(VersionError, match=r"records\.jsonl:1: record of schema `kassay.gate/1` is older"):
        read_kind(directory / "stages" / "certify" / "records.jsonl", type(gate()))


def test_the_report_says_which_kassay_reads_it(tmp_path: Path) -> None:
    (fault,) = load_report(made(tmp_path, gate(), line(3))).faults
    assert "cannot be read: stages/certify/records.jsonl:2: record of schema `kassay.gate/3` is newer" in fault
    assert f"in a clone at commit {COMMIT}" in fault and str(tmp_path) not in fault


def test_records_of_our_version_and_of_strangers_are_no_concern(tmp_path: Path) -> None:
    directory = made(tmp_path, gate(), '{"schema": "kassay.toy/7", "x": 1}', '{"schema": "theirs/1"}')
    assert versions.others(directory) == []
    versions.require_ours(directory)
