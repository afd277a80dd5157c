"""A record of any kind by a few of its values, and which changes of them contradict each other."""

import json
import typing
from dataclasses import dataclass, field, fields
from typing import Any

from kassay.record import Record, plain

PLAIN: dict[Any, Any] = {str: "x", int: 1, float: 1.0, bool: False, Any: "1", list: [], dict: {}}
Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What goes together in one kind, by example."""

    base: Values  # beside the plain values of their types, a record that is legal
    legal: list[Values] = field(default_factory=list)  # changes of it that are, too
    broken: list[tuple[Values, str]] = field(default_factory=list)  # that are not, each with words of the message


def values_of(kind: type[Record], base: Values, changes: Values) -> Values:
    """All values of a record: a plain one of its type where none is given, null where that is allowed."""
    hints = typing.get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    assert set(base) | set(changes) <= set(names), f"{kind.__name__} has no {set(base) | set(changes) - set(names)}"
    return {name: (base | changes).get(name, plain_value(hints[name])) for name in names}


def plain_value(hint: Any) -> Any:
    """A value of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if type(None) in parts:
        return None
    return PLAIN[origin or hint] if origin is not typing.Literal else parts[0]


def line_of(kind: type[Record], values: Values) -> Values:
    """The line of a record that could not be made, as another program might write it."""
    nonfinite: list[str] = []
    body = {"schema": kind.schema, **{name: plain(value, name, nonfinite) for name, value in values.items()}}
    found: Values = json.loads(json.dumps(body | ({"nonfinite": nonfinite} if nonfinite else {})))
    return found
