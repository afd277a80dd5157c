"""The tables of comparisons: candidates with each other, endpoint by endpoint, and a family of loads over many models.

Every planned row is shown, one that was not run with its reason. What is not significant is never called equal.
"""

from collections import Counter

from kassay.kinds.direct import DirectRecord
from kassay.kinds.matrix import MatrixRow
from kassay.report.conditions import judged_part
from kassay.report.evidence import Report
from kassay.report.markup import Content, Markup, cell, numbers, section, table, tag
from kassay.report.words import ABSENT, counted, fixed, one_line, percent, probability, title

NO_DIFFERENCE = "no difference shown"
DIRECT = ["model", "comparison", "n", "difference", "gains / losses", "p", "Holm p", "answer"]
DIRECT_NOTE = (
    "Two-sided tests on the same items: McNemar's exact one of answers, the centered paired bootstrap over documents "
    "of prediction loss; Holm within each endpoint, over all models. No difference shown is no equivalence, and "
    "agreement on every item is no evidence of one."
)


def direct_line(report: Report) -> str:
    """The sentence of the findings: how many comparisons differ at each endpoint."""
    made = report.of(DirectRecord)
    if not made:
        return f"Not compared: {one_line(report.run.why_absent('direct'))}"
    differ = {name: sum(one.different for one in own) for name, own in by_family(report).items()}
    told = ", ".join(
        f"{one_line(name, 60)} {count} of {len(by_family(report)[name])}" for name, count in differ.items()
    )
    return f"Candidates that differ from each other, by endpoint: {told}; the others are not shown to be equal."


def by_family(report: Report) -> dict[str, list[DirectRecord]]:
    """The comparisons of each family, in the order of the records."""
    found: dict[str, list[DirectRecord]] = {}
    for record in report.of(DirectRecord):
        found.setdefault(record.family, []).append(record)
    return found


def direct_row(record: DirectRecord) -> list[str]:
    """One comparison as texts."""
    nats = record.gains is None
    return [
        one_line(record.model, 60),
        f"{title(record.candidate)} − {title(record.control)}",
        f"{record.n:,}",
        f"{fixed(record.estimate, 5)} nats" if nats else percent(record.estimate, 2),
        ABSENT if nats else f"{record.gains} / {record.losses}",
        probability(record.p),
        probability(record.holm_p),
        "different" if record.different else NO_DIFFERENCE,
    ]


def direct_rows(report: Report) -> list[list[str]]:
    """The rows of report.md: every comparison, by endpoint."""
    return [[record.endpoint, *direct_row(record)] for own in by_family(report).values() for record in own]


def direct_section(report: Report) -> Markup:
    """One table an endpoint."""
    parts: list[Content] = []
    for own in by_family(report).values():
        first = own[0]
        drawn = "" if first.draws is None else f", {first.draws:,} draws, seed {first.seed}"
        caption = (
            f"{first.endpoint}: {first.method}, {first.sidedness}{drawn}; Holm over "
            f"{counted(first.family_size, 'planned comparison')} at α = {first.alpha:g}."
        )
        rows = []
        for record in own:
            model, comparison, *figures, answer = direct_row(record)
            same = tag("span", "no item differs", class_="sub") if record.unchanged else None
            rows.append([cell(model), tag("th", comparison, scope="row"), *numbers(*figures), cell([answer, same])])
        parts.append(table(caption, DIRECT, rows, right=range(2, 7)))
    if not parts:
        parts = [tag("p", tag("b", "comparisons: "), f"not run – {one_line(report.run.why_absent('direct'))}")]
    return section("direct", "Direct comparisons", *parts, tag("p", DIRECT_NOTE, class_="note"))


def matrix_line(report: Report) -> str:
    """The sentence of the findings: how the planned rows end."""
    made = report.of(MatrixRow)
    if not made:
        return f"Not put together: {one_line(report.run.why_absent('matrix'))}"
    spread = Counter(record.verdict for record in made)
    told = ", ".join(f"{count} {one_line(verdict, 40)}" for verdict, count in spread.items())
    return f"Of {counted(len(made), 'planned row')}: {told}."


def matrix_header(report: Report) -> list[str]:
    """The columns: what was run, its stages, its timing, its verdict."""
    stages = next((record.stages for record in report.of(MatrixRow)), [])
    return ["load", "model", "recipe", *stages, "median ratio", "95 % interval", "wins / n", "Holm p", "verdict", "why"]


def matrix_row(record: MatrixRow) -> list[str]:
    """One planned row as texts."""
    timed = record.ratios is not None
    interval = f"{fixed(record.lower, 5)} to {fixed(record.upper, 5)}" if timed else ABSENT
    expected = "" if record.as_expected is not False else f"; expected {record.expected}"
    return [
        one_line(record.workload, 60),
        one_line(record.model, 60),
        f"{title(record.candidate)} / {title(record.control)}",
        *(one_line(verdict, 40) for verdict in record.verdicts),
        fixed(record.median, 5),
        interval,
        f"{record.wins} / {len(record.ratios or [])}" if timed else ABSENT,
        probability(record.holm_p),
        one_line(record.verdict, 40),
        one_line(f"{record.reason}{expected}"),
    ]


def matrix_section(report: Report) -> Markup:
    """Every planned row, what was not run included."""
    made = report.of(MatrixRow)
    if not made:
        why = one_line(report.run.why_absent("matrix"))
        return section("matrix", "Matrix", tag("p", tag("b", "rows: "), f"not run – {why}"))
    rows = []
    for record in made:
        load, *rest = matrix_row(record)
        rows.append([tag("th", load, scope="row"), *(cell(text) for text in rest)])
    first = made[0]
    caption = (
        f"Every planned row of {one_line(first.study, 60)}. Holm counts {first.family_size} comparisons at "
        f"α = {first.alpha:g}; one that was not run keeps p = 1. A gain needs every stage before it, an adjusted sign "
        f"test that rejects chance, and a median of at least {first.screen_ratio:g}; the interval is descriptive."
    )
    return section("matrix", "Matrix", table(caption, matrix_header(report), rows), judged_part(report, MatrixRow))
