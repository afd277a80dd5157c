"""Nested data by dotted key: `{"a": {"b": 1}}` is `{"a.b": 1}`."""

from typing import Any


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one with dotted keys; an empty dict is a value."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return found
