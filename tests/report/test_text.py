"""Closing lines, Markdown, JUnit and the written files."""

import json
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kassay.errors import RunError
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GateRecord, SaturationRecord
from kassay.report import render_run
from kassay.report.junit import junit_xml
from tests.report.fabricate import RUN, FakeRun, certify_records, closing, judged

VERDICT = (
    "All 12 verdicts are as expected: K16/V8 holds on both models; K8/V16 and K8/V8 hold on robust and fail on fragile."
)


def test_closing_lines_of_a_good_run(full_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    (full_run.directory / "report.html").touch()
    monkeypatch.chdir(full_run.directory.parent)
    assert closing(full_run.directory, 0) == [
        VERDICT,
        f"report: {RUN}/report.html",
        "exit code 0: every stage passed",
    ]


def test_closing_lines_name_what_did_not_pass(fake_run: FakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_run.full()
    fake_run.end("timing", "crashed", "exit status -9", records=[], stderr="killed\n")
    fake_run.end("contrast", "blocked", "`timing` was crashed", records=[])
    monkeypatch.chdir(fake_run.directory)
    assert closing(fake_run.directory, 1) == [
        "timing crashed: exit status -9 (log: stages/timing/stderr.log)",
        "contrast blocked: `timing` was crashed",
        VERDICT,
        "report: none was rendered",
        "exit code 1: something crashed",
    ]


def test_nothing_to_do(full_run: FakeRun) -> None:
    assert closing(full_run.directory, 0, idle=True)[:2] == ["nothing to do: all 14 stages are up to date", VERDICT]


def test_what_was_kept_on_demand_is_told(full_run: FakeRun) -> None:
    told = closing(full_run.directory, 0, stale={"memory": "input x changed"})
    assert told[:2] == ["memory kept on demand, stale: input x changed", VERDICT]
    (full_run.directory / "kept.json").write_text(json.dumps({"stages": {"memory": "input x changed"}}))
    for name in ("report.md", "report.html"):
        assert "kept on demand, stale: input x changed" in full_run.rendered()[name]


def test_closing_lines_are_fast_and_draw_nothing(full_run: FakeRun) -> None:
    program = (
        "import sys; from pathlib import Path; from kassay.report.closing import closing_lines;"
        "closing_lines(Path(sys.argv[1]), 0, [], {}, {}, False);"
        "heavy = {'matplotlib', 'numpy', 'scipy', 'torch'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program, str(full_run.directory)], check=True)
    fastest = min(timed(full_run.directory) for _ in range(5))
    assert fastest < 0.05


def timed(directory: Path) -> float:
    """Seconds of a processor that one call takes."""
    started = time.process_time()
    closing(directory, 0)
    return time.process_time() - started


def test_render_writes_four_files(full_run: FakeRun) -> None:
    written = render_run(full_run.directory)
    assert [path.name for path in written] == ["report.html", "report.md", "report.json", "junit.xml"]
    assert all(path.read_bytes() for path in written)


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"plan.json: no such file: not a run directory"):
        render_run(tmp_path)


def test_markdown_tables(full_reports: dict[str, str]) -> None:
    text = full_reports["report.md"]
    assert text.startswith(f"# {VERDICT}\n\n**Exit code 0**: every stage passed.")
    assert "| K8/V8 fixed | pass | fails |" in text
    assert "| fragile | K8/V16 fixed | K16/V16 native | retrieval | 400 | 211 / 0 | 52.750 %" in text
    assert "| study.alpha=0.05 |  | override | SET |" in text


def test_report_json(full_reports: dict[str, str]) -> None:
    body = json.loads(full_reports["report.json"])
    assert body["schema"] == "kassay.report/3" and body["verdict"] == VERDICT and body["exit_code"] == 0
    schemas = {record["schema"] for record in body["records"]}
    assert {kind.schema for kind in (GateRecord, CertificateRecord, ContrastRecord, SaturationRecord)} <= schemas


def test_junit_of_expected_failures_is_clean(full_run: FakeRun) -> None:
    root = ElementTree.fromstring(junit_xml(full_run.report()))
    stages, certificates = root.findall("testsuite")
    assert (stages.get("tests"), certificates.get("tests")) == ("14", "12")
    assert [suite.get(key) for suite in root for key in ("failures", "errors", "skipped")] == ["0"] * 6


def test_junit_counts(fake_run: FakeRun) -> None:
    fake_run.full()
    fake_run.end("timing", "crashed", "killed", records=[])
    fake_run.end("contrast", "blocked", "`timing` was crashed", records=[])
    surprising = judged("robust", "k16v8-f", "fails")
    fake_run.end(
        "certify", "rejected", "k16v8-f on robust: pass, expected fails", records=[*certify_records(), *surprising]
    )
    stages, certificates = ElementTree.fromstring(junit_xml(fake_run.report())).findall("testsuite")
    assert [stages.get(key) for key in ("failures", "errors", "skipped")] == ["1", "1", "1"]
    assert certificates.get("failures") == "1"
    failure = certificates.find("testcase/failure")
    assert failure is not None and failure.get("message") == "pass, expected fails"


def test_a_run_without_certificates_skips_them(fake_run: FakeRun) -> None:
    certificates = ElementTree.fromstring(junit_xml(fake_run.report())).findall("testsuite")[1]
    assert certificates.get("skipped") == certificates.get("tests") == "12"
