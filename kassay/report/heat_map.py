"""The heat map of a study: how much of its margin the worst gate of each recipe uses on each model.

    share = deciding bound / margin, both of the gate that uses most; a gate holds where it is at most 1

One of a net change has a margin below 0 and its lower bound decides: the share is the same quotient. Where the margin
is 0 there is no share, and the verdict stands alone. Tiles are drawn by hand: they need no axes.
"""

import math
from collections.abc import Sequence

from kassay.kinds.verdict import GateRecord
from kassay.report.certified import amount, limit_of, planned_rows
from kassay.report.drawing import Drawing
from kassay.report.evidence import Report
from kassay.report.markup import Markup, cell, numbers, table, tag
from kassay.report.model import NOT_RUN
from kassay.report.words import ABSENT, number, one_line, tick, title

NAME_PX, HEAD_PX, TILE_PX, GAP_PX = 158, 24, (104, 34), 2
COLOURS = {"pass": "var(--good)", "fails": "var(--bad)"}
GLYPHS = {"pass": "✓", "fails": "✗"}
FAINTEST, STRONGEST = 0.08, 0.42  # opacity of a tile's colour; text keeps a contrast of 4.5 to the strongest
DECADES = 2.0  # of the share beyond 1, over which harm deepens

Row = tuple[str, str]  # recipe's row, model


def heat_map(verdicts: dict[Row, str], report: Report) -> Drawing | None:
    """Recipes by models as tiles; none where nothing was judged."""
    worst = worst_gates(report)
    if not worst:
        return None
    rows, models = (list(dict.fromkeys(key[place] for key in verdicts)) for place in (0, 1))
    width = NAME_PX + len(models) * TILE_PX[0]
    height = HEAD_PX + len(rows) * TILE_PX[1] + 2
    parts = [
        words(NAME_PX + column * TILE_PX[0] + TILE_PX[0] // 2, 15, tick(one_line(model)), anchor="middle", weight="600")
        for column, model in enumerate(models)
    ]
    said = []
    for rank, row in enumerate(rows):
        top = HEAD_PX + rank * TILE_PX[1]
        parts.append(words(NAME_PX - 8, top + TILE_PX[1] // 2 + 4, tick(title(row)), anchor="end"))
        for column, model in enumerate(models):
            gate, verdict = worst.get((row, model)), verdicts.get((row, model), NOT_RUN)
            parts.append(tile(NAME_PX + column * TILE_PX[0], top, verdict, gate))
            said.append(f"{title(row)} on {model}: {verdict}{told(gate)}")
    label = "Share of the margin that the worst gate uses: " + "; ".join(said)
    svg = tag("svg", parts, viewBox=f"0 0 {width} {height}", width=width, style="font: 11px var(--sans)", role="img")
    return Drawing(name="heat-map", label=label, svg=svg, width_px=width)


def told(gate: GateRecord | None) -> str:
    """The gate and its share, for those who do not see the tile."""
    used = None if gate is None else share(gate)
    return "" if gate is None or used is None else f", {one_line(gate.gate, 60)} uses {number(used)} of its margin"


def share(gate: GateRecord) -> float | None:
    """Deciding bound over margin, at least 0; None where the margin is 0 or the bound is not finite."""
    bound = gate.lower if gate.decides == "lower" else gate.upper
    if not gate.margin or bound is None or not math.isfinite(bound):
        return None
    return max(0.0, bound / gate.margin)


def worst_gates(report: Report) -> dict[Row, GateRecord]:
    """(row, model) -> the gate that uses most of its margin; a gate without a share counts least."""
    rows_of: dict[Row, list[str]] = {}
    for name, pair in planned_rows(report.run).items():
        rows_of.setdefault(pair, []).append(name)
    found: dict[Row, GateRecord] = {}
    for gate in report.of(GateRecord):
        for row in rows_of.get((gate.candidate, gate.control), [gate.candidate]):
            before = found.get((row, gate.model))
            if before is None or (share(gate) or 0.0) > (share(before) or 0.0):
                found[row, gate.model] = gate
    return found


def tile(x: int, y: int, verdict: str, gate: GateRecord | None) -> Markup:
    """One recipe on one model: its colour by verdict, deeper with the share; the words say it without colour."""
    used = None if gate is None else share(gate)
    colour = COLOURS.get(verdict, "var(--open)" if gate is not None else "var(--soft)")
    first = f"{GLYPHS.get(verdict, '?' if gate is not None else '')} {tick(one_line(verdict), 14)}".strip()
    second = "" if gate is None or used is None else f"{number(used, 2)}× {tick(one_line(gate.gate), 10)}"
    middle = x + TILE_PX[0] // 2
    return tag(
        "g",
        tag(
            "rect",
            x=x + GAP_PX // 2,
            y=y + GAP_PX // 2,
            width=TILE_PX[0] - GAP_PX,
            height=TILE_PX[1] - GAP_PX,
            fill=colour if gate is not None else "none",
            fill_opacity=f"{depth(used):.2f}",
            stroke=colour,
            stroke_opacity="0.6",
            stroke_dasharray=None if gate is not None else "4 3",
        ),
        words(middle, y + (15 if second else 21), first, anchor="middle", weight="600"),
        words(middle, y + 27, second, anchor="middle", size=10) if second else None,
    )


def depth(used: float | None) -> float:
    """Opacity of a tile: up to half of the scale within the margin, the rest over two decades beyond it."""
    if used is None:
        return FAINTEST
    half = (STRONGEST - FAINTEST) / 2
    beyond = min(1.0, math.log10(used) / DECADES) if used > 1 else 0.0
    return FAINTEST + half * min(1.0, used) + half * beyond


def words(x: int, y: int, text: str, *, anchor: str, weight: str = "400", size: int = 11) -> Markup:
    """One line of text in the page's ink."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, font_weight=weight, font_size=size, fill="var(--ink)")


def heat_table(verdicts: dict[Row, str], report: Report) -> Markup:
    """The numbers behind the tiles."""
    worst = worst_gates(report)
    rows = []
    for (row, model), verdict in verdicts.items():
        gate = worst.get((row, model))
        shown: Sequence[str] = (ABSENT,) * 3
        if gate is not None:
            bound = gate.lower if gate.decides == "lower" else gate.upper
            shown = (amount(gate, bound), limit_of(gate), number(share(gate)))
        rows.append(
            [
                tag("th", title(row), scope="row"),
                cell(one_line(model)),
                cell(one_line(verdict)),
                cell(ABSENT if gate is None else one_line(gate.gate, 60)),
                *numbers(*shown),
            ]
        )
    header = ["recipe", "model", "verdict", "gate that uses most", "deciding bound", "margin", "bound / margin"]
    caption = "Of each recipe on each model, the gate whose deciding bound uses most of its margin."
    return table(caption, header, rows, right=range(4, 7))
