"""Serving in the reports: failures beside every number, distributions over all requests, nothing of a record acts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kassay import digest
from kassay.kinds.serving import ServedRequest, ServingCheck
from kassay.plan import Plan
from kassay.record import Record
from kassay.report.drawing import styles
from kassay.report.findings import findings, verdict_line
from kassay.report.serving_figures import latency_figure
from kassay.serving.verdicts import contrasts, gates
from tests.report.fabricate import FakeRun, closing, stage
from tests.report.page import Page
from tests.serving.test_verdicts import P95, RATE, RULES, evidence

ARMS = ["native", "k16v8-f"]


def request(arm: str, number: int, status: str = "ok") -> ServedRequest:
    """A request that took 200 ms and a little."""
    good = status == "ok"
    return ServedRequest(
        arm=arm,
        block=0,
        pilot=False,
        load="closed",
        warmup=False,
        request_id=f"{arm}-{number}",
        prompt_sha256="",
        scheduled_ns=None,
        started_ns=0,
        token_ns=[50_000_000 + number * 1_000_000] if good else [],
        ended_ns=200_000_000 + number * 1_000_000,
        status=status,
        error="" if good else "stalled",
        detail="<script>alert(1)</script>" if not good else "",
        http_status=200,
        prompt_tokens=5,
        output_tokens=11,
        finish_reason="length",
        text_sha256="",
        empty=not good,
    )


CHECK = ServingCheck(
    tool="aiperf",
    version="0.13.0",
    arm="native",
    load="closed",
    exit_code=0,
    complete=True,
    requests=4,
    completed=4,
    failed=0,
    output_tokens=44,
    server_output_tokens=43,
    achieved_per_s=None,
    achieved_gap_cv=None,
    ttft_p50_s=0.05,
    own_ttft_p50_s=0.06,
    latency_p50_s=0.2,
    own_latency_p50_s=None,
    faults=["the tool reports 44 output tokens, the server decoded 43"],
)


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    """A run of the serving workflow in which nothing has ended yet."""
    made = FakeRun(tmp_path)
    made.stages = (
        stage("serving", {}),
        stage("serving_check", {}),
        stage("serving_verdict", {"serving": "serving.records"}),
        stage("report", {}),
    )
    plan = Plan(profile="serving-cpu", workflow="serving", stages=made.stages, config={"study": {"name": "serving"}})
    digest.write_json(made.directory / "plan.json", plan.to_json())
    return made


def ended(run: FakeRun, failed: int = 0) -> FakeRun:
    """All stages ended; of the candidate so many requests of block 2 failed."""
    found = evidence(failed=failed, errors={"stalled": failed} if failed else {}, completed=4 - failed)
    requests: list[Record] = [request(arm, number) for arm in ARMS for number in range(8)]
    requests += [request("k16v8-f", 90 + number, "failed") for number in range(failed)]
    run.end("serving", records=[*found.loads, *requests])
    run.end("serving_check", "rejected", "tokens differ", records=[CHECK])
    decided = contrasts(found, [RATE, P95], {"k16v8-f": "pass"}, RULES)
    run.end(
        "serving_verdict",
        "rejected" if failed else "passed",
        "failed" if failed else "",
        records=[*gates(found), *decided],
    )
    return run


def test_the_first_line_names_every_comparison_and_the_failures(run: FakeRun) -> None:
    line = verdict_line(ended(run).report())
    said = "under load closed (median ratio 1.250)"
    gained = f"gain confirmed by output tokens per second {said}, gain confirmed by latency p95 {said}"
    assert line == f"K16/V8 fixed against K16/V16 native: {gained}; 0 of 48 requests failed or were empty."
    assert line in closing(run.directory, 0)
    assert [found.topic for found in findings(run.report())] == ["Serving"]


def test_failures_are_in_the_first_line_the_table_and_the_figure(run: FakeRun) -> None:
    pages = ended(run, failed=2).rendered()
    said = "2 of 48 requests failed or were empty (K16/V8 fixed under load closed)"
    assert said in pages["report.md"] and "no confirmed gain" in pages["report.md"]
    rows = [line.split(" | ") for line in pages["report.md"].splitlines() if line.startswith("| closed: ")]
    assert [(row[1], row[2:5]) for row in rows] == [
        ("K16/V16 native", ["24", "0", "0"]),
        ("K16/V8 fixed", ["24", "2", "0"]),
    ], "failures stand beside every number of a load"
    compared = [line for line in pages["report.md"].splitlines() if "| latency p95 | closed |" in line]
    assert len(compared) == 1 and "K16/V8 fixed 2, K16/V16 native 0" in compared[0]
    assert "| aiperf 0.13.0 | closed | 4 of 4 | 0 | 44 / 43 |" in pages["report.md"]
    told = json.loads(pages["report.json"])["records"]
    assert [body["failed"] for body in told if body["schema"].startswith("kassay.serving_gate/")] == [0, 2]
    page = Page(pages["report.html"])
    assert not page.open and "serving" in page.ids and "script" not in page.texts
    rows = [text for text in page.texts["tr"] if text.startswith("closed")]
    assert len(rows) == 2 and "2402" not in rows[0] and "2420" in rows[1], rows  # 24 requests, 2 failed, 0 empty
    assert "disqualify a gain" in pages["report.html"]
    assert "K16/V8 fixed, 2 of 10 bad" in pages["report.html"]


def test_another_tools_word_stands_beside_the_servers(run: FakeRun) -> None:
    text = ended(run).rendered()["report.html"]
    assert "44 / 43" in text and "the server decoded 43" in text


def test_a_stage_that_left_nothing_says_so(run: FakeRun) -> None:
    run.end("serving", "crashed", "the server ended before it was ready", records=[])
    run.end("serving_verdict", "blocked", "serving crashed", records=[])
    pages = run.rendered()
    assert "the server ended before it was ready" in pages["report.html"]
    assert verdict_line(run.report()).startswith("Not judged:")


def test_the_curve_ends_at_the_share_that_succeeded() -> None:
    """Failures are in the denominator: 8 of 10 give a curve that ends at 80 per cent, and equal data equal bytes."""
    requests = [request("native", number) for number in range(8)]
    requests += [request("native", 90 + number, "failed") for number in range(2)]
    style_of = styles(["native"], "native")
    made = latency_figure("closed", requests, style_of)
    assert "2 failed or empty requests of 10" in made.label and "2 of 10 bad" in made.svg
    assert made.svg == latency_figure("closed", requests, style_of).svg
    assert made.svg != latency_figure("closed", requests[:8], style_of).svg
    pilot = [replace(one, status="failed", error="stalled", detail="no byte") for one in requests]
    assert "10 of 10 bad" in latency_figure("closed", pilot, style_of).svg
