"""A JSON Schema for every record kind: current, strict, and true of what real stages write."""

import json
import math
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

from kassay import paths, schemas
from kassay.record import Writer, read_lines
from tests.invented import gate


def body(**changed: Any) -> dict[str, Any]:
    """A gate, parsed."""
    return dict(json.loads(gate(**changed).to_json()))


def test_every_kind_has_a_current_schema_and_every_schema_a_kind() -> None:
    there = {path.name: path.read_text() for path in Path(schemas.__file__).parent.glob("*.json")}
    assert there == schemas.shipped()


def test_every_record_of_a_run_is_valid(judged_run: Path) -> None:
    bodies = [line for path in judged_run.glob(f"stages/*/{paths.RECORDS}") for line in read_lines(path)]
    found = {f"{line['schema']}: {fault}" for line in bodies for fault in schemas.validate(line)}
    assert not found and len({line["schema"] for line in bodies}) >= 8


@pytest.mark.parametrize(
    "changed",
    [
        {"n": "400"},
        {"n": 400.5},
        {"n": True},
        {"upper": None},
        {"verdict": None},
        {"model": 1},
        {"control_outcomes": {"correct": "many"}},
        {"more": 1},
        {"nonfinite": []},
        {"nonfinite": ["lower: nan"], "upper": None},
    ],
)
def test_what_no_writer_writes_is_invalid(changed: dict[str, Any]) -> None:
    assert not schemas.validate(body())
    assert schemas.validate({**body(), **changed})


def test_a_field_that_lacks_and_a_version_that_is_unknown_are_told() -> None:
    lacking = body()
    del lacking["upper"]
    assert schemas.validate(lacking) == ["$: 'upper' is a required property"]
    assert schemas.validate({"schema": "kassay.gate/99"}) == ["no schema `kassay.gate/99`"]


def test_a_number_that_was_not_finite_is_null_and_named() -> None:
    line = body(estimate=math.nan)
    assert line["estimate"] is None and line["nonfinite"] == ["estimate: nan"] and not schemas.validate(line)


def test_o15_what_is_written_every_strict_reader_takes(tmp_path: Path) -> None:
    """O15: no bare NaN, no number or truth value as text, no digit lost; numpy's scalars mean Python's."""
    of_losses = dict.fromkeys(
        ("losses", "gains", "power", "true_rate", "native_floor", "native_score", "control_outcomes",
         "candidate_outcomes")
    )  # fmt: skip
    written = gate(upper=float("inf"), lower=math.nan, unchanged=np.bool_(True), estimate=np.float32(0.1),
                   n=np.int64(3), draws=9, seed=9007199254740993, statistic="relative mean nll",
                   verdict="unestablished", **of_losses)  # fmt: skip
    writer = Writer(tmp_path / "records.jsonl")
    writer.append(written)
    writer.close()
    text = (tmp_path / "records.jsonl").read_text()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    found = json.loads(text, parse_constant=refuse)
    assert (found["upper"], found["lower"], found["unchanged"], found["n"]) == (None, None, True, 3)
    assert found["estimate"] == float(np.float32(0.1)) and found["seed"] == 9007199254740993
    assert found["nonfinite"] == ["lower: nan", "upper: inf"] and not schemas.validate(found)
    if which("jq"):
        argv = ["jq", "-c", "[.upper, .unchanged, .n]", str(tmp_path / "records.jsonl")]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[null,true,3]"
