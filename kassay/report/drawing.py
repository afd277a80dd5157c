"""matplotlib as a maker of inline SVG that follows the page: its ink, palette and font, light and dark.

Figures are drawn with placeholder colours; `svg_of` replaces them by CSS variables, so one drawing serves
both themes and nothing is drawn twice. Equal input gives equal bytes: ids come from a fixed salt and carry
the figure's name, and no date is written. Text stays text.
"""

import hashlib
import io
import re
import warnings
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from kassay.report.words import clean, harmless

# Placeholder -> CSS variable (kassay.report.style). Each has a light and a dark value of equal rank in contrast.
INK, SOFT, RULE, PAPER = "#010101", "#020202", "#030303", "#040404"
SERIES = ("#050505", "#060606", "#070707", "#080808", "#090909", "#0a0a0a")  # first: the control
VARIABLES = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES)},
}
FILLED, HOLLOW = ("o", "s", "^", "v", "P", "X"), ("o", "D", "^", "v", "P", "X")
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kassay",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "hatch.linewidth": 0.9,
    "figure.constrained_layout.use": True,
}
LONGEST_ID = 48
POINTS_PER_INCH = 72  # one point of the drawing is one CSS pixel


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One finished figure with what stands behind it."""

    name: str  # unique on the page; prefix of all ids
    label: str  # what the figure shows, for those who do not see it
    svg: str
    width_px: int


@dataclass(frozen=True, kw_only=True)
class Style:
    """Colour and marker of one recipe: colour for its family, marker and filling for its scale policy."""

    colour: str
    marker: str
    hollow: bool

    def points(self) -> dict[str, Any]:
        """Keyword arguments for a line of markers."""
        face = PAPER if self.hollow else self.colour
        return {
            "marker": self.marker,
            "markerfacecolor": face,
            "markeredgecolor": self.colour,
            "color": self.colour,
        }


def styles(recipes: list[str], control: str) -> dict[str, Style]:
    """A style for each recipe; the control has the first colour, each family of candidates one of the others."""
    family_of = {recipe: recipe.rpartition("-")[0] or recipe for recipe in recipes}
    families = list(dict.fromkeys(family for recipe, family in family_of.items() if recipe != control))
    seen: dict[str, int] = {}
    made = {}
    for recipe in recipes:
        family = family_of[recipe]
        rank = seen[family] = seen.get(family, -1) + 1
        colour = SERIES[0] if recipe == control else SERIES[1 + families.index(family) % (len(SERIES) - 1)]
        shape = 0 if recipe == control else 1 + families.index(family) % (len(FILLED) - 1)
        marker = HOLLOW[shape] if rank % 2 else FILLED[shape]
        made[recipe] = Style(colour=colour, marker=marker, hollow=bool(rank % 2))
    return made


def figure(width_px: int, height_px: int) -> Figure:
    """An empty figure of a size in CSS pixels, inside `matplotlib.rc_context(SETTINGS)`."""
    return Figure(figsize=(width_px / POINTS_PER_INCH, height_px / POINTS_PER_INCH))


def drawn(name: str, label: str, made: Figure) -> Drawing:
    """The figure as inline SVG; ids are safe and unique whatever the name holds."""
    name = safe_id(name)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # the page's font has what DejaVu may lack
        made.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    width_px = round(made.get_figwidth() * POINTS_PER_INCH)
    return Drawing(name=name, label=clean(label), svg=svg_of(buffer.getvalue(), name, width_px), width_px=width_px)


def safe_id(name: str) -> str:
    """`name` as an id: letters, digits and dashes; one that has others, or is long, ends with a part of its digest."""
    plain = re.sub(r"[^A-Za-z0-9-]", "-", name)[:LONGEST_ID]
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def svg_of(text: str, name: str, width_px: int) -> str:
    """matplotlib's SVG document as an element for a page: themed, with ids of its own and without fixed height."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>',
        rf'<svg viewBox="\1" width="{width_px}" role="img">',
        body,
        count=1,
    )
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", body).replace("xlink:href", "href")
    body = re.sub(r"font-family: [^;\"]*", "font-family: var(--sans)", body)
    for placeholder, variable in VARIABLES.items():
        body = body.replace(placeholder, variable)
    return harmless(body.strip())


context = matplotlib.rc_context
