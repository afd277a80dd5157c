"""The section of the page on serving over HTTP: loads with their failures, the latencies drawn, comparisons, checks."""

from collections.abc import Sequence

from kassay.kinds.serving import OK, ServedLoad, ServedRequest, ServingCheck, ServingContrast
from kassay.report import serving_figures as figures
from kassay.report.drawing import styles
from kassay.report.evidence import Report
from kassay.report.markup import Content, Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent, drawn, word
from kassay.report.serving_rows import CHECKS, check_rows, counting, grouped, middle, milliseconds
from kassay.report.serving_words import bad_words, controls, kept_words, load_words, serving_line
from kassay.report.words import ABSENT, counted, fixed, number, probability, title

NOTE = (
    "Times are medians over the blocks of each block's own percentile, over successful requests alone; failed and "
    "empty requests stand beside them and disqualify a gain. Token counts are the server's. Concurrency is requests in "
    "flight, no batch. Percentiles: linear interpolation of order statistics (Hyndman and Fan type 7)."
)


def serving_section(report: Report) -> Markup:
    """Loads, latencies, comparisons, and what another tool said."""
    loads = counting(report)
    anchor, heading = "serving", "Serving over HTTP"
    if not loads:
        return section(anchor, heading, absent(report, "serving", "loads"))
    return section(
        anchor,
        heading,
        tag("p", serving_line(report)),
        load_table(loads),
        tag("p", NOTE, class_="note"),
        latency_panels(report, loads),
        contrast_table(report),
        check_table(report),
        invalid(loads),
    )


def load_table(loads: Sequence[ServedLoad]) -> Markup:
    """Every load of every arm over its blocks."""
    header = ["load", "arm", "requests", "failed", "empty", "tokens/s", "TTFT p50", "p95", "per token p50"]
    header += ["latency p50", "p95"]
    rows = []
    for (load, arm), own in grouped(loads).items():
        failed, empty = sum(one.failed for one in own), sum(one.empty for one in own)
        rows.append(
            [
                cell([load, tag("span", load_words(own[0]), class_="sub")]),
                tag("th", [title(arm), tag("span", kept_words(own), class_="sub")], scope="row"),
                *numbers(f"{sum(one.requests for one in own):,}", bad(failed), bad(empty)),
                *numbers(number(middle([one.tokens_per_s for one in own]))),
                *numbers(*(milliseconds(own, "ttft_s", share) for share in ("p50", "p95"))),
                *numbers(milliseconds(own, "tpot_s", "p50")),
                *numbers(*(milliseconds(own, "latency_s", share) for share in ("p50", "p95"))),
            ]
        )
    blocks = len({one.block for one in loads})
    caption = f"Loads over {counted(blocks, 'block')}, pilots and warm-ups left out; times in milliseconds."
    return table(caption, header, rows, right=range(2, len(header)))


def bad(count: int) -> Content:
    """A count of failures; one that is not zero is marked."""
    return tag("b", f"{count:,}") if count else "0"


def latency_panels(report: Report, loads: Sequence[ServedLoad]) -> Content:
    """Latency of every request, a panel a load."""
    requests = [one for one in report.of(ServedRequest) if not (one.pilot or one.warmup)]
    if not any(one.status == OK for one in requests):
        return tag("p", "No request succeeded, so nothing is drawn.", class_="note")
    control = next(iter(controls(report)), "")
    arms = list(dict.fromkeys(one.arm for one in loads))
    style_of = styles(sorted(arms, key=lambda arm: arm != control), control)
    panels = []
    for name in dict.fromkeys(one.load for one in loads):
        own = [one for one in requests if one.load == name]
        panels.append(drawn(figures.latency_figure(name, own, style_of), None, None))
    caption = (
        "Share of all requests that had ended successfully by then, all blocks together: solid the whole request, "
        "dashed its first token. A curve that does not reach 100 % has failed or empty requests."
    )
    return [tag("div", panels, class_="panels"), tag("p", caption, class_="note")]


def contrast_table(report: Report) -> Content:
    """Every planned comparison."""
    made = report.of(ServingContrast)
    if not made:
        return absent(report, "serving_verdict", "comparisons")
    rows = [contrast_row(record) for record in made]
    header = ["comparison", "load", "median ratio", "95 % interval", "wins / n", "Holm p", "failures", "certificate"]
    header += ["verdict"]
    caption = "Planned comparisons within blocks; above 1 the candidate is better, for times as for rates."
    return table(caption, header, rows, right=range(2, 6))


def contrast_row(record: ServingContrast) -> list[Markup]:
    """One comparison."""
    interval = ABSENT if record.lower is None else f"{fixed(record.lower, 4)} to {fixed(record.upper, 4)}"
    wins = ABSENT if record.wins is None or record.ratios is None else f"{record.wins} / {len(record.ratios)}"
    name = [f"{title(record.candidate)} / {title(record.control)}", tag("span", record.quantity, class_="sub")]
    return [
        tag("th", name, scope="row"),
        cell(record.load),
        *numbers(fixed(record.median, 4), interval, wins, probability(record.holm_p)),
        cell(bad_words(record.failed)),
        cell(record.certificate),
        cell([word(record.verdict), tag("span", record.reason, class_="sub")], kind="free"),
    ]


def check_table(report: Report) -> Markup | None:
    """What another tool said of the same load."""
    rows = []
    for record, told in zip(report.of(ServingCheck), check_rows(report.of(ServingCheck)), strict=True):
        said = "; ".join(record.faults)
        verdict = cell([word("fails" if said else "pass"), tag("span", said, class_="sub")], kind="free")
        rows.append([tag("th", told[0], scope="row"), cell(told[1]), *numbers(*told[2:-1]), verdict])
    caption = "The same load by another tool on the control's server, one after the other; times in milliseconds."
    return table(caption, CHECKS, rows, right=range(2, 8)) if rows else None


def invalid(loads: Sequence[ServedLoad]) -> Markup | None:
    """Loads that are invalid, and why."""
    said = [f"{one.load}, {title(one.arm)}, block {one.block}: {fault}" for one in loads for fault in one.faults]
    return tag("ul", [tag("li", text) for text in said], class_="note") if said else None
