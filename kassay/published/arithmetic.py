"""What follows from printed numbers by counting, adding, dividing and comparing: exact in fractions.

Every function is monotone in each of its inputs, as kassay.published.consistency asks. Percentages are 100 times a
share; names of factors and parts are the figures' own and mean nothing here.
"""

import math
from fractions import Fraction

from kassay.stats import InvalidData

Numbers = tuple[Fraction, ...]


def product(**factors: Fraction) -> Fraction:
    """The product of all factors."""
    return Fraction(math.prod(factors.values()))


def total(**parts: Fraction) -> Fraction:
    """The sum of all parts."""
    return Fraction(sum(parts.values()))


def arms(controls: int, layouts: int, policies: int) -> int:
    """Arms of a study: its controls, and every layout under every scale policy."""
    return controls + layouts * policies


def difference(minuend: Fraction, subtrahend: Fraction) -> Fraction:
    """One number less another."""
    return Fraction(minuend - subtrahend)


def ratio(numerator: Fraction, denominator: Fraction) -> Fraction:
    """One number over another."""
    return Fraction(numerator) / Fraction(denominator)


def change_percent(new: Fraction, old: Fraction) -> Fraction:
    """By how many per cent `new` is more than `old`."""
    return 100 * (ratio(new, old) - 1)


def gain_percent(ratio: Fraction) -> Fraction:
    """The gain in per cent that a ratio states."""
    return 100 * (Fraction(ratio) - 1)


def loss_percent(ratio: Fraction) -> Fraction:
    """The loss in per cent that a ratio states."""
    return 100 * (1 - Fraction(ratio))


def at_least(value: Fraction, limit: Fraction) -> bool:
    """Whether a value reaches a limit; equality does."""
    return value >= limit


def at_most(value: Fraction, limit: Fraction) -> bool:
    """Whether a value stays within a limit; equality does."""
    return value <= limit


def all_at_least(values: Numbers, limit: Fraction) -> bool:
    """Whether every value reaches a limit."""
    return all(value >= limit for value in values)


def gate_words(values: Numbers, least: Numbers, most: Numbers) -> tuple[str, ...]:
    """`pass` or `fail` of each value that must reach its least and stay within its most."""
    return tuple(
        "pass" if low <= value <= high else "fail" for value, low, high in zip(values, least, most, strict=True)
    )


def all_pass(verdicts: tuple[str, ...]) -> bool:
    """Whether every gate of a rule that requires all of them passes."""
    return all(verdict == "pass" for verdict in verdicts)


def share_reached(part: Fraction, whole: Fraction, share: Fraction) -> bool:
    """Whether a part is at least that share of the whole."""
    return ratio(part, whole) >= share


def shares_reached(parts: Numbers, wholes: Numbers, share: Fraction) -> bool:
    """Whether each part is at least that share of its whole."""
    return all(share_reached(part, whole, share) for part, whole in zip(parts, wholes, strict=True))


def percentages_within(parts: Numbers, wholes: Numbers, least: Fraction, most: Fraction) -> bool:
    """Whether each part, in per cent of its whole, lies between two ends."""
    found = [100 * ratio(part, whole) for part, whole in zip(parts, wholes, strict=True)]
    return all(least <= value <= most for value in found)


def separated(low: Numbers, high: Numbers, threshold: Fraction) -> bool:
    """Whether a threshold lies above one group of values and below the other."""
    return max(low) < threshold < min(high)


def _ends(values: Numbers) -> tuple[Fraction, Fraction]:
    """The least and the largest of the values."""
    return min(values), max(values)


def ends_of_both(first: Numbers, second: Numbers) -> tuple[Fraction, ...]:
    """The least and the largest of two columns, one after the other."""
    return *_ends(first), *_ends(second)


def ends_of_ratios(numerators: Numbers, denominators: Numbers) -> tuple[Fraction, Fraction]:
    """The least and the largest ratio of two columns."""
    return _ends(tuple(ratio(above, below) for above, below in zip(numerators, denominators, strict=True)))


def leads_and_trails(first: Numbers, second: Numbers) -> tuple[int, int]:
    """In how many rows the first column is larger, and in how many it is smaller."""
    pairs = list(zip(first, second, strict=True))
    return sum(one > other for one, other in pairs), sum(one < other for one, other in pairs)


def nearest_counts(percentages: Numbers, n: int) -> tuple[Fraction, ...]:
    """The percentages of n that the whole numbers of items nearest to the given ones are."""
    if n < 1:
        raise InvalidData(f"`n` is {n}, allowed is 1 or more")
    return tuple(Fraction(100 * round(percentage * n / 100), n) for percentage in percentages)


def items_between(before: Fraction, after: Fraction, n: int) -> Fraction:
    """Items of n between two scores in per cent."""
    return (before - after) * n / 100


def parts_fit(whole: Fraction, **parts: Fraction) -> bool:
    """Whether the parts together are no more than the whole."""
    return sum(parts.values()) <= whole


def candidate_score(control: int, losses: int, gains: int) -> int:
    """Right answers of a candidate: the control's, less the losses, and the gains."""
    return control - losses + gains


def gains_are_possible(control: int, candidate: int, losses: int, n: int) -> bool:
    """Whether the gains that two scores and the losses imply are a number of items that the control missed."""
    return 0 <= candidate - control + losses <= n - control


def other_arms(number: int) -> int:
    """Comparisons of one arm with each of the others."""
    return number - 1


def count(names: tuple[str, ...]) -> int:
    """How many different names there are."""
    return len(set(names))


def qualified_and_gained(verdicts: tuple[str, ...]) -> tuple[int, int]:
    """How many rows of a matrix were timed, and how many of them gained."""
    timed = [verdict for verdict in verdicts if verdict in ("gain confirmed", "no confirmed gain")]
    return len(timed), timed.count("gain confirmed")
