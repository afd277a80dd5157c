"""Reports of a run, rendered from its records and outcomes only: HTML, Markdown, JSON, JUnit XML.

`render_run` writes all four into the run directory. Equal input gives equal bytes: nothing says when it was
rendered.
"""

from pathlib import Path


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
    from kassay.report.document import report_json
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
