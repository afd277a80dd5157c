"""The section on fused INT4: claims, what its words mean, which quantity each speed-up follows, and cells of three."""

from kassay.kinds.fusion import FusionClaim, FusionVerdict
from kassay.report.evidence import Report
from kassay.report.fusion_figures import fusion_pictures
from kassay.report.fusion_terms import terms
from kassay.report.fusion_words import (
    SETTLED,
    SPEED_UPS,
    best_fit,
    counts_of,
    grid_line,
    half_spreads,
    pair_of,
    range_of,
    remarks,
)
from kassay.report.markup import Markup, cell, definitions, numbers, prose, section, table, tag
from kassay.report.sections import absent, word


def fusion_section(report: Report) -> Markup:
    """Claims first, then what the words mean, then every pair, then figures."""
    anchor, heading = "fusion", "Fused INT4"
    if not report.of(FusionVerdict):
        return section(anchor, heading, absent(report, "fusion_law", "explanations"))
    grid = grid_line(report)
    return section(
        anchor,
        heading,
        tag("p", prose(grid)) if grid else None,
        claim_table(report),
        definitions(terms(report), kind="terms"),
        speed_up_table(report),
        fusion_pictures(report),
    )


def claim_table(report: Report) -> Markup:
    """One row a claim; the numbers stand below the verdict, so that a phone shows them."""
    rows = [
        [
            tag("th", one.claim, scope="row", class_="free"),
            cell([word(one.verdict), f" {counts_of(one)}", tag("span", prose(one.reason), class_="sub")], kind="free"),
        ]
        for one in report.of(FusionClaim)
    ]
    told = (
        "What the speed-ups say of the old law together. A claim holds if all of its speed-ups bear it out, fails if "
        "all contradict it, and is unsettled between; the counts are of those that bear it out."
    )
    return table(told, ["claim", "verdict, counts, numbers"], rows)


def speed_up_table(report: Report) -> Markup:
    """One row a pair."""
    rows = [speed_up_row(report, one) for one in report.of(FusionVerdict)]
    caption = (
        "Speed-ups of cells, and how many are above their byte limit. Spread: of half-batches of single layouts the "
        "largest over the least, alone and times heads; a dash where a layout's was not found within its batches."
    )
    header = [name for name in SPEED_UPS if name != "numbers"]
    return table(caption, header, rows, right=range(2, len(header)))


def speed_up_row(report: Report, made: FusionVerdict) -> list[Markup]:
    """One pair."""
    quantity = f" {made.covariate}" if made.verdict in SETTLED else None
    limits = remarks(best_fit(report, made))
    return [
        tag("th", pair_of(made), scope="row", class_="free"),
        cell(
            [
                word(made.verdict),
                quantity,
                tag("span", prose(made.reason), class_="sub"),
                tag("span", limits, class_="sub") if limits else None,
            ],
            kind="free",
        ),
        *numbers(range_of(made), f"{made.above_limit} of {made.n}", *half_spreads(report, made)),
    ]
