"""A plain mapping read into frozen dataclasses, strictly: every fault is told, with the dotted key at which it stands.

`said("meaning", …)` declares a field with its one-sentence meaning and its bounds. Unknown and lacking keys, another
type and a value out of its bounds are faults. A value `???` must still be given: it is no fault of the form, is listed
apart with the field's meaning, and reads as OPEN.
"""

import dataclasses
import math
import operator
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kassay.config.tree import nearest

MISSING = "???"
NAME = re.compile(r"[A-Za-z][\w+-]*")  # as SET can name it: no dot, and no digit first


class Open:
    """A value that must still be given."""

    def __repr__(self) -> str:
        return "???"


OPEN: Any = Open()


@dataclass
class Faults:
    """What was found while a mapping was read."""

    wrong: dict[str, str] = field(default_factory=dict)  # dotted key -> what is wrong
    missing: dict[str, str] = field(default_factory=dict)  # dotted key -> meaning of the value that must be given

    def add(self, key: str, text: str) -> None:
        """One more fault of a key; the first one of a key stays first."""
        self.wrong[key] = f"{self.wrong[key]}; {text}" if key in self.wrong else text


def said(
    meaning: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    among: Any = None,
    by: Any = None,
    optional: bool = False,
    dotted: bool = False,
) -> Any:
    """A field: its meaning, bounds of its numbers, allowed words, and the class of each tag (`by`).

    An `optional` section may be left out; the names of a `dotted` one are keys of the study.
    """
    rule = {"least": least, "most": most, "above": above, "below": below, "among": among, "by": by, "dotted": dotted}
    return dataclasses.field(metadata={"doc": meaning, "rule": rule, "optional": optional})


def read(cls: type[Any], body: Any, key: str, faults: Faults) -> Any:
    """An instance of `cls`, or OPEN where it cannot be made; what is wrong goes into `faults`."""
    if body == MISSING:
        return OPEN
    if not isinstance(body, dict):
        faults.add(key, f"is {shown(body)}, allowed is a mapping of {', '.join(names_of(cls))}")
        return OPEN
    hints = typing.get_type_hints(cls)
    known = names_of(cls)
    for name in [str(name) for name in body if name not in known]:
        faults.add(joined(key, name), f"unknown key{nearest(name, known)}")
    values = {}
    for one in dataclasses.fields(cls):
        where = joined(key, one.name)
        if one.name in body:
            values[one.name] = value_of(hints[one.name], body[one.name], where, faults, one.metadata)
        elif one.metadata["optional"]:
            values[one.name] = None
        else:
            faults.add(where, f"is not there: {one.metadata['doc']}")
            values[one.name] = OPEN
    return cls(**values)


def names_of(cls: type[Any]) -> list[str]:
    """The keys of a class."""
    return [one.name for one in dataclasses.fields(cls)]


def joined(key: str, name: str) -> str:
    """A dotted key."""
    return f"{key}.{name}" if key else name


def value_of(kind: Any, value: Any, key: str, faults: Faults, told: Any) -> Any:
    """A value of an annotated type."""
    if value == MISSING:
        faults.missing[key] = told["doc"]
        return OPEN
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value is None:
        if types.NoneType not in members:
            faults.add(key, f"is null, allowed is {words_of(kind)}")
            return OPEN
        return None
    solid = [member for member in members if member is not types.NoneType]
    fitting = [member for member in solid if fits(member, value)]
    if not fitting:
        faults.add(key, f"is {shown(value)}, allowed is {words_of(kind)}")
        return OPEN
    return content(fitting[0], value, key, faults, told)


def fits(kind: Any, value: Any) -> bool:
    """Whether a value has the outer form of a type."""
    outer = typing.get_origin(kind) or kind
    if outer is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if outer is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if outer in (str, bool, list, dict):
        return isinstance(value, outer)
    return isinstance(value, dict)  # a section


def content(kind: Any, value: Any, key: str, faults: Faults, told: Any) -> Any:
    """What a value of the right outer form holds."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is list:
        if len({repr(item) for item in value}) < len(value) and inner[0] is str:
            faults.add(key, "names one twice")
        return [value_of(inner[0], item, f"{key}[{place}]", faults, told) for place, item in enumerate(value)]
    if typing.get_origin(kind) is dict:
        return {name: member(inner[1], name, item, joined(key, name), faults, told) for name, item in value.items()}
    if by := told["rule"]["by"]:
        return tagged(by, value, key, faults)
    if dataclasses.is_dataclass(kind):
        return read(typing.cast(type[Any], kind), value, key, faults)
    if fault := out_of_bounds(value, told["rule"]):
        faults.add(key, fault)
    return value


def member(kind: Any, name: Any, item: Any, key: str, faults: Faults, told: Any) -> Any:
    """One named member of a mapping."""
    parts = str(name).split("." if told["rule"]["dotted"] else ":")
    if not isinstance(name, str) or not all(NAME.fullmatch(part) for part in parts):
        faults.add(key, "a name is letters, digits, `_`, `+` and `-`")
    return value_of(kind, item, key, faults, told)


def tagged(by: tuple[str, dict[str, type[Any]]], body: dict[str, Any], key: str, faults: Faults) -> Any:
    """A section whose class its own tag says."""
    tag, classes = by
    word = body.get(tag)
    if not isinstance(word, str) or word not in classes:
        allowed = f"allowed are {', '.join(classes)}{nearest(str(word), list(classes))}"
        faults.add(joined(key, tag), f"is {shown(word)}, {allowed}")
        return OPEN
    return read(classes[str(word)], body, key, faults)


def out_of_bounds(value: Any, rule: dict[str, Any]) -> str:
    """What is wrong with a scalar, or an empty string."""
    if rule["among"] is not None and isinstance(value, str) and value not in rule["among"]:
        words = list(rule["among"])
        return f"is `{value}`, allowed are {', '.join(words)}{nearest(value, words)}"
    if isinstance(value, str):
        return "" if value.strip() else "is empty"
    if isinstance(value, bool):
        return ""
    if not math.isfinite(value):
        return f"is {value}, allowed is a finite number"
    bounds: list[tuple[str, Callable[[float, float], bool], str]] = [
        ("least", operator.ge, "at least"),
        ("most", operator.le, "at most"),
        ("above", operator.gt, "above"),
        ("below", operator.lt, "below"),
    ]
    stated = [(rule[name], holds, word) for name, holds, word in bounds if rule[name] is not None]
    if all(holds(value, limit) for limit, holds, _ in stated):
        return ""
    return f"is {value}, allowed is {' and '.join(f'{word} {limit:g}' for limit, _, word in stated)}"


def words_of(kind: Any) -> str:
    """A type in words."""
    if isinstance(kind, types.UnionType):
        return " or ".join(words_of(member) for member in typing.get_args(kind))
    plain = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}
    outer = typing.get_origin(kind) or kind
    return plain.get(kind) or {list: "a list", dict: "a mapping of names"}.get(outer, "a mapping")


def shown(value: Any) -> str:
    """A value in a message."""
    text = str(value)
    return f"`{text if len(text) <= 40 else text[:37] + '...'}`"
