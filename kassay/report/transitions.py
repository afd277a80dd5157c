"""What became of every item: right under both arms, lost, gained, wrong under both; counts of the gates' own records.

    kept = control right - lost        still wrong = n - control right - gained

A net change hides what it is made of: 12 lost and 12 gained is no preservation. Bars are drawn by hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kassay.kinds.verdict import GateRecord
from kassay.report.drawing import Drawing
from kassay.report.evidence import Report
from kassay.report.heat_map import words
from kassay.report.markup import Markup, cell, numbers, table, tag
from kassay.report.words import one_line, tick, title

NAME_PX, BAR_PX, TOLD_PX = 150, 216, 100
ROW_PX, THICK_PX, HEAD_PX, LEGEND_PX = 18, 12, 26, 24
PARTS = (  # name, colour, opacity
    ("right under both", "var(--soft)", 0.30),
    ("lost", "var(--bad)", 1.0),
    ("gained", "var(--good)", 1.0),
    ("wrong under both", "var(--soft)", 0.0),
)


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The items of one endpoint under one candidate beside its control."""

    endpoint: str
    model: str
    candidate: str
    control: str
    kept: int
    lost: int
    gained: int
    wrong: int

    @property
    def items(self) -> int:
        """All planned items."""
        return self.kept + self.lost + self.gained + self.wrong

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """In the order of PARTS."""
        return self.kept, self.lost, self.gained, self.wrong


def transitions(report: Report) -> list[Transition]:
    """Of every gate that counts items; gates of the same items once."""
    found: dict[tuple[str, str, str, str], Transition] = {}
    for gate in report.of(GateRecord):
        right = control_right(gate)
        if gate.losses is None or gate.gains is None or right is None:
            continue
        key = (gate.endpoint, gate.model, gate.candidate, gate.control)
        found[key] = Transition(
            endpoint=gate.endpoint,
            model=gate.model,
            candidate=gate.candidate,
            control=gate.control,
            kept=right - gate.losses,
            lost=gate.losses,
            gained=gate.gains,
            wrong=gate.n - right - gate.gains,
        )
    return list(found.values())


def control_right(gate: GateRecord) -> int | None:
    """Items that the control answered; None where the gate does not say."""
    if gate.control_outcomes is not None and "correct" in gate.control_outcomes:
        return gate.control_outcomes["correct"]
    return None if gate.native_score is None else round(gate.native_score * gate.n)


def transition_panel(endpoint: str, own: Sequence[Transition]) -> Drawing:
    """One endpoint: a bar of all items for each model and recipe, what was lost and gained in numbers beside it."""
    parts: list[Markup] = [words(NAME_PX, 14, tick(one_line(endpoint)), anchor="start", weight="700", size=12)]
    y = HEAD_PX
    several = len({one.control for one in own}) > 1
    for model in dict.fromkeys(one.model for one in own):
        parts.append(words(NAME_PX, y + 11, tick(one_line(model), 40), anchor="start", weight="600"))
        y += ROW_PX
        for one in (one for one in own if one.model == model):
            against = f" / {title(one.control)}" if several else ""
            parts += bar(y, tick(f"{title(one.candidate)}{against}"), one)
            y += ROW_PX
        y += 5
    parts += legend(y + 4)
    width, height = NAME_PX + BAR_PX + TOLD_PX, y + LEGEND_PX
    told = "; ".join(
        f"{title(one.candidate)} on {one.model}: {one.lost} lost, {one.gained} gained of {one.items}" for one in own
    )
    svg = tag("svg", parts, viewBox=f"0 0 {width} {height}", width=width, style="font: 11px var(--sans)", role="img")
    return Drawing(name=f"items-{endpoint}", label=f"Items of {endpoint}: {told}", svg=svg, width_px=width)


def bar(y: int, name: str, one: Transition) -> list[Markup]:
    """One row: name, bar, numbers."""
    made = [words(NAME_PX - 8, y + 10, name, anchor="end")]
    left = float(NAME_PX)
    for (_, colour, opacity), count in zip(PARTS, one.counts, strict=True):
        width = BAR_PX * count / max(1, one.items)
        if count:
            made.append(block(left, y, width, colour, opacity))
        left += width
    outline = tag(
        "rect", x=NAME_PX, y=y, width=BAR_PX, height=THICK_PX, fill="none", stroke="var(--soft)", stroke_width="0.6"
    )
    told = f"−{one.lost:,} +{one.gained:,} of {one.items:,}" if one.lost or one.gained else f"none of {one.items:,}"
    return [*made, outline, words(NAME_PX + BAR_PX + 6, y + 10, told, anchor="start", size=10)]


def block(x: float, y: int, width: float, colour: str, opacity: float) -> Markup:
    """A part of a bar; one item is at least a pixel wide, so that it is seen."""
    return tag(
        "rect", x=f"{x:.2f}", y=y, width=f"{max(1.0, width):.2f}", height=THICK_PX, fill=colour, fill_opacity=opacity
    )


def legend(y: int) -> list[Markup]:
    """The parts of a bar by name."""
    made = []
    x = 4.0
    for name, colour, opacity in PARTS:
        swatch = {"fill": colour, "fill_opacity": opacity, "stroke": "var(--soft)", "stroke_width": "0.6"}
        made.append(tag("rect", x=x, y=y, width=11, height=10, **swatch))
        made.append(words(int(x) + 16, y + 9, name, anchor="start", size=10))
        x += 34 + 6 * len(name)
    return made


def transition_table(made: Sequence[Transition]) -> Markup:
    """The numbers behind the bars."""
    rows = [
        [
            cell(one_line(one.endpoint, 60)),
            cell(one_line(one.model, 60)),
            tag("th", title(one.candidate), scope="row"),
            cell(title(one.control)),
            *numbers(*(f"{count:,}" for count in (one.items, *one.counts))),
        ]
        for one in made
    ]
    header = ["endpoint", "model", "recipe", "control", "items", *(name for name, *_ in PARTS)]
    return table("Items by what became of them.", header, rows, right=range(4, 9))
