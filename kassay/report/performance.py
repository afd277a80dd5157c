"""The sections of the page on speed and saturation, each with its figure and the data behind it."""

from collections.abc import Sequence

from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import ContrastRecord, SaturationRecord
from kassay.report import figures
from kassay.report.conditions import judged_part
from kassay.report.drawing import styles
from kassay.report.evidence import Report
from kassay.report.laws import law_part, return_part
from kassay.report.markup import Content, Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent, control_of, drawn, recipes_of, word
from kassay.report.words import ABSENT, counted, fixed, number, percent, probability, title


def timing_section(report: Report) -> Markup:
    """Every planned comparison with its test, screen and verdict, and the blocks drawn."""
    made = report.of(ContrastRecord)
    anchor, heading = "timing", "Paired timing"
    if not made:
        return section(anchor, heading, absent(report, "contrast", "comparisons"))
    first = made[0]
    picture: Content = tag("p", "No comparison was measured, so nothing is drawn.", class_="note")
    if any(record.ratios for record in made):
        picture = drawn(
            figures.ratio_figure(made, styles(recipes_of(report), control_of(report))),
            timing_caption(first),
            block_table(report),
        )
    header = [
        "candidate",
        "median ratio",
        "95 % interval",
        "wins / n",
        "p",
        "Holm p",
        "screen",
        "certificate",
        "verdict",
    ]
    rows = [contrast_row(record) for record in made]
    return section(
        anchor,
        heading,
        table(
            f"Planned comparisons with {title(first.control)}; above 1 the candidate is faster.",
            header,
            rows,
            right=range(1, 7),
        ),
        picture,
        judged_part(report, ContrastRecord),
    )


def timing_caption(first: ContrastRecord) -> str:
    """How to read the figure, and what confirms a gain; family, level and screen are the same for all comparisons."""
    return (
        "A dot is one block of fresh processes, blocks from top to bottom; bar and tick: interval and median. A gain "
        f"is confirmed by a passed certificate, a Holm-adjusted sign test at α = {first.alpha:g} over "
        f"{counted(first.family_size, 'planned comparison')}, and a median of at least {first.screen_ratio:g}. The "
        "interval is descriptive."
    )


def contrast_row(record: ContrastRecord) -> list[Markup]:
    """One comparison."""
    interval = ABSENT if record.lower is None else f"{fixed(record.lower, 4)} to {fixed(record.upper, 4)}"
    wins = ABSENT if record.wins is None or record.ratios is None else f"{record.wins} / {len(record.ratios)}"
    if len(record.valid_blocks) < record.blocks:
        wins += f" (of {record.blocks} planned)"
    met = ABSENT if record.median is None else "met" if record.median >= record.screen_ratio else "missed"
    return [
        tag("th", title(record.candidate), scope="row"),
        *numbers(fixed(record.median, 4), interval, wins, probability(record.p), probability(record.holm_p)),
        *numbers(f"{record.screen_ratio:g}: {met}"),
        cell(record.certificate),
        cell([word(record.verdict), tag("span", record.reason, class_="sub")], kind="free"),
    ]


def block_table(report: Report) -> Markup:
    """The ratio of every block; none of one that does not count."""
    made = [record for record in report.of(ContrastRecord) if record.ratios]
    rows = [
        [
            tag("th", str(block), scope="row"),
            *numbers(*(fixed(ratio_of(record, block), 4) for record in made)),
        ]
        for block in range(max(record.blocks for record in made))
    ]
    return table(
        "Ratio in each block.",
        ["block", *(record.contrast for record in made)],
        rows,
        right=range(1, len(made) + 1),
    )


def ratio_of(record: ContrastRecord, block: int) -> float | None:
    """The ratio of a block, None where it does not count."""
    return dict(zip(record.valid_blocks, record.ratios or (), strict=False)).get(block)


