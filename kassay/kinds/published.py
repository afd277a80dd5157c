"""Figures that documents print: the facts as they are printed, and what a derivation from them found."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import absent, given, given_only, one_of, together
from kassay.record import Record, doc

DERIVED = ("equal", "consistent within input rounding", "contradicted")  # answers of a figure that was derived


@dataclass(frozen=True, kw_only=True)
class PublishedFigure(Record):
    """One printed figure with what its own source prints to derive it from; a fact, never a result of ours."""

    schema: ClassVar[str] = "kassay.figure/1"

    figure: str = doc("Name of the figure, unique in its file.")
    source: str = doc("File name of the document that prints it.")
    line: int | None = doc("Line of that document, from 1; null where no single line holds it.")
    study: str = doc("Name of the study that it belongs to.")
    quantity: str = doc("What it is, its unit included.")
    printed: Any = doc(
        "As printed: a decimal text whose last place tells its precision, a whole number that is exact, true or false "
        "for a claim, a verdict word, or a list of these."
    )
    derivation: str | None = doc("Name of the function of kassay.published that derives it; null: not derivable.")
    exact: dict[str, Any] = doc("Inputs without rounding: whole numbers, fractions as text, words, lists of these.")
    rounded: dict[str, Any] = doc("Inputs that are printed decimals, as text with all their digits, or lists of these.")
    inferred: list[str] = doc("Names of the inputs that no source prints: a reading of ours.")
    remark: str = doc("Why it is not derivable, or what a reader must know of the derivation; empty if nothing.")

    combinations = (given("derivation", (None,), "remark"), absent("derivation", (None,), "exact", "rounded"))


@dataclass(frozen=True, kw_only=True)
class FigureAnswer(Record):
    """How one printed figure stands to what its printed inputs give."""

    schema: ClassVar[str] = "kassay.figure-answer/1"

    figure: str = doc("Name of the figure.")
    source: str = doc("File name of the document that prints it.")
    line: int | None = doc("Line of that document, from 1; null where no single line holds it.")
    study: str = doc("Name of the study that it belongs to.")
    quantity: str = doc("What it is, its unit included.")
    derivation: str | None = doc("Name of the function that derived it; null: not derivable.")
    inputs: dict[str, Any] = doc("What it was derived from, as in the facts.")
    inferred: list[str] = doc("Names of the inputs that no source prints.")
    printed: str = doc("The printed figure as text.")
    derived: str | None = doc("The figure from the printed inputs as they stand; null if not derivable.")
    lowest: str | None = doc("Least value over the rounding intervals of the inputs; null where it was not asked for.")
    highest: str | None = doc("Largest value over them; null where it was not asked for.")
    answer: str = doc("`equal`, `consistent within input rounding`, `contradicted` or `not derivable`.")
    remark: str = doc("Why it is not derivable, or what the derivation found beside the figure; empty if nothing.")

    combinations = (
        one_of("answer", (*DERIVED, "not derivable")),
        given_only("answer", DERIVED, "derivation", "derived"),
        given("answer", ("not derivable",), "remark"),
        together("lowest", "highest"),
        absent("answer", ("not derivable",), "lowest"),
    )
