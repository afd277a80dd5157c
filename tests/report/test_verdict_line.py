"""The verdict line and the findings: put together from certificates, never from a template of results."""

import pytest

from kassay.kinds.verdict import CertificateRecord
from kassay.report.findings import findings, verdict_line
from kassay.report.words import families, number, verdict_clause
from tests.report.fabricate import FakeRun, certify_records, contrast_records, judged

ALL = ["k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"]


def test_line_of_the_full_run(full_run: FakeRun) -> None:
    assert verdict_line(full_run.report()) == (
        "All 12 verdicts are as expected: K16/V8 holds on both models; "
        "K8/V16 and K8/V8 hold on robust and fail on fragile."
    )


def test_an_unexpected_verdict_leads(fake_run: FakeRun) -> None:
    records = certify_records()
    surprising = judged("fragile", "k8v8-d", "pass")[-1]
    assert isinstance(surprising, CertificateRecord) and surprising.verdict == "fails"
    fake_run.end("certify", "rejected", "k8v8-d on fragile: fails, expected pass", records=[*records[:-1], surprising])
    assert verdict_line(fake_run.report()).startswith("1 of 12 verdicts is not as expected: ")


def test_missing_certificates_are_counted(fake_run: FakeRun) -> None:
    kept = [record for record in certify_records() if getattr(record, "candidate", "") != "k8v8-d"]
    fake_run.end("certify", records=kept)
    line = verdict_line(fake_run.report())
    assert line.startswith("10 of 12 planned verdicts are as expected")
    assert "K8/V8 dynamic was not judged on both models" in line


def test_without_certificates_the_reason_is_told(fake_run: FakeRun) -> None:
    fake_run.end("certify", "blocked", "`quality.robust` was crashed", records=[])
    assert verdict_line(fake_run.report()) == (
        "No verdict on any recipe: certify: blocked (`quality.robust` was crashed)."
    )


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ({"a": "pass"}, "K16/V8 holds on a"),
        ({"a": "unestablished", "b": "unestablished", "c": "unestablished"}, "K16/V8 is unestablished on all 3 models"),
        ({"a": "pass", "b": "ineligible"}, "K16/V8 holds on a and is ineligible on b"),
    ],
)
def test_clause(verdicts: dict[str, str], said: str) -> None:
    assert verdict_clause(["k16v8-f", "k16v8-d"], verdicts, ALL) == said


def test_a_family_is_named_only_when_it_is_whole() -> None:
    assert families(["k16v8-f"], ALL) == ["K16/V8 fixed"]
    assert families(["k8v8-f", "k8v8-d", "other"], [*ALL, "other"]) == ["K8/V8", "other"]
    rows = [f"K16/V8 {policy} for {objective}" for policy in ("fixed", "dynamic") for objective in ("a", "b")]
    assert families(rows, rows) == ["K16/V8 fixed", "K16/V8 dynamic"]
    assert families(rows[:1], rows) == ["K16/V8 fixed for a"]


def test_findings_show_negative_results(full_run: FakeRun) -> None:
    found = {finding.topic: finding.text for finding in findings(full_run.report())}
    assert found["Quality"] == "Of 12 certificates against K16/V16 native: 8 pass and 4 fail."
    assert found["Speed"].count("no confirmed gain (median ratio 0.") == 2
    assert found["Saturation"].startswith("2 of 4 sweeps with a usable ceiling")
    assert "K8/V8 fixed 50.0 %" in found["Memory"]


def test_a_gain_is_told_like_its_absence(fake_run: FakeRun) -> None:
    fake_run.end("contrast", records=contrast_records({"k16v8-f": 1.2}))
    found = {finding.topic: finding.text for finding in findings(fake_run.report())}
    assert found["Speed"].startswith("K16/V8 fixed: gain confirmed (median ratio 1.")
    assert found["Memory"] == "Not measured: memory: not run (it was never started)"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (1234.6, "1,235"), (0.01234, "0.0123"), (1e-9, "1.00e-09"), (None, "–"), (float("nan"), "–")],
)
def test_number(value: float | None, said: str) -> None:
    assert number(value) == said
