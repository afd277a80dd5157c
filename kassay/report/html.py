"""report.html: one self-contained page, without network and without script, from a Report.

The verdict line is the heading; below it the exit code, one sentence a question, what did not pass, and then
the numbers. Links lead to the raw files beside the page and are relative to the run directory.
"""

from collections.abc import Callable, Sequence

from kassay import paths
from kassay.report.acceptance import acceptance_section
from kassay.report.comparisons import direct_section, matrix_section
from kassay.report.composition import composition_section
from kassay.report.evidence import Report
from kassay.report.findings import findings, verdict_line
from kassay.report.fusion import fusion_section
from kassay.report.latency import latency_section
from kassay.report.markup import Markup, definitions, link, prose, tag
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
from kassay.report.unrun import unrun_section
from kassay.report.words import clean, counted
from kassay.report.worker import check_section, ratio_section


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
    made = {
        ("failures", "What did not pass"): failure_section(report),
        ("not-run", "Not run"): unrun_section(report),
        ("asked", "What was asked"): asked_section(report),
        ("stages", "Stages"): stage_section(report),
    }
    for anchor, heading, sources, rendered in PARTS:
        if sources[0] in asked:
            made[(anchor, heading)] = with_sources(rendered(report), report, sources)
    made[("provenance", "Provenance")] = provenance_section(report)
    made[("raw", "Raw records")] = raw_section(report)
    return {key: found for key, found in made.items() if found is not None}


# id, heading, the programs whose records it shows (the first decides whether it is there), and the section
PARTS: tuple[tuple[str, str, tuple[str, ...], Callable[[Report], Markup]], ...] = (
    ("verdicts", "Verdicts", ("certify",), verdict_section),
    ("gates", "Gates", ("certify", "quality", "vllm_quality"), gate_section),
    ("direct", "Direct comparisons", ("direct",), direct_section),
    ("matrix", "Matrix", ("matrix",), matrix_section),
    ("install", "Check of the engine", ("vllm_smoke",), check_section),  # of the plug-in, or
    ("install", "Check of the engine", ("vllm_check",), check_section),  # of a fork: a workflow has one of them
    ("oracle", "Oracle", ("oracle",), oracle_section),
    ("timing", "Timing", ("contrast", "timing"), timing_section),
    ("ratios", "Ratios in the worker", ("vllm_ratio", "vllm_timing"), ratio_section),
    ("latency", "Latency", ("timing",), latency_section),
    ("composition", "Composition", ("composition",), composition_section),
    ("acceptance", "Acceptance of drafts", ("acceptance", "timing"), acceptance_section),
    ("serving", "Serving over HTTP", ("serving", "serving_verdict", "serving_check"), serving_section),
    ("saturation", "Saturation", ("saturation", "sweep"), saturation_section),
    ("fusion", "Fused INT4", ("fusion_law", "fusion"), fusion_section),
    ("memory", "Memory", ("memory",), memory_section),
    ("probes", "Probes of precision", ("probes", "probe"), probe_section),
    ("published", "Published figures", ("published",), published_section),
)


def with_sources(made: Markup, report: Report, programs: Sequence[str]) -> Markup:
    """A section that ends with links to the records that it was read from."""
    stages = [stage for program in programs for stage in report.run.program(program) if stage.name in report.counts]
    if not stages:
        return made
    links = [[link(stage.file(paths.RECORDS), stage.name), ", "] for stage in stages]
    links[-1].pop()
    return Markup(made.removesuffix("</section>") + tag("p", "Raw records: ", links, class_="note") + "</section>")


def page_header(report: Report, sections: dict[tuple[str, str], Markup]) -> Markup:
    """Verdict line, exit code, findings, contents."""
    run = report.run
    contents = [tag("li", tag("a", heading, href=f"#{anchor}")) for anchor, heading in sections]
    summary = [(tag("a", found.topic, href=f"#{found.anchor}"), prose(found.text)) for found in findings(report)]
    return tag(
        "header",
        tag("h1", prose(verdict_line(report))),
        exit_line(run),
        tag("p", f"Run {run.run} of profile {run.profile}, workflow {run.workflow}", class_="eyebrow"),
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
