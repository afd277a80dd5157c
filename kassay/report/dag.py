"""The DAG of a run as an inline SVG: stages in columns by depth, edges that no other path implies.

A node says its name, how it ended and how long it took; the outline repeats the word (solid ran here, dashed
reused or not run), so colour is never needed. Layout is a function of the plan alone.
"""

from dataclasses import dataclass

from kassay.report.markup import Markup, tag
from kassay.report.model import NOT_RUN, THIS_REPORT, RunView, StageView
from kassay.report.words import clean

NODE_PX = (94, 50)
GAP_PX = (22, 14)
COLOURS = {
    "passed": "var(--good)",
    "rejected": "var(--bad)",
    "crashed": "var(--bad)",
    "unmet": "var(--open)",
    "blocked": "var(--open)",
}
LONGEST_LINE = 18  # characters that are shown
FITTING = {"600": 11, "400": 14}  # font weight -> characters that fit a node in letters of full size
FONT_PX = 11


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a stage is drawn."""

    column: int
    lane: int

    def left_top(self) -> tuple[int, int]:
        """Corner of the node in pixels."""
        return 2 + self.column * (NODE_PX[0] + GAP_PX[0]), 2 + self.lane * (NODE_PX[1] + GAP_PX[1])


def reduced_edges(stages: tuple[StageView, ...]) -> list[tuple[str, str]]:
    """The edges (needed, needing) that no longer path implies."""
    above: dict[str, set[str]] = {}  # all ancestors; stages come after what they need
    for stage in stages:
        above[stage.name] = set(stage.needs).union(*(above.get(name, set()) for name in stage.needs))
    return [
        (name, stage.name)
        for stage in stages
        for name in stage.needs
        if not any(name in above.get(other, set()) for other in stage.needs if other != name)
    ]


def places(stages: tuple[StageView, ...]) -> dict[str, Place]:
    """A column (depth) and a lane for each stage; a lane stays free where a long edge passes."""
    edges = reduced_edges(stages)
    depth: dict[str, int] = {}
    for stage in stages:
        depth[stage.name] = 1 + max((depth.get(name, 0) for name in stage.needs), default=-1)
    lane: dict[str, int] = {}
    for column in range(max(depth.values(), default=-1) + 1):
        passing = {lane[a] for a, b in edges if depth[a] < column < depth[b]}
        for stage in (stage for stage in stages if depth[stage.name] == column):
            parents = [lane[a] for a, b in edges if b == stage.name]
            wish = [min(parents)] if parents else []
            free = next(number for number in [*wish, *range(len(stages) + len(passing) + 1)] if number not in passing)
            lane[stage.name] = free
            passing.add(free)
    return {name: Place(column=depth[name], lane=lane[name]) for name in lane}


def dag(run: RunView) -> Markup:
    """The whole drawing."""
    place = places(run.stages)
    columns, lanes = (max(getattr(p, axis) for p in place.values()) + 1 for axis in ("column", "lane"))
    width = columns * (NODE_PX[0] + GAP_PX[0]) - GAP_PX[0] + 4
    height = lanes * (NODE_PX[1] + GAP_PX[1]) - GAP_PX[1] + 4
    lines = [edge(place[a], place[b]) for a, b in reduced_edges(run.stages)]
    label = f"DAG of {len(run.stages)} stages; the table below lists them with what each needs."
    return tag(
        "svg",
        tag("title", label),
        tag("g", lines, fill="none", stroke="var(--soft)", stroke_width="1"),
        [node(stage, place[stage.name]) for stage in run.stages],
        viewBox=f"0 0 {width} {height}",
        width=width,
        role="img",
        aria_label=label,
        style=f"font: {FONT_PX}px var(--sans)",
    )


def edge(start: Place, end: Place) -> Markup:
    """From a node's right side along its lane, then over to the next node's left side."""
    (x1, y1), (x2, y2) = start.left_top(), end.left_top()
    x1, y1, y2 = x1 + NODE_PX[0], y1 + NODE_PX[1] // 2, y2 + NODE_PX[1] // 2
    bend = x2 - GAP_PX[0]
    middle = x2 - GAP_PX[0] // 2
    return tag("path", d=f"M{x1} {y1} H{bend} C{middle} {y1} {middle} {y2} {x2} {y2}")


def node(stage: StageView, place: Place) -> Markup:
    """One stage: its name on one or two lines, its word and seconds."""
    x, y = place.left_top()
    head, _, member = stage.name.partition(".")
    colour = COLOURS.get(stage.word, "var(--soft)")
    solid = stage.word not in (NOT_RUN, THIS_REPORT) and not stage.reused
    took = "" if stage.duration_s is None else f" {brief(stage.duration_s)}"
    state = "reused" if stage.reused and stage.word == "passed" else f"{stage.word}{took}"
    return tag(
        "g",
        tag("title", f"{stage.name}: {stage.word}{took}{f', from run {stage.run}' if stage.reused else ''}"),
        tag(
            "rect",
            x=x,
            y=y,
            width=NODE_PX[0],
            height=NODE_PX[1],
            rx=3,
            fill="var(--panel)",
            stroke=colour,
            stroke_dasharray=None if solid else "4 3",
        ),
        text(x + 7, y + 16, head, weight="600"),
        text(x + 7, y + 29, member) if member else None,
        text(x + 7, y + 43, state, fill=colour),
    )


def brief(duration_s: float) -> str:
    """A duration in few characters."""
    return (
        f"{duration_s:.1f} s"
        if duration_s < 10
        else f"{duration_s:.0f} s"
        if duration_s < 1000
        else f"{duration_s / 60:.0f} min"
    )


def text(x: int, y: int, content: str, *, fill: str = "var(--ink)", weight: str = "400") -> Markup:
    """One line of text in a node; a long one in smaller letters."""
    shown = clean(content)[:LONGEST_LINE]
    size = None if len(shown) <= FITTING[weight] else f"{FONT_PX * FITTING[weight] / len(shown):.1f}px"
    return tag("text", shown, x=x, y=y, fill=fill, font_weight=weight, font_size=size)
