"""What a report says in words: safe text, numbers for people, the verdict line and the findings.

Nothing here knows a result: every sentence is put together from records and outcomes. Text that comes from
records is made harmless by `clean` wherever it is shown, on a terminal, in Markdown, HTML or XML.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from kassay.errors import EXIT_CRASHED, EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET, EXIT_USAGE
from kassay.kv.recipe import RECIPES

LONGEST_TEXT = 2000  # characters of one free text that are shown; the record keeps all
LONGEST_TICK = 22  # characters of a name in a figure
ABSENT = "–"
# Control characters, bidirectional overrides and lone surrogates: they could move the cursor, reorder what is read, or
# make a document invalid. Line feed and tab stay.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
TITLES = {recipe.name: recipe.title for recipe in RECIPES}
EXIT_MEANINGS = {
    EXIT_PASSED: "every stage passed",
    EXIT_CRASHED: "something crashed",
    EXIT_USAGE: "a mistake in what was asked",
    EXIT_REJECTED: "something was rejected: a gate said no, or a verdict is not the expected one",
    EXIT_UNMET: "something was unmet or blocked, and nothing was rejected",
}
VERBS = {
    "pass": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "unestablished": ("is unestablished", "are unestablished"),
    "ineligible": ("is ineligible", "are ineligible"),
    "not run": ("was not judged", "were not judged"),
}


def frozen_words(protocol: dict[str, Any]) -> str:
    """What was frozen beside the protocol of a run, and which came first: the freeze or the run."""
    first, last = protocol["notes"][0], protocol["notes"][-1]
    if last["frozen"] is None:
        return "none: the study was not frozen before its results"
    if last["frozen"] != protocol["sha256"]:
        return (
            f"{last['frozen']} of {last['frozen_at']} is another one; changed since: {', '.join(last['changed'])}. "
            "Results of the two are not judged together"
        )
    late = first["frozen"] is None or last["frozen_at"] > first["at"]
    return f"the same, frozen {last['frozen_at']}, {'after' if late else 'before'} this run began ({first['at']})"


def clean(value: object, longest: int = LONGEST_TEXT) -> str:
    """`value` as text without anything that acts on its display; what is cut is said."""
    text = str(value)
    cut = f"… ({len(text):,} characters)" if len(text) > longest else ""
    return harmless(text[:longest]) + cut


def harmless(text: str) -> str:
    """`text` with what acts on its display spelled out."""
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(value: object, longest: int = 300) -> str:
    """`value` as clean text on one line."""
    return clean(" ".join(str(value)[: 4 * longest].split()), longest)


def title(recipe: str) -> str:
    """The name that people use of a recipe; a recipe of another backend keeps its own."""
    return TITLES.get(recipe) or one_line(recipe, 60)


def tick(text: str, longest: int = LONGEST_TICK) -> str:
    """A name in a figure, at most so many characters long, so that the axes keep their room."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, without exponent where it can be read without."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        places = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
        return f"{value:,.{min(max(places, 0), 8)}f}"
    return f"{value:.{digits - 1}e}"


def fixed(value: float | None, places: int) -> str:
    """A number with so many decimals."""
    return ABSENT if value is None or not math.isfinite(value) else f"{value:,.{places}f}"


def percent(value: float | None, places: int = 2) -> str:
    """A fraction in per cent."""
    return ABSENT if value is None or not math.isfinite(value) else f"{100 * value:,.{places}f} %"


def probability(value: float | None) -> str:
    """A p value."""
    return ABSENT if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None:
        return ABSENT
    return f"{value:.1f} s" if value < 60 else f"{int(value) // 60} min {int(value) % 60:02d} s"


def size(count: float | None) -> str:
    """A number of bytes in binary units."""
    if count is None:
        return ABSENT
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.2f} GiB"


def counted(count: int, noun: str) -> str:
    """`1 stage`, `2 stages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?', '…')) else '.'}"


def exit_meaning(code: int | None) -> str:
    """What the exit code says, in words."""
    if code is None:
        return "the run has not ended"
    return EXIT_MEANINGS.get(code, "the run was interrupted; `make` resumes it")


def families(recipes: Iterable[str], of_all: Iterable[str]) -> list[str]:
    """Titles of recipes, joined to their family (`K16/V8`) where all of its policies are among them.

    Of rows that say for what (`K16/V8 fixed for preservation`) the family is the recipe, joined where all are there.
    """
    members: dict[str, list[str]] = {}
    for recipe in of_all:
        name = title(recipe)
        members.setdefault(name.rpartition(" for " if " for " in name else " ")[0] or name, []).append(recipe)
    chosen = list(recipes)
    found: list[str] = []
    for family, names in members.items():
        there = [name for name in names if name in chosen]
        found += [family] if there == names and len(names) > 1 else [title(name) for name in there]
    return found


def verdict_clause(recipes: list[str], verdicts: dict[str, str], of_all: list[str]) -> str:
    """`K8/V16 and K8/V8 hold on robust and fail on fragile`: recipes of one pattern of verdicts over models."""
    names = families(recipes, of_all)
    models_of: dict[str, list[str]] = {}
    for model, verdict in verdicts.items():
        models_of.setdefault(verdict, []).append(one_line(model, 60))
    said = []
    for verdict, models in models_of.items():
        verb = VERBS.get(verdict, (verdict, verdict))[len(names) > 1]
        whole = len(models_of) == 1 and len(models) > 1
        where = f"{'both' if len(models) == 2 else f'all {len(models)}'} models" if whole else listed(models)
        said.append(f"{verb} on {where}")
    return f"{listed(names)} {listed(said)}"
