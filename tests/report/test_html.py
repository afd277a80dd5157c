"""report.html: structure, self-containment, every planned row, figures with data behind them, equal bytes."""

import dataclasses
import re
import shutil

import pytest

from kassay.kinds.verdict import ContrastRecord
from kassay.report.text import markdown
from tests.report.fabricate import EARLIER, RUN, FakeRun, certify_records, oracle_records
from tests.report.page import Page

SECTIONS = [
    *("asked", "stages", "verdicts", "gates", "oracle", "timing", "latency", "saturation", "memory"),
    *("provenance", "raw"),
]


@pytest.fixture(scope="module")
def html(full_reports: dict[str, str]) -> str:
    return full_reports["report.html"]


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_elements_are_balanced_and_ids_unique(page: Page) -> None:
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert [anchor for anchor in page.ids if anchor in SECTIONS] == SECTIONS


def test_every_inner_reference_has_its_target(html: str, page: Page) -> None:
    inner = [href[1:] for href in page.hrefs if href.startswith("#")] + re.findall(r"url\(#([^)]+)\)", html)
    assert inner and set(inner) <= set(page.ids)


def test_it_needs_nothing_else(html: str) -> None:
    assert "<script" not in html and "@import" not in html
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)


def test_links_lead_to_files_of_the_run(full_run: FakeRun, page: Page) -> None:
    own = {"report.json", "report.md", "junit.xml"}
    files = [href for href in page.hrefs if not href.startswith("#") and href not in own]
    assert f"stages/{'certify'}/records.jsonl" in files
    assert all((full_run.directory / file).is_file() for file in files)


def test_the_verdict_comes_first(page: Page) -> None:
    assert page.texts["h1"] == [
        "All 12 verdicts are as expected: K16/V8 holds on both models; "
        "K8/V16 and K8/V8 hold on robust and fail on fragile."
    ]
    assert "Exit code 0: every stage passed." in page.texts["header"][0]


def test_figures_are_drawn_labelled_and_backed_by_tables(html: str, page: Page) -> None:
    labels = re.findall(r'role="img" aria-label="([^"]+)"', html)
    drawn = {
        "DAG": 1,
        "margins": 1,
        "bounds": 3,
        "items": 2,
        "ratios": 1,
        "latency": 1,
        "Hill": 2,
        "laws": 6,
        "memory": 1,
    }
    assert len(labels) == len(page.texts["svg"]) == sum(drawn.values())
    assert sum("data table" in summary for summary in page.texts["summary"]) == 10
    assert "var(--series-1)" in html and "#050505" not in html and "DejaVu" not in html


def test_numbers_are_those_of_the_records(html: str) -> None:
    for text in (
        "0.746 %",
        "211",
        "1.50 %",
        "gross loss rate; clopper-pearson, one-sided at α = 0.05",
        "reused from " + EARLIER,
    ):
        assert text in html
    assert "TIMING_BLOCKS" in html and "defconfigs/decode-cpu:3" in html and "RESULTS" not in html


def test_equal_input_gives_equal_bytes(full_run: FakeRun, full_reports: dict[str, str]) -> None:
    full_run.end("report", metrics={"bytes": 1}, records=[])  # its own outcome is no evidence
    assert full_run.rendered() == full_reports


def test_nothing_ran(fake_run: FakeRun) -> None:
    page = Page(fake_run.rendered()["report.html"])
    text = page.texts["body"][0]
    assert "Unfinished: 14 stages not run" in text
    assert text.count("not run") > 12 + 5  # every cell of the verdict table, every section
    assert "No verdict on any recipe" in page.texts["h1"][0]


def test_failures_show_reason_log_and_next_command(fake_run: FakeRun) -> None:
    fake_run.full()
    fake_run.end("timing", "crashed", "exit status -9", records=[], stderr="one\nMemoryError: two\n")
    fake_run.end("contrast", "blocked", "`timing` was crashed", records=[])
    fake_run.end("sweep", "unmet", "needs 3 GiB", records=[])
    reports = fake_run.rendered()
    text = Page(reports["report.html"]).texts["body"][0]
    assert "Exit code 1: something crashed" in text
    for said in (
        "exit status -9",
        "MemoryError: two",
        "make runs it again",
        "timing was crashed",
        "needs 3 GiB",
        "make on a host",
    ):
        assert said in text
    assert "last line: MemoryError: two" in reports["report.md"]


def test_a_reused_stage_whose_run_is_gone_is_told_from_one_that_never_ran(fake_run: FakeRun) -> None:
    fake_run.full()
    shutil.rmtree(fake_run.directory.parent / EARLIER)
    reasons = {stage.name: (stage.word, stage.reason) for stage in fake_run.report().run.stages}
    assert reasons["build"] == ("not run", f"it was reused from `../../{EARLIER}/stages/build`, which is not here")
    assert reasons["timing"] == ("passed", "")


def test_records_of_a_crashed_stage_are_no_evidence(fake_run: FakeRun) -> None:
    fake_run.end("certify", "crashed", "killed", records=certify_records())
    assert "No verdict on any recipe: certify: crashed (killed)" in markdown(fake_run.report()).replace("\\", "")


def test_a_broken_records_file_is_a_visible_fault(fake_run: FakeRun) -> None:
    directory = fake_run.end("certify")
    with (directory / "records.jsonl").open("a") as stream:
        stream.write('{"schema": "kassay.gate/1", "model": "ro')
    reports = fake_run.rendered()
    assert "stages/certify/records.jsonl:49: the last line is torn" in reports["report.html"]
    assert str(fake_run.directory) not in reports["report.html"]
    assert "No verdict on any recipe" in reports["report.html"]


def test_a_newer_schema_is_refused_by_name(fake_run: FakeRun) -> None:
    file = fake_run.end("contrast") / "records.jsonl"
    file.write_text(file.read_text().replace(ContrastRecord.schema, "kassay.contrast/7"))
    said = markdown(fake_run.report()).replace("\\", "")
    assert f"`kassay.contrast/7` is newer than `{ContrastRecord.schema}`" in said


def test_an_escaped_fault_is_shown(fake_run: FakeRun) -> None:
    cases = oracle_records("robust")
    cases[-1] = dataclasses.replace(
        cases[-1],
        caught=False,
        within=True,
        relative_error=0.0,
        peak_error=0.0,  # type: ignore[call-arg]
    )
    fake_run.end("oracle.robust", "rejected", "k8v8-d, layer 1: wrong_fill escaped", records=cases)
    text = Page(fake_run.rendered()["report.html"]).texts["body"][0]
    assert "69 of 70 injected faults" in text and "✗ fails" in text and "wrong_fill escaped" in text


def test_run_id_is_named(page: Page) -> None:
    assert RUN in page.texts["title"][0]
