"""Printed figures and their answers in words: the sentence of the findings, and the rows of every table.

Figures stand by study, in the order of the facts; the figures that agree only within input rounding, and those that are
contradicted, are named with the range that their inputs allow.
"""

from collections import Counter
from collections.abc import Sequence

from kassay.kinds.published import FigureAnswer
from kassay.published import ANSWERS, CONSISTENT, CONTRADICTED, EQUAL, NOT_DERIVABLE
from kassay.report.evidence import Report
from kassay.report.words import ABSENT, counted, listed, one_line

LONGEST_VALUE = 60  # characters of a printed or derived value in a table
COUNTED = ["study", "figures", *ANSWERS]  # header of the answers by study


def answers_line(report: Report) -> str:
    """How many figures have which answer, and which are only consistent or contradicted; empty without answers."""
    made = report.of(FigureAnswer)
    if not made:
        return ""
    counts = Counter(record.answer for record in made)
    said = listed([f"{counts[answer]} {answer}" for answer in ANSWERS])
    return f"Of {counted(len(made), 'printed figure')}: {said}."


def published(report: Report) -> str:
    """The sentence of the findings: what does not agree as printed, by name."""
    made = report.of(FigureAnswer)
    if not made:
        return f"Not derived: {one_line(report.run.why_absent('published'))}"
    named = []
    for answer in (CONTRADICTED, CONSISTENT):
        names = [one_line(record.figure, 60) for record in made if record.answer == answer]
        named += [f"{answer}: {listed(names)}"] if names else []
    return f"{answers_line(report)} {sentence_of(named)}".strip()


def sentence_of(named: Sequence[str]) -> str:
    """Groups of names as one sentence; empty for none."""
    text = "; ".join(named)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def by_study(report: Report) -> dict[str, list[FigureAnswer]]:
    """The answers of each study, in the order of the facts."""
    found: dict[str, list[FigureAnswer]] = {}
    for record in report.of(FigureAnswer):
        found.setdefault(record.study, []).append(record)
    return found


def study_counts(own: Sequence[FigureAnswer]) -> list[str]:
    """The number of figures of a study, and of each answer."""
    counts = Counter(record.answer for record in own)
    return [str(len(own)), *(str(counts[answer]) if counts[answer] else ABSENT for answer in ANSWERS)]


def uneven(report: Report) -> list[FigureAnswer]:
    """What is not equal as printed although it is derivable, contradictions first."""
    found = [record for record in report.of(FigureAnswer) if record.answer not in (EQUAL, NOT_DERIVABLE)]
    return sorted(found, key=lambda record: record.answer != CONTRADICTED)


def allowed_range(record: FigureAnswer) -> str:
    """What the rounding of the inputs allows; a dash where it was not asked for."""
    return ABSENT if record.lowest is None else f"{value(record.lowest)} to {value(record.highest)}"


def value(text: str | None) -> str:
    """A printed or derived value on one line."""
    return ABSENT if text is None else one_line(text, LONGEST_VALUE)


def place(record: FigureAnswer) -> str:
    """File and line that print the figure."""
    return one_line(record.source if record.line is None else f"{record.source}:{record.line}", 80)


def remarks(record: FigureAnswer) -> str:
    """What a reader must know beside the numbers."""
    inferred = f"inferred: {', '.join(record.inferred)}" if record.inferred else ""
    return one_line("; ".join(text for text in (inferred, record.remark) if text))


def published_rows(report: Report) -> list[list[str]]:
    """The rows of report.md: every figure, by study."""
    return [
        [
            study,
            record.figure,
            record.quantity,
            value(record.printed),
            value(record.derived),
            allowed_range(record),
            record.answer,
        ]
        for study, own in by_study(report).items()
        for record in own
    ]


def count_rows(report: Report) -> list[list[str]]:
    """The rows of report.md: answers by study."""
    return [[study, *study_counts(own)] for study, own in by_study(report).items()]