def saturation_section(report: Report) -> Markup:
    """Every sweep with its fit and whether its ceiling may be believed, and the curves drawn."""
    order = recipes_of(report)
    fits = sorted(report.of(SaturationRecord), key=lambda fit: (fit.context_tokens, order.index(fit.recipe)))
    cells = report.of(SweepCell)
    anchor, heading = "saturation", "Saturation"
    if not fits:
        return section(anchor, heading, absent(report, "saturation", "fits"))
    style_of = styles(recipes_of(report), control_of(report))
    panels = []
    for context_tokens in sorted({fit.context_tokens for fit in fits}):
        own = [fit for fit in fits if fit.context_tokens == context_tokens]
        there = [made for made in cells if made.context_tokens == context_tokens]
        panels.append(drawn(figures.hill_panel(context_tokens, own, there, style_of), None, None))
    header = ["context", "recipe", "what may be said", "largest measured", "fitted ceiling", "95 % interval"]
    header += ["half batch", "γ", "reached", "rms ln", "R²"]
    rows = [fit_row(fit) for fit in fits]
    return section(
        anchor,
        heading,
        tag("div", panels, class_="panels"),
        tag("p", saturation_caption(fits, cells), class_="note"),
        table(
            "Hill fits, rates in tokens per second; a fitted ceiling in brackets is not determined by the data.",
            header,
            rows,
            right=range(3, 11),
        ),
        tag("details", tag("summary", "data table: measured rates"), rate_table(report)),
        return_part(report),
        law_part(report),
    )


def saturation_caption(fits: Sequence[SaturationRecord], cells: Sequence[SweepCell]) -> str:
    """How to read the curves, and what R2 is."""
    warmups = sum(made.warmups for made in cells)
    kept = sum(len(made.elapsed_ns) for made in cells) - warmups
    spaces = " and ".join(sorted({fit.residual_space for fit in fits}))
    return (
        f"Every repetition is a point ({kept} kept; {warmups} warm-ups, open, excluded), spread in batch only; curves "
        f"are fitted to medians in {spaces} residuals, solid where measured, dashed beyond the largest batch (dotted "
        "line). Bars at the right edge: 95 % profile interval of the ceiling, an arrow where it leaves the frame. A "
        "dash-dotted line is a ceiling that is usable; where there is none, no ceiling is claimed. "
        f"R² decides nothing; it is {fits[0].r2_definition}."
    )


def fit_row(fit: SaturationRecord) -> list[Markup]:
    """One fit."""
    upper = "open" if fit.ceiling_upper_per_s is None else number(fit.ceiling_upper_per_s, 4)
    interval = ABSENT if fit.ceiling_lower_per_s is None else f"{number(fit.ceiling_lower_per_s, 4)} to {upper}"
    ceiling = (
        number(fit.ceiling_per_s, 4) if fit.state in ("usable", "shape_misfit") else f"({number(fit.ceiling_per_s, 4)})"
    )
    flags = ", ".join(flag.replace("_", " ") for flag in fit.flags)
    return [
        cell(f"{fit.context_tokens:,}"),
        tag("th", title(fit.recipe), scope="row"),
        cell(
            [word(fit.state), tag("span", fit.statement, class_="sub"), tag("span", flags, class_="sub")], kind="free"
        ),
        *numbers(number(max(fit.rates_per_s), 4), ceiling, interval, number(fit.half_batch)),
        *numbers(
            "1 (held)" if fit.gamma_fixed else fixed(fit.gamma, 2),
            percent(fit.reached, 0),
            percent(fit.rms_log_residual, 1),
            fixed(fit.r2, 4),
        ),
    ]


def rate_table(report: Report) -> Markup:
    """The rate of every repetition."""
    rows = []
    for made in report.of(SweepCell):
        rates = [number(made.rate_per_s(elapsed_ns), 4) for elapsed_ns in made.elapsed_ns]
        warm = f"({', '.join(rates[: made.warmups])}) " if made.warmups else ""
        rows.append(
            [
                cell(f"{made.context_tokens:,}"),
                tag("th", title(made.recipe), scope="row"),
                *numbers(str(made.batch)),
                cell(f"{warm}{', '.join(rates[made.warmups :])}"),
            ]
        )
    return table(
        "Decode rate of every repetition in tokens per second, warm-ups in brackets.",
        ["context", "recipe", "batch", "rates"],
        rows,
        right=(2,),
    )
