"""The report of several controls and objectives, of direct comparisons, and of a matrix with rows that were not run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, paths
from kassay.kinds.direct import DirectRecord
from kassay.outcome import Artifact, Outcome
from kassay.record import Record, Writer
from kassay.report import render_run
from tests.audit.fabricated import STUDY, fabricate, planned
from tests.report.page import Page
from tests.test_matrix import matrix


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reports of a complete judged run with a second control's worth of comparisons and a matrix beside it."""
    run_dir = fabricate(tmp_path_factory.mktemp("results"), second_control())
    add_stage(run_dir, "matrix", matrix().values())
    manifest = json.loads((run_dir / paths.MANIFEST).read_bytes())
    told = {"run": run_dir.name, "created_at": "2026-11-30T00:00:00.000Z", "host": {}, "settings": {}, "overrides": []}
    digest.write_json(run_dir / paths.MANIFEST, manifest | told)
    return {path.name: path.read_text(encoding="utf-8") for path in render_run(run_dir)}


def second_control() -> dict[str, Any]:
    """K16/V8 must be certified against K8/V8 as well, which on the fragile model is no fit control."""
    body = json.loads(json.dumps(STUDY))
    body["certificates"] |= {"comparisons": ["k16v8-f", "a-s"], "slots": 4}
    body["timing"]["family"] = ["k16v8-f"]
    body["expected"] = {
        f"{model}:{name}": {} for model in body["models"] for name in ("preservation", "aggregate-math")
    }
    body["expected"] = {
        unit: {"k16v8-f": "pass", "a-s": "ineligible" if unit.startswith("fragile") else "pass"}
        for unit in body["expected"]
    }
    for gate in ("keys", "kept", "net"):
        body["gates"][gate]["native_floor"] = 0.6
    return dict(body)


def add_stage(run_dir: Path, name: str, made: Iterable[Record]) -> None:
    """One more planned stage with these records, as if it had ended."""
    directory = run_dir / "stages" / name
    directory.mkdir()
    writer = Writer(directory / paths.RECORDS)
    for record in made:
        writer.append(record)
    writer.close()
    path = directory / paths.RECORDS
    left = {"records": Artifact(file=paths.RECORDS, sha256=digest.of_file(path), bytes=path.stat().st_size)}
    Outcome(
        stage=name, run=run_dir.name, word="passed", reason="", metrics={}, artifacts=left,
        started_at="2026-11-30T00:00:00.000Z", duration_s=1.0, attempt=1, grant=None,
    ).save(directory)  # fmt: skip
    plan = json.loads((run_dir / paths.PLAN).read_bytes())
    digest.write_json(run_dir / paths.PLAN, {**plan, "stages": [*plan["stages"], vars(planned(name, {}))]})


def lines(reports: dict[str, str], heading: str) -> list[str]:
    """The rows of a table of report.md."""
    text = reports["report.md"].partition(f"## {heading}\n\n")[2].partition("\n\n")[0]
    return text.replace("\\", "").splitlines()[2:]


def test_each_certificate_is_a_row_and_a_candidate_needs_all_controls(reports: dict[str, str]) -> None:
    rows = lines(reports, "Verdicts")
    assert len(rows) == 4
    assert "| K16/V8 fixed against K8/V8 fixed for preservation |  |  |" not in rows
    assert any("against K16/V16 native for aggregate-math" in row for row in rows)
    told = lines(reports, "Qualifications")
    assert len(told) == 4
    fragile = [row for row in told if row.startswith("| fragile")]
    assert all("| ineligible | K16/V16 native: pass; K8/V8 fixed: ineligible |" in row for row in fragile)
    assert sum(row.endswith("| yes |") for row in told) == 2


def test_every_gate_stands_with_its_control_its_limit_and_its_power(reports: dict[str, str]) -> None:
    rows = lines(reports, "Gates")
    assert len(rows) == 20  # 2 models x 2 comparisons x 5 gates, each once whichever objectives ask for it
    net = next(row for row in rows if "| net |" in row)
    assert "| ≥ -8.00 % |" in net and " at 1.00 %" in net
    nats = next(row for row in rows if "| nats |" in row)
    assert "≤ 0.0300 nats" in nats and "| – | pass |" in nats
    page = Page(reports["report.html"])
    assert "-8 %" in page.texts["body"][0], "the limit of a net change lies on the left, and is in view"
    assert "bounds-net" in reports["report.html"] and "K16/V8 fixed / k8v8-f" in page.texts["body"][0]


def test_direct_comparisons_never_say_equal(reports: dict[str, str]) -> None:
    rows = lines(reports, "Direct comparisons")
    assert len(rows) == 4
    assert sum(row.endswith("| different |") for row in rows) == 2
    assert sum(row.endswith("| no difference shown |") for row in rows) == 2
    text = Page(reports["report.html"]).texts["body"][0]
    assert "No difference shown is no equivalence" in text and "no item differs" in text
    assert "arithmetic 1 of 2, nll 1 of 2" in text


def test_the_matrix_shows_what_was_not_run_and_why(reports: dict[str, str]) -> None:
    rows = lines(reports, "Matrix")
    assert len(rows) == 8
    qwen25 = next(row for row in rows if "| qwen25-7b |" in row)
    assert "| pass | fails | pass | not run | – | – | – | 1.0000 | not run | `nll` fails: a predeclared rule" in qwen25
    text = Page(reports["report.html"]).texts["body"][0]
    assert "Holm counts 24 comparisons" in text and "Of 8 planned rows: 2 no confirmed gain, 6 not run." in text


def test_a_run_without_results_says_so(tmp_path: Path) -> None:
    from kassay.report.comparisons import direct_line, direct_section, matrix_line, matrix_section
    from tests.report.fabricate import FakeRun

    report = FakeRun(tmp_path).report()
    assert direct_line(report).startswith("Not compared: ") and matrix_line(report).startswith("Not put together: ")
    assert "not run" in direct_section(report) and "not run" in matrix_section(report)


def test_the_records_of_direct_comparisons_state_exact_fractions() -> None:
    names = set(DirectRecord.__dataclass_fields__)
    assert {"p_exact", "holm_p_exact", "seed", "items_sha256", "unchanged"} <= names
