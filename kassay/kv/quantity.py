"""Quantities as people write them, read exactly: no float stands between the text and the number.

`40GiB` is 40 * 2^30 bytes, `40GB` 40 * 10^9, `42949672960` bytes; `1.5GiB` is exact too, and what is no whole
number of bytes is refused. `40G` is refused, because half of all tools mean the one and half the other.
"""

import re
from fractions import Fraction

from kassay.errors import ConfigError

BYTES = (
    {"": 1, "B": 1}
    | {f"{letter}B": 1000**power for power, letter in enumerate("kMGT", start=1)}
    | {f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)}
)
SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6)}
NUMBER = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[A-Za-z%]*)", re.ASCII)


def split(text: str) -> tuple[Fraction, str] | None:
    """The number and its unit, or nothing if the text is no quantity."""
    match = NUMBER.fullmatch(text.strip())
    return None if match is None else (Fraction(match["number"]), match["unit"])


def byte_count(name: str, text: str) -> int:
    """Bytes; raises ConfigError for another unit and for a part of a byte."""
    found = split(text)
    if found is None or found[1] not in BYTES:
        raise ConfigError(
            f"{name} is `{text}`, allowed are bytes, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (of 1024)",
            hint=f"{name}=40GiB",
        )
    size = found[0] * BYTES[found[1]]
    if size.denominator != 1:
        raise ConfigError(f"{name} is `{text}`, which is no whole number of bytes", hint=f"{name}={int(size)}")
    return int(size)


def seconds(name: str, text: str) -> Fraction:
    """Seconds above 0, from `10ms`, `1s` or `250us`; raises ConfigError."""
    found = split(text)
    if found is None or found[1] not in SECONDS or not found[0]:
        raise ConfigError(f"{name} is `{text}`, allowed is a time above 0 in s, ms or us", hint=f"{name}=10ms")
    return found[0] * SECONDS[found[1]]


def share(name: str, text: str) -> Fraction:
    """A share from 0 to 1, from `0.25`, `25%` or `1/4`; raises ConfigError."""
    over = re.fullmatch(r"([0-9]+)/([1-9][0-9]*)", text.strip(), re.ASCII)
    found = (Fraction(int(over[1]), int(over[2])), "") if over else split(text)
    value = None if found is None or found[1] not in ("", "%") else found[0] / (100 if found[1] else 1)
    if value is None or value > 1:
        raise ConfigError(f"{name} is `{text}`, allowed is 0 to 1, such as 0.25, 25% or 1/4", hint=f"{name}=1")
    return value


def count(name: str, text: str) -> int:
    """A whole number of at least 1; raises ConfigError."""
    if not re.fullmatch(r"[0-9]+", text, re.ASCII) or not int(text):
        raise ConfigError(f"{name} is `{text}`, allowed is a whole number of at least 1", hint=f"{name}=16")
    return int(text)
