"""Every planned row is visible: one without a result says `not run` and why, in the page, the text and a count."""

import dataclasses
import json
from typing import Any

import pytest

from kassay.kinds.probe import ProbeArm
from kassay.kinds.verdict import CertificateRecord, GateRecord
from kassay.report.unrun import coverage_line, unrun_rows, unrun_section
from tests.kinds.case import Values
from tests.kinds.judged import NONE
from tests.report.fabricate import RECIPES, STUDY, FakeRun, certify_records, contrast_records, memory_records
from tests.report.page import Page

CERTIFIED: dict[str, Any] = {
    **STUDY,
    "certificates": {"comparisons": RECIPES[1:], "objectives": {"preservation": ["retrieval", "arithmetic", "nll"]}},
}


def with_gates(run: FakeRun) -> FakeRun:
    """The run with a study that names its gates."""
    path = run.directory / "plan.json"
    body = json.loads(path.read_bytes())
    body["config"]["study"] = CERTIFIED
    path.write_text(json.dumps(body), encoding="ascii")
    return run


def test_a_full_run_says_what_all_has_a_result(fake_run: FakeRun) -> None:
    report = with_gates(fake_run.full()).report()
    assert unrun_rows(report) == []
    assert coverage_line(report) == (
        "Every planned row has a result: 12 certificates, 36 gates, 2 comparisons and 4 sweeps."
    )
    assert unrun_section(report) is None


def test_nothing_ran_and_every_planned_row_is_there(fake_run: FakeRun) -> None:
    reports = with_gates(fake_run).rendered()
    page = Page(reports["report.html"])
    assert "54 of 54 planned rows without a result: 12 of 12 certificates" in page.texts["header"][0]
    body = page.texts["body"][0]
    for row in ("nll: K8/V8 dynamic against K16/V16 native on fragile", "K16/V8 fixed at 1,000 tokens"):
        assert row in body and row in reports["report.md"].replace("\\", "")
    assert "saturation: not run (it was never started)" in body


def test_a_stage_that_passed_and_left_a_row_out_is_found(fake_run: FakeRun) -> None:
    with_gates(fake_run.full())
    kept = [r for r in certify_records() if not (isinstance(r, GateRecord) and (r.gate, r.model) == ("nll", "robust"))]
    assert isinstance(kept[-1], CertificateRecord)
    fake_run.end("certify", records=kept[:-1])
    report = fake_run.report()
    assert [row[:2] for row in unrun_rows(report)][:2] == [
        ["certificate", "K8/V8 dynamic on fragile"],
        ["gate", "nll: K16/V8 fixed against K16/V16 native on robust"],
    ]
    assert coverage_line(report).startswith("7 of 54 planned rows without a result: 1 of 12 certificates and 6 of 36 g")
    assert {row[3] for row in unrun_rows(report)} == {"the stage left no record of it"}


@pytest.mark.parametrize(("word", "numbers"), [("not run", NONE), ("invalidated", {"needed_blocks": 13})])
def test_reasons_are_those_of_the_stage_or_of_the_record(fake_run: FakeRun, word: str, numbers: Values) -> None:
    fake_run.full()
    fake_run.end("saturation", "blocked", "`sweep` was unmet", records=[])
    records = contrast_records({"k16v8-f": 0.93, "k8v8-f": 0.88})
    told = {"verdict": word, "reason": "no block of it counts", **numbers}
    records[1] = dataclasses.replace(records[1], **told)
    fake_run.end("contrast", records=records)
    rows = {row[1]: (row[2], row[3]) for row in unrun_rows(fake_run.report())}
    assert rows["K8/V8 fixed against K16/V16 native"] == (word, "no block of it counts")
    assert rows["K16/V8 fixed at 128 tokens"] == ("not run", "saturation: blocked (`sweep` was unmet)")


def test_a_recipe_that_the_model_cannot_have_is_ineligible(fake_run: FakeRun) -> None:
    path = fake_run.directory / "plan.json"
    body = json.loads(path.read_bytes())
    (stage,) = [stage for stage in body["stages"] if stage["name"] == "oracle.robust"]
    stage["params"]["recipes"] = [*RECIPES, "prebias-k8v8-f"]
    path.write_text(json.dumps(body), encoding="ascii")
    fake_run.full()
    refused: dict[str, Any] = {"arm": "prebias-k8v8-f", "recipe": "prebias-k8v8-f", "layer": None, "layer_recipe": None}
    arm = ProbeArm(model="robust", probe="prebias", **refused, eligible=False, reason="the model has no key bias")
    fake_run.end("calibrate.robust", records=[arm])
    assert unrun_rows(fake_run.report()) == [
        ["oracle row", "K8/V8 fixed pre-bias on robust", "ineligible", "the model has no key bias"]
    ]


def test_a_recipe_that_memory_did_not_hold_is_named(fake_run: FakeRun) -> None:
    path = fake_run.directory / "plan.json"
    body = json.loads(path.read_bytes())
    (stage,) = [stage for stage in body["stages"] if stage["name"] == "memory"]
    stage["params"]["recipes"] = RECIPES
    path.write_text(json.dumps(body), encoding="ascii")
    fake_run.full()
    kept = [record for record in memory_records() if getattr(record, "recipe", "") != "k8v8-d"]
    fake_run.end("memory", records=kept)
    assert [row[:2] for row in unrun_rows(fake_run.report())] == [["cache size row", "K8/V8 dynamic on robust"]]
