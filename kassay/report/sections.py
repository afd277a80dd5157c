"""The sections of the page on quality: verdicts, gates with their bounds.

Every planned row is there: one without a result says `not run` and why. Figures come from
kassay.report.figures, and behind each stands its data as a table.
"""

from collections.abc import Sequence

from kassay.kinds.quality import ArmStorage
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GateRecord, SaturationRecord
from kassay.report.bounds import bound_panel
from kassay.report.certified import QUALIFIED, amount, limit_of, planned_rows, power_of, qualification_rows, row_of
from kassay.report.drawing import Drawing, styles
from kassay.report.evidence import Report
from kassay.report.findings import cache_bytes, verdicts
from kassay.report.heat_map import heat_map, heat_table
from kassay.report.markup import Content, Markup, cell, numbers, prose, section, table, tag
from kassay.report.model import NOT_RUN
from kassay.report.transitions import transition_panel, transition_table, transitions
from kassay.report.words import ABSENT, clean, fixed, percent, title

UNSURE_STATES = ("shape_misfit", "ceiling_extrapolated", "not_identifiable")
CLASS_OF = {
    **dict.fromkeys(("pass", "passed", "gain confirmed", "usable", "equal", "holds"), "good"),
    **dict.fromkeys(("fails", "rejected", "crashed", "contradicted"), "bad"),
    **dict.fromkeys(("unestablished", "unsettled", "ineligible", "unmet", "blocked", *UNSURE_STATES), "open"),
}
BROAD_PX = 500  # a wider drawing scrolls on a phone instead of becoming unreadable
GLYPH_OF = {"good": "✓ ", "bad": "✗ ", "open": "? "}


def word(text: str) -> Markup:
    """A verdict word: its glyph and the word itself carry the meaning, the colour repeats it."""
    kind = CLASS_OF.get(text, "")
    return tag("span", GLYPH_OF.get(kind, ""), text.replace("_", " "), class_=f"word {kind}".strip())


def absent(report: Report, program: str, what: str) -> Markup:
    """The row of a section whose stage left nothing."""
    return tag("p", tag("b", f"{what}: "), word(NOT_RUN), " – ", prose(report.run.why_absent(program)))


def drawn(drawing: Drawing, caption: Content, data: Content) -> Markup:
    """A figure with its caption and the table behind it."""
    svg = drawing.svg.replace('role="img">', f'role="img" aria-label="{attribute(clean(drawing.label))}">', 1)
    picture = Markup(svg.replace(">", f">{tag('title', drawing.label)}", 1))
    behind = tag("details", tag("summary", "data table"), data) if data else None
    if drawing.width_px > BROAD_PX:
        picture = scrolling(picture, f"drawing {drawing.name}")
    return tag("figure", picture, tag("figcaption", caption) if caption else None, behind)


def scrolling(picture: Markup, name: str, kind: str = "broad") -> Markup:
    """A drawing in a box that scrolls by itself where the page is narrow, and that the keyboard reaches."""
    return tag("div", picture, class_=f"scroll {kind}", tabindex=0, role="region", aria_label=name)


def attribute(text: str) -> str:
    """Text inside an attribute."""
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def recipes_of(report: Report) -> list[str]:
    """Every recipe of the run, planned ones first."""
    planned = report.run.arms
    judged = [record.candidate for record in report.of(CertificateRecord)]
    timed = [record.candidate for record in report.of(ContrastRecord)]
    swept = [record.recipe for record in report.of(SaturationRecord)]
    return list(dict.fromkeys([*planned, *judged, *timed, *swept]))


def control_of(report: Report) -> str:
    """The recipe that all are compared with."""
    return report.run.control


def verdict_section(report: Report) -> Markup:
    """Recipes by models, with cache size and speed beside them."""
    found = verdicts(report)
    models = list(dict.fromkeys([*report.run.models, *(model for _, model in found)]))
    made = {(row_of(report, record), record.model): record for record in report.of(CertificateRecord)}
    held, control = cache_bytes(report), control_of(report)
    ratio = {(record.candidate, record.control): record.median for record in report.of(ContrastRecord)}
    pairs = ({control: (control, control)} if control else {}) | planned_rows(report.run)
    pairs |= {row: (record.candidate, record.control) for (row, _), record in made.items()}
    rows: list[list[Markup]] = []
    for name, (recipe, against) in pairs.items():
        cells = [tag("th", title(name), scope="row")]
        for model in models:
            cells.append(cell("control") if recipe == against else cell(verdict_cell(made.get((name, model)))))
        share = percent(held[recipe] / held[against], 1) if held.get(against) and recipe in held else ABSENT
        cells += numbers(share, fixed(1.0 if recipe == against else ratio.get((recipe, against)), 3))
        rows.append(cells)
    header = ["recipe", *models, "cache bytes", "speed ratio"]
    study = report.run.study.get("name", "")
    against = f", against {title(control)}" if control else ""
    caption = f"Certificates of study {study}: every recipe on every model{against}."
    body = table(caption, header, rows, right=(len(header) - 2, len(header) - 1), kind="verdicts")
    lacking = None if made or not models else absent(report, "certify", "certificates")
    qualified = [[cell(text) for text in row] for row in qualification_rows(report)]
    told = "A candidate qualifies for an objective only if it is certified against every planned control."
    more = table(told, QUALIFIED, qualified) if qualified else None
    note = tag("p", VERDICT_NOTE, class_="note")
    return section("verdicts", "Verdicts", body, lacking, more, note, margin_part(report))


