"""The report of a family of loads: cells and blocks have one name of their load, so that what does not count is out."""

from pathlib import Path

import pytest

from kassay.report import render_run
from kassay.report.conditions import blocks_of
from kassay.report.evidence import Report, load_report
from kassay.report.latency import times_of
from tests import matrix_run
from tests.report.page import Page

COUNTING = {"alpha-b8": 8, "alpha-b32": 7, "beta-b8": 6}  # load -> blocks


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run; tests only read it."""
    return matrix_run.fabricate(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def report(run_dir: Path) -> Report:
    """Its records."""
    return load_report(run_dir)


@pytest.fixture(scope="module")
def pages(run_dir: Path) -> dict[str, str]:
    """Its pages."""
    return {path.name: path.read_text(encoding="utf-8") for path in render_run(run_dir)}


def test_latencies_are_of_the_blocks_that_count_load_by_load(report: Report) -> None:
    times = times_of(report)
    assert {load[1]: {arm: len(own) for arm, own in arms.items()} for load, arms in times.items()} == {
        load: dict.fromkeys(matrix_run.TIMED[load], blocks) for load, blocks in COUNTING.items()
    }
    longest = {load[1]: max(own[-1] for own in arms.values()) for load, arms in times.items()}
    assert all(ms < 2 * 1100 for ms in longest.values()), "a capped block took three times as long"


def test_blocks_that_two_stages_judged_are_told_once(report: Report) -> None:
    blocks = blocks_of(report)
    assert len(blocks) == 3 * 8
    assert [(one.load, one.block) for one in blocks if not one.valid] == [
        ("alpha-b32", 2),
        ("beta-b8", 1),
        ("beta-b8", 5),
    ]


def test_the_page_names_what_does_not_count_once_under_the_matrix(pages: dict[str, str]) -> None:
    page = Page(pages["report.html"])
    captions = [text for text in page.texts["caption"] if text.startswith("Blocks that do not count")]
    assert len(captions) == 1
    rows = [text for text in page.texts["tr"] if "power capped percent" in text]
    assert [row.partition("power")[0] for row in rows] == ["alpha-b322", "beta-b81", "beta-b85"]
    body = page.texts["body"][0]
    assert "3 of 24 blocks do not count." in body
    assert "32 cells on alpha under alpha-b8: 8 requests of 8 + 4 tokens" in body
    assert "16 cells on beta under beta-b8" in body and "3 pilot cells excluded" in body
    assert "alpha, alpha-b32: 32 × (8 + 4 tokens)" in body
    latency = next(text for text in page.texts["table"] if text.startswith("Milliseconds for one batch"))
    assert f"{4 * 8 + 4 * 7 + 2 * 6} repetitions" in latency
    composed = next(text for text in page.texts["table"] if text.startswith("Speed-ups over"))
    assert "alpha, alpha-b32, batch 32, 8 tokens" in composed and "7 of 8" in composed


def test_the_text_tells_the_same(pages: dict[str, str]) -> None:
    text = pages["report.md"]
    parts = text.partition("Blocks that do not count")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert [line.split(" | ")[:2] for line in parts.splitlines()[2:]] == [
        ["| alpha-b32", "2"],
        ["| beta-b8", "1"],
        ["| beta-b8", "5"],
    ]
    assert "On alpha, alpha-b8, batch 8, 8 tokens: sub-multiplicative (rho 0.967); on alpha, alpha-b32" in text
    rows = "1 gain confirmed, 3 no confirmed gain, 1 invalidated, 1 gated off, 2 not run"
    assert text.startswith(f"# Of 8 planned rows: {rows}."), "the verdict of a family is that of its rows"
    assert "| alpha, alpha-b32, batch 32, 8 tokens |" in text and "sub-multiplicative |" in text
    assert "## Verdicts" not in text, "no stage of this family certifies"
