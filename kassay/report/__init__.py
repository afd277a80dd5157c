"""Reports of a run, rendered from its records and outcomes only: HTML, Markdown, JSON, JUnit XML.

`render_run` writes all four into the run directory. Equal input gives equal bytes: nothing says when it was
rendered.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kassay.report.evidence import Report

SCHEMA = "kassay.report/1"


def render_run(run_dir: Path) -> list[Path]:
    """Render the reports of a run directory into it; the paths of the written files."""
    from kassay import digest

    written = []
    for name, data in rendered(run_dir).items():
        digest.write_bytes(run_dir / name, data)
        written.append(run_dir / name)
    return written


def rendered(run_dir: Path) -> dict[str, bytes]:
    """The reports of a run directory by file name. Raises RunError if it is no run directory."""
    from kassay.report.evidence import load_report
    from kassay.report.html import html_page
    from kassay.report.junit import junit_xml
    from kassay.report.text import markdown

    report = load_report(run_dir)
    return {
        "report.html": html_page(report).encode(),
        "report.md": markdown(report).encode(),
        "report.json": report_json(report).encode(),
        "junit.xml": junit_xml(report),
    }


def report_json(report: "Report") -> str:
    """Verdict line, findings, stages and every shown record as one JSON document, in ASCII."""
    from kassay.record import plain
    from kassay.report.findings import findings, verdict_line

    nonfinite: list[str] = []
    body = {
        "schema": SCHEMA,
        "verdict": verdict_line(report),
        "exit_code": report.run.exit_code,
        "findings": plain(findings(report), "findings", nonfinite),
        "faults": list(report.faults),
        "run": plain(report.run, "run", nonfinite),
        "records": [json.loads(record.to_json()) for record in report.records],
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"