def margin_part(report: Report) -> Markup | None:
    """How much of its margin each recipe uses on each model; nothing where no gate was judged."""
    picture = heat_map(verdicts(report), report)
    caption = (
        "Of each recipe on each model, the gate that uses most of its margin: its deciding bound over the margin. "
        "Beyond 1× a gate does not hold. A deeper tile uses more; a dashed one was not judged."
    )
    return drawn(picture, caption, heat_table(verdicts(report), report)) if picture else None


VERDICT_NOTE = (
    "pass: every bound keeps its margin. fails: the other bound is beyond the margin too, so harm is established. "
    "unestablished: the margin lies between the bounds, which is no proof of harm. ineligible: the control itself is "
    "below its floor. Verdicts are computed before, and without, what the study expects. Cache bytes: payload "
    "against the control. Speed ratio: median rate ratio to the control where it was timed; above 1 is faster."
)


def verdict_cell(record: CertificateRecord | None) -> list[Content]:
    """A verdict, the gates behind it, and whether it was expected."""
    if record is None:
        return [word(NOT_RUN)]
    gates = ", ".join([*record.failed_gates, *(f"{gate} open" for gate in record.open_gates)])
    if record.as_expected is None:
        expected = tag("span", "no expectation stated", class_="sub")
    elif record.as_expected:
        expected = tag("span", "as expected", class_="sub")
    else:
        expected = tag("span", f"not as expected: {record.expected}", class_="sub surprise")
    return [word(record.verdict), tag("span", gates, class_="sub") if gates else None, expected]


def gate_section(report: Report) -> Markup:
    """Every gate with its numbers, and the bounds drawn."""
    gates = report.of(GateRecord)
    if not gates:
        return section("gates", "Quality gates", absent(report, "certify", "gates"))
    style_of = styles(recipes_of(report), control_of(report))
    panels = []
    for name in dict.fromkeys(gate.gate for gate in gates):
        own = [gate for gate in gates if gate.gate == name]
        panels.append(drawn(bound_panel(name, own, style_of), None, None))
    methods = sorted(
        {f"{gate.gate}: {gate.statistic}; {gate.method}, one-sided at α = {gate.alpha:g}" for gate in gates}
    )
    caption = (
        "Estimate with lower and upper one-sided bound; the dashed line is the margin, frozen before the first result. "
        "The axis is linear up to the margin and logarithmic beyond it. A gate passes when its whole bar is left of "
        "the line; one of a net change, when it is right of it."
    )
    data = tag("details", tag("summary", f"data table: all {len(gates)} gates"), gate_table(gates))
    return section(
        "gates",
        "Quality gates",
        tag("div", panels, class_="panels"),
        tag("p", caption, class_="note"),
        data,
        tag("ul", [tag("li", method) for method in methods], class_="note"),
        item_part(report),
        storage_table(report),
    )


def item_part(report: Report) -> list[Markup]:
    """What became of every item, an endpoint a drawing; nothing where no gate counts items."""
    made = transitions(report)
    if not made:
        return []
    panels = [
        drawn(transition_panel(endpoint, [one for one in made if one.endpoint == endpoint]), None, None)
        for endpoint in dict.fromkeys(one.endpoint for one in made)
    ]
    caption = (
        "All items of an endpoint: right under control and recipe, lost (right, then wrong), gained, or wrong under "
        "both. A gross loss counts losses alone; only a gate of net change lets gains stand against them."
    )
    return [
        tag("h3", "Item by item: what changed"),
        tag("div", panels, class_="panels"),
        tag("p", caption, class_="note"),
        tag("details", tag("summary", "data table: items by what became of them"), transition_table(made)),
    ]


def gate_table(gates: Sequence[GateRecord]) -> Markup:
    """All gates, one a row."""
    header = ["model", "recipe", "control", "gate", "n", "losses", "gains", "estimate", "lower", "upper", "margin"]
    header += ["power", "control score", "verdict"]
    rows = []
    for gate in gates:
        score = ABSENT if gate.native_score is None else percent(gate.native_score, 1)
        floor = score if gate.native_floor is None else f"{score} (floor {percent(gate.native_floor, 0)})"
        same = tag("span", "no item differs", class_="sub") if gate.unchanged else None
        remark = tag("span", gate.remark, class_="sub surprise") if gate.remark else None
        bounds = (amount(gate, value) for value in (gate.estimate, gate.lower, gate.upper))
        rows.append(
            [
                cell(gate.model),
                tag("th", title(gate.candidate), scope="row"),
                cell(title(gate.control)),
                cell(gate.gate),
                *numbers(f"{gate.n:,}", count(gate.losses), count(gate.gains), *bounds),
                *numbers(limit_of(gate), power_of(gate), floor),
                cell([word(gate.verdict), same, remark]),
            ]
        )
    return table(
        "Gates: bounds are one-sided at alpha, power is that of passing at the stated true rate.",
        header,
        rows,
        right=range(4, 13),
    )


def count(value: int | None) -> str:
    """A count, a dash where the statistic has none."""
    return ABSENT if value is None else f"{value:,}"


def storage_table(report: Report) -> Markup | None:
    """What each recipe's cache really stored."""
    stored: dict[tuple[str, str, str], list[str]] = {}
    for record in report.of(ArmStorage):
        scales = "fixed, calibrated" if record.scales_sha256 else "none loaded"
        stored.setdefault((record.recipe, f"{record.key_dtype} / {record.value_dtype}", scales), []).append(
            record.model
        )
    if not stored:
        return None
    rows = [
        [
            tag("th", title(recipe), scope="row"),
            cell(tag("code", dtypes)),
            cell(scales),
            cell(", ".join(models)),
        ]
        for (recipe, dtypes, scales), models in stored.items()
    ]
    made = table(
        "What the caches stored, as their tensors report it.",
        ["recipe", "keys / values", "scales", "models"],
        rows,
    )
    return tag("details", tag("summary", "data table: what the caches really stored"), made)
