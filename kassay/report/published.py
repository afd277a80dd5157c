"""The section of the page on printed figures: answers by study, what is not equal as printed, and every figure."""

from collections.abc import Sequence

from kassay.kinds.published import FigureAnswer
from kassay.report.answers import (
    COUNTED,
    allowed_range,
    by_study,
    place,
    published,
    remarks,
    study_counts,
    uneven,
    value,
)
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, section, table, tag
from kassay.report.sections import absent, word
from kassay.report.words import counted, one_line

NOTE = (
    "equal: derived from the printed inputs as they stand. consistent within input rounding: not so, but for some "
    "values that the printed inputs may be rounded from. contradicted: for none of them. not derivable: the inputs are "
    "not printed. An input that no source prints is marked as inferred."
)


def published_section(report: Report) -> Markup:
    """Counts by study, what is not equal, and every figure."""
    made = report.of(FigureAnswer)
    if not made:
        return section("published", "Published figures", absent(report, "published", "published figures"))
    rows = [
        [tag("th", one_line(study, 60), scope="row"), *numbers(*study_counts(own))]
        for study, own in by_study(report).items()
    ]
    rows.append([tag("th", "all", scope="row"), *numbers(*study_counts(made))])
    return section(
        "published",
        "Published figures",
        tag("p", published(report)),
        table("Answers by study.", COUNTED, rows, right=range(1, len(COUNTED))),
        uneven_table(report),
        [study_table(study, own) for study, own in by_study(report).items()],
        tag("p", NOTE, class_="note"),
    )


def uneven_table(report: Report) -> Markup | None:
    """The figures that are not equal as printed."""
    rows = [
        [
            tag("th", one_line(record.figure, 60), scope="row"),
            cell(one_line(record.quantity)),
            *numbers(value(record.printed), value(record.derived), allowed_range(record)),
            cell(word(record.answer)),
        ]
        for record in uneven(report)
    ]
    header = ["figure", "quantity", "printed", "derived", "inputs allow", "answer"]
    caption = "Not equal as printed, with the range over all values that the printed inputs may be rounded from."
    return table(caption, header, rows, right=(2, 3, 4)) if rows else None


def study_table(study: str, own: Sequence[FigureAnswer]) -> Markup:
    """Every figure of one study."""
    rows = [
        [
            tag("th", one_line(record.figure, 60), scope="row"),
            cell(one_line(record.quantity)),
            *numbers(value(record.printed), value(record.derived)),
            cell(word(record.answer)),
            cell([place(record), tag("span", remarks(record), class_="sub") if remarks(record) else None]),
        ]
        for record in own
    ]
    name = one_line(study, 60)
    header = ["figure", "quantity", "printed", "derived", "answer", "source"]
    made = table(f"Figures of {name}.", header, rows, right=(2, 3))
    return tag("details", tag("summary", f"{name}: {counted(len(own), 'figure')}"), made)
