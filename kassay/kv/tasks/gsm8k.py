"""What number does a completion of a math problem give? The last labelled answer, strictly, as an exact decimal.

A label is `####`; the number stands right behind it, with a dollar sign, separators of thousands, a minus sign of
either kind or a closing full stop. The last label counts: if no number follows it, there is no answer, whatever an
earlier one said. A completion without a label that ended by itself is read by its last number and counted as such; one
that was cut off gives none, for its last number is one of the working. A right label counts also where the cap cut.

Numbers are compared as decimals: `29.00` is 29, and `18.` is 18. Which items there are, and that all of them stay in
the denominator, is not decided here.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

LABEL = "####"
NUMBER = re.compile(r"[-\u2212]?\s?\\?\$?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-\u2212]?\\?\$?\.\d+")
How = Literal["label", "no marker", "no answer", "truncated"]
Finish = Literal["stop", "length"]  # it ended by itself, or the cap cut it


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read of one completion."""

    value: Decimal | None  # None: there is no answer
    how: How  # by its label, by its last number, or why not at all


def read(text: str, finish: Finish) -> Reading:
    """The answer of one completion."""
    _, label, rest = text.rpartition(LABEL)
    if label:
        found = NUMBER.match(rest.lstrip())
        if found:
            return Reading(value=decimal(found[0]), how="label")
        return Reading(value=None, how="truncated" if finish == "length" else "no answer")
    if finish == "length":
        return Reading(value=None, how="truncated")
    numbers = NUMBER.findall(text)
    return Reading(value=decimal(numbers[-1]), how="no marker") if numbers else Reading(value=None, how="no answer")


def decimal(text: str) -> Decimal:
    """The exact value of a number as it is written."""
    return Decimal(re.sub(r"[\s,$\\]", "", text.replace("\u2212", "-")))


def shown(value: Decimal) -> str:
    """An exact decimal in its one shortest form without an exponent, as records have it: 29.00 is `29`."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def outcome(reading: Reading, gold: Decimal) -> str:
    """`correct`, `wrong`, `unreadable` or `truncated`, as records of answers have it; all but the first are wrong."""
    if reading.value is None:
        return "truncated" if reading.how == "truncated" else "unreadable"
    return "correct" if reading.value == gold else "wrong"


def bookkeeping(readings: Iterable[Reading], golds: Iterable[Decimal]) -> dict[str, int]:
    """Counts of one arm over all its items: by outcome, and how many were read without a marker."""
    pairs = list(zip(readings, golds, strict=True))
    ended = Counter(outcome(reading, gold) for reading, gold in pairs)
    counts = {word: ended[word] for word in ("correct", "wrong", "unreadable", "truncated")}
    return {**counts, "no marker": sum(reading.how == "no marker" for reading, _ in pairs), "items": len(pairs)}
