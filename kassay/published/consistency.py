"""Four answers to one question: is the printed figure what its printed inputs give?

    equal                             derived from the inputs as they stand, it is the printed one
    consistent within input rounding  it is not, but for some values that the inputs may be rounded from
    contradicted                      for none of them
    not derivable                     the inputs are not printed

A printed decimal stands for the closed interval of all numbers that rounding to nearest prints so, whatever the rule
for ties: p - u/2 to p + u/2 with u one unit of its last place. 0.257812 and 0.257813 both print 0.2578125. A printed
quotient such as 0.025/12 is exact.
A number is *equal* if it lies in the interval of the printed figure; a whole number, a word or a claim if it is the
same.

The inputs that are printed decimals span a box. A derivation is monotone in each of them, so that its range over the
box is attained at the box's corners: all are enumerated (2^k for k decimals), exactly in fractions as long as the
derivation is. A number is *consistent* if the range overlaps the interval of the printed figure in more than a point;
a whole number, a word or a claim if a corner gives it; a list if each of its members is by itself.
Without rounded inputs there is no such answer: what is not equal is contradicted.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from kassay.published import CONSISTENT, CONTRADICTED, EQUAL
from kassay.stats import InvalidData

MOST_ROUNDED = 16  # decimals of one figure: 65,536 corners
SHOWN_DIGITS = 10  # significant digits of a derived number in a record

Scalar = Fraction | float | int | bool | str
Value = Scalar | tuple[Scalar, ...]
Derivation = Callable[..., "Value | Told"]


class Told(NamedTuple):
    """A derived value and what else the derivation found, in words."""

    value: Value
    words: str


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """How a printed figure stands to its derivation."""

    answer: str  # EQUAL, CONSISTENT or CONTRADICTED
    derived: Value  # from the inputs as they stand
    lowest: Value | None  # least value over the box, member by member; None where it was not asked for
    highest: Value | None  # largest value over the box
    words: str  # what else the derivation found


def number(text: str) -> Fraction:
    """A printed decimal, or the quotient `a/b` of two, as it stands; raises InvalidData for another text."""
    try:
        above, slash, below = text.partition("/")
        return Fraction(Decimal(above)) / Fraction(Decimal(below) if slash else 1)
    except (ArithmeticError, ValueError):
        raise InvalidData(f"`{text}` is no decimal, allowed are digits with a sign and a point") from None


def rounding_interval(text: str) -> tuple[Fraction, Fraction]:
    """The closed interval that a printed decimal stands for; a quotient stands for itself alone.

    Raises InvalidData for a text that is neither.
    """
    exact = number(text)
    if "/" in text:
        return exact, exact
    half = Fraction(10) ** int(Decimal(text).as_tuple().exponent) / 2
    return exact - half, exact + half


def consistency(
    printed: Any, derivation: Derivation, *, exact: Mapping[str, Any], rounded: Mapping[str, Any]
) -> Consistency:
    """Derive the figure and compare it with what is printed.

    `exact` holds the inputs as the derivation takes them, `rounded` printed decimals as text, or lists of them.
    Raises InvalidData for a text that is no decimal, for a derived NaN, and for a value of another type than printed.
    """
    told = derivation(**exact, **placed(rounded, [number(text) for text in texts(rounded)]))
    derived, words = told if isinstance(told, Told) else (told, "")
    if all(equal(one, member) for one, member in paired(printed, derived)):
        return Consistency(answer=EQUAL, derived=derived, lowest=None, highest=None, words=words)
    if not rounded:
        return Consistency(answer=CONTRADICTED, derived=derived, lowest=None, highest=None, words=words)
    reached = corner_values(derivation, exact, rounded)
    columns = list(zip(*(members(value) for value in reached), strict=True))
    holds = all(attained(one, column) for (one, _), column in zip(paired(printed, derived), columns, strict=True))
    return Consistency(
        answer=CONSISTENT if holds else CONTRADICTED,
        derived=derived,
        lowest=tuple(min(column) for column in columns),
        highest=tuple(max(column) for column in columns),
        words=words,
    )


def corner_values(derivation: Derivation, exact: Mapping[str, Any], rounded: Mapping[str, Any]) -> list[Value]:
    """What the derivation gives at every corner of the box; raises InvalidData for a box of too many sides."""
    intervals = [rounding_interval(text) for text in texts(rounded)]
    if len(intervals) > MOST_ROUNDED:
        raise InvalidData(f"the figure has {len(intervals)} rounded inputs, allowed are {MOST_ROUNDED}")
    found = [derivation(**exact, **placed(rounded, corner)) for corner in itertools.product(*intervals)]
    return [value.value if isinstance(value, Told) else value for value in found]


def texts(rounded: Mapping[str, Any]) -> list[str]:
    """The decimals of all rounded inputs in a fixed order."""
    return [text for value in rounded.values() for text in ([value] if isinstance(value, str) else value)]


def placed(rounded: Mapping[str, Any], numbers: Sequence[Fraction]) -> dict[str, Any]:
    """The rounded inputs with `numbers`, in the order of `texts`, in place of their decimals."""
    left = iter(numbers)
    return {
        name: next(left) if isinstance(value, str) else tuple(next(left) for _ in value)
        for name, value in rounded.items()
    }


def members(value: Any) -> tuple[Any, ...]:
    """The members of a list, or the one value."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def paired(printed: Any, derived: Value) -> list[tuple[Any, Scalar]]:
    """Printed and derived members; raises InvalidData where one is a list of another length or not a list."""
    if isinstance(printed, list) != isinstance(derived, tuple) or len(members(printed)) != len(members(derived)):
        raise InvalidData(f"`{printed}` is printed and `{derived}` derived, allowed are as many members")
    return list(zip(members(printed), members(derived), strict=True))


def equal(printed: Any, derived: Scalar) -> bool:
    """Whether one derived member is what is printed; raises InvalidData for another type and for a NaN."""
    if isinstance(printed, bool) or isinstance(derived, bool | str):
        if type(printed) is not type(derived):
            raise InvalidData(f"`{printed!r}` is printed and `{derived!r}` derived, allowed is one type")
        return bool(printed == derived)
    if math.isnan(derived):
        raise InvalidData("the derived value is not a number")
    if isinstance(printed, int):
        return derived == printed
    low, high = rounding_interval(printed)
    return low <= derived <= high


def attained(printed: Any, column: Sequence[Any]) -> bool:
    """Whether one member may be what is printed, from its values at the corners."""
    if not isinstance(printed, str) or isinstance(column[0], str):
        return any(equal(printed, value) for value in column)
    low, high = rounding_interval(printed)
    if low == high:
        return bool(min(column) <= low <= max(column))
    return bool(max(low, min(column)) < min(high, max(column)))


def shown(value: Any) -> str:
    """A printed or derived value as text: numbers with SHOWN_DIGITS significant digits, claims in words."""
    if isinstance(value, list | tuple):
        return ", ".join(shown(member) for member in value) or "none"
    if isinstance(value, bool):
        return "holds" if value else "does not hold"
    if isinstance(value, str | int):
        return str(value)
    if value == int(value) and abs(value) < 10**15:
        return str(int(value))
    return f"{float(value):.{SHOWN_DIGITS}g}"
