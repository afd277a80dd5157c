"""What goes together in one record: its status decides which other fields are there, and its numbers agree.

A kind declares its combinations below its fields. Whenever a record is made or read all of them are tested, and all
that are broken are told at once. Each is a sentence, which the message repeats and docs/records.md prints. Those about
the words of a field, and about the fields that are there with a word, are in the kind's JSON Schema too; order, lengths
and sums are what a schema cannot say.

A field is *there* unless it is null or empty; 0, false and NaN are there. Only what contradicts itself is refused: a
cell that lacks its evidence is recorded, and is invalid. Whether a number is right is no question here (make audit).
"""

import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

NOTHING: list[Any] = [None, "", [], {}]  # what a field has that is not there
NAME = re.compile(r"`(\w+)`")

Word = str | bool | None  # what a field may say; of a status "" is nothing said


@dataclass(frozen=True, kw_only=True)
class Combination:
    """One rule on the fields of a kind."""

    says: str  # the rule as a sentence, with the names of its fields in backticks
    holds: Callable[[Any], bool]  # of a record
    schema: dict[str, Any]  # the rule in JSON Schema; {} where that cannot say it

    def broken(self, record: object) -> str:
        """The rule and what the record has in its place."""
        named = dict.fromkeys(name for name in NAME.findall(self.says) if name in vars(record))
        got = ", ".join(f"`{name}` {reprlib.repr(getattr(record, name))}" for name in named)
        return f"{self.says}; got {got}"


def rule(says: str, holds: Callable[[Any], bool]) -> Combination:
    """A rule that is stated in words and as a function of the record; NaN must not break it."""
    return Combination(says=says, holds=holds, schema={})


def one_of(field: str, words: tuple[Word, ...]) -> Combination:
    """A field has one of these words."""
    value = attrgetter(field)
    says = f"`{field}` is {listed(words)}"
    return Combination(
        says=says, holds=lambda record: value(record) in words, schema={"properties": {field: {"enum": list(words)}}}
    )


def given(status: str, words: tuple[Word, ...], *names: str) -> Combination:
    """Where the status has one of these words, these fields are there."""
    said, values = attrgetter(status), getter(names)
    return Combination(
        says=f"{these(names)} there where `{status}` is {listed(words)}",
        holds=lambda record: said(record) not in words or all(map(there, values(record))),
        schema={"if": where(status, words), "then": all_there(names)},
    )


def absent(status: str, words: tuple[Word, ...], *names: str) -> Combination:
    """Where the status has one of these words, none of these fields is there."""
    said, values = attrgetter(status), getter(names)
    return Combination(
        says=f"{these(names)} not there where `{status}` is {listed(words)}",
        holds=lambda record: said(record) not in words or not any(map(there, values(record))),
        schema={"if": where(status, words), "then": none_there(names)},
    )


def given_only(status: str, words: tuple[Word, ...], *names: str) -> Combination:
    """These fields are there where the status has one of these words, and nowhere else."""
    said, values = attrgetter(status), getter(names)
    return Combination(
        says=f"{these(names)} there exactly where `{status}` is {listed(words)}",
        holds=lambda record: set(map(there, values(record))) == {said(record) in words},
        schema={"if": where(status, words), "then": all_there(names), "else": none_there(names)},
    )


def together(*names: str) -> Combination:
    """These fields are all there, or none of them is."""
    values = getter(names)
    return Combination(
        says=f"{these(names)} there together or not at all",
        holds=lambda record: len(set(map(there, values(record)))) == 1,
        schema={"anyOf": [all_there(names), none_there(names)]},
    )


def ordered(*names: str) -> Combination:
    """These numbers do not descend; one that is not there, or is NaN, breaks nothing."""
    values = getter(names)

    def holds(record: Any) -> bool:
        numbers = [value for value in values(record) if value is not None]
        return not any(later < earlier for earlier, later in pairwise(numbers))

    return rule(" <= ".join(f"`{name}`" for name in names), holds)


def as_long(*names: str) -> Combination:
    """These lists are of one length, null ones left out."""
    values = getter(names)
    return rule(
        f"{listed_names(names)} are as long as each other",
        lambda record: len({len(value) for value in values(record) if value is not None}) <= 1,
    )


def there(value: object) -> bool:
    """Whether a field is there; a NaN or a zero is."""
    return not (value is None or (isinstance(value, str | list | tuple | dict) and not value))


def getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    one = attrgetter(names[0])
    return lambda record: (one(record),)


def listed(words: tuple[Word, ...]) -> str:
    """Words as a sentence has them."""
    plain = {None: "null", True: "true", False: "false", "": "empty"}
    shown = [plain.get(word, f"`{word}`") for word in words]
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def listed_names(names: tuple[str, ...]) -> str:
    """Fields as a sentence has them."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def these(names: tuple[str, ...]) -> str:
    """Fields as the subject of a sentence."""
    return f"{listed_names(names)} {'are' if len(names) > 1 else 'is'}"


def where(status: str, words: tuple[Word, ...]) -> dict[str, Any]:
    """In JSON Schema: the status has one of these words."""
    return {"properties": {status: {"enum": list(words)}}}


def all_there(names: tuple[str, ...]) -> dict[str, Any]:
    """In JSON Schema: these fields are there, if only as a number that was not finite."""
    return {"allOf": [unless_nonfinite(name, {"not": {"enum": NOTHING}}) for name in names]}


def none_there(names: tuple[str, ...]) -> dict[str, Any]:
    """In JSON Schema: none of these fields is there."""
    return {"properties": {name: {"enum": NOTHING} for name in names}}


def unless_nonfinite(name: str, allowed: dict[str, Any]) -> dict[str, Any]:
    """In JSON Schema: `allowed` holds for a field that `nonfinite` does not name."""
    named = {"contains": {"type": "string", "pattern": f"^{name}[:.\\[]"}}
    return {
        "if": {"properties": {"nonfinite": named}, "required": ["nonfinite"]},
        "else": {"properties": {name: allowed}},
    }
