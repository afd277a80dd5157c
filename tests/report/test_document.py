"""report.json: the shipped schema is current and holds it, raw records are counted, and what is not finite is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kassay import report, schemas
from kassay.report.document import SCHEMA_FILE, report_json, schema_text
from tests.report.fabricate import FakeRun, records_of

SHIPPED = Path(report.__file__).parent / SCHEMA_FILE


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """What checks a document against the shipped schema."""
    schema = json.loads(SHIPPED.read_text(encoding="ascii"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_shipped_schema_is_current() -> None:
    assert SHIPPED.read_text(encoding="ascii") == schema_text(), "python -m kassay.report.document writes it"


def test_a_full_and_an_empty_run_are_valid(
    full_reports: dict[str, str], fake_run: FakeRun, validator: Draft202012Validator
) -> None:
    for text in (full_reports["report.json"], report_json(fake_run.report())):
        assert [error.message for error in validator.iter_errors(json.loads(text))] == []


def test_every_record_in_it_is_valid_by_the_schema_of_its_kind(full_reports: dict[str, str]) -> None:
    records = json.loads(full_reports["report.json"])["records"]
    assert len(records) > 50 and [fault for record in records for fault in schemas.validate(record)] == []


@pytest.mark.parametrize(
    ("place", "value"),
    [(("verdict",), None), (("run", "stages", 0, "word"), 3), (("records", 0), 1), (("files", 0, "more"), 1)],
)
def test_another_document_is_not_valid(
    full_reports: dict[str, str], validator: Draft202012Validator, place: tuple[str | int, ...], value: object
) -> None:
    body: Any = json.loads(full_reports["report.json"])
    inner = body
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert not validator.is_valid(body)


def test_raw_records_are_counted_and_not_repeated(full_reports: dict[str, str]) -> None:
    body = json.loads(full_reports["report.json"])
    kinds = {record["schema"].partition("/")[0] for record in body["records"]}
    assert "kassay.gate" in kinds and not kinds & {"kassay.oracle_case", "kassay.timing_cell", "kassay.sweep_cell"}
    counted = {file["stage"]: file["records"] for file in body["files"]}
    assert counted["oracle.robust"] == 126 and counted["timing"] == len(records_of("timing"))


def test_a_metric_that_is_not_finite_is_null_and_named(fake_run: FakeRun) -> None:
    fake_run.end("contrast", metrics={"ratio": float("nan"), "blocks": 12})
    body = json.loads(report_json(fake_run.report()))
    (stage,) = [stage for stage in body["run"]["stages"] if stage["name"] == "contrast"]
    assert stage["metrics"] == {"ratio": None, "blocks": 12} and stage["nonfinite"] == ["ratio: nan"]
    assert "blocks 12; not finite: ratio: nan" in fake_run.rendered()["report.html"]
