"""report.html: one self-contained page, without network and without script, from a Report.

The verdict line is the heading; below it the exit code, one sentence a question, what did not pass, and then
the numbers. Links lead to the raw files beside the page and are relative to the run directory.
"""

from kassay.report.comparisons import direct_section, matrix_section
from kassay.report.composition import composition_section
from kassay.report.evidence import Report
from kassay.report.findings import findings, verdict_line
from kassay.report.markup import Markup, definitions, prose, tag
from kassay.report.memory import memory_section
from kassay.report.numerics import oracle_section
from kassay.report.performance import saturation_section, timing_section
from kassay.report.probes import probe_section
from kassay.report.provenance import (
    asked_section,
    exit_line,
    failure_section,
    provenance_section,
    raw_section,
    stage_section,
)
from kassay.report.published import published_section
from kassay.report.sections import gate_section, verdict_section
from kassay.report.serving import serving_section
from kassay.report.style import CSS
from kassay.report.words import clean, counted


def html_page(report: Report) -> str:
    """The whole document."""
    sections = page_sections(report)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
        ),
        tag("title", f"kassay: {report.run.run}"),
        tag("style", Markup(CSS)),
    )
    body = tag(
        "body",
        tag("a", "to the results", href="#main", class_="skip"),
        page_header(report, sections),
        tag("main", list(sections.values()), id="main"),
        page_footer(report),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n".replace("<section", "\n<section")


def page_sections(report: Report) -> dict[tuple[str, str], Markup]:
    """(id, heading) -> section, in reading order; what went wrong comes first, what no stage asks for is left out."""
    asked = {stage.program for stage in report.run.stages}
    made = {("failures", "What did not pass"): failure_section(report)}
    if "certify" in asked:
        made[("verdicts", "Verdicts")] = verdict_section(report)
        made[("gates", "Gates")] = gate_section(report)
    if "direct" in asked:
        made[("direct", "Direct comparisons")] = direct_section(report)
    if "matrix" in asked:
        made[("matrix", "Matrix")] = matrix_section(report)
    if "oracle" in asked:
        made[("oracle", "Oracle")] = oracle_section(report)
    if "contrast" in asked:
        made[("timing", "Timing")] = timing_section(report)
    if "composition" in asked:
        made[("composition", "Composition")] = composition_section(report)
    if "serving" in asked:
        made[("serving", "Serving over HTTP")] = serving_section(report)
    if "saturation" in asked:
        made[("saturation", "Saturation")] = saturation_section(report)
    if "memory" in asked:
        made[("memory", "Memory")] = memory_section(report)
    if "probes" in asked:
        made[("probes", "Probes of precision")] = probe_section(report)
    if "published" in asked:
        made[("published", "Published figures")] = published_section(report)
    made[("stages", "Stages")] = stage_section(report)
    made[("asked", "What was asked")] = asked_section(report)
    made[("provenance", "Provenance")] = provenance_section(report)
    made[("raw", "Raw records")] = raw_section(report)
    return {key: found for key, found in made.items() if found is not None}


def page_header(report: Report, sections: dict[tuple[str, str], Markup]) -> Markup:
    """Verdict line, exit code, findings, contents."""
    run = report.run
    contents = [tag("li", tag("a", heading, href=f"#{anchor}")) for anchor, heading in sections]
    summary = [(tag("a", found.topic, href=f"#{found.anchor}"), prose(found.text)) for found in findings(report)]
    return tag(
        "header",
        tag("p", f"{run.profile} · {run.workflow} · {run.run}", class_="eyebrow"),
        tag("h1", prose(verdict_line(report))),
        exit_line(run),
        definitions(summary, kind="findings"),
        tag("nav", tag("ol", contents), aria_label="Contents"),
    )


def page_footer(report: Report) -> Markup:
    """Where the page comes from."""
    total = sum(report.counts.values())
    return tag(
        "footer",
        tag(
            "p",
            f"Rendered from {counted(total, 'record')} of run {clean(report.run.run)}; equal records give equal bytes. "
            "Render again with ",
            tag("code", f"make report RUN={report.run.run}"),
            ".",
        ),
    )
