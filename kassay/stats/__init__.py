"""Bounds, tests, fits and gates that turn per-item records into verdicts.

Every module answers one question, works on numpy and scipy only, and returns a frozen record that names its
method, inputs, sidedness and alpha, so that a reader can re-derive the number. Nothing here reads a file,
knows a model or rounds a value: rounding could turn a miss into a pass.

This module holds what all the others share: the error of data that no statistic may be computed from, and
the checks of arguments. Every check is written so that NaN fails it.
"""

import math
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from kassay.errors import KassayError

Sidedness = Literal["one-sided", "two-sided"]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class InvalidData(KassayError):
    """The data or the plan's numbers allow no statistic: a missing arm or item, a NaN, a count that differs.

    It is neither a failed gate nor an unestablished one: nothing was measured that a verdict could rest on.
    """


def require_level(value: float, name: str) -> None:
    """Raise InvalidData unless `value` is a number strictly between 0 and 1: an alpha, a margin, a rate."""
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction) or not 0 < value < 1:
        raise InvalidData(f"`{name}` is `{value!r}`, allowed is a number strictly between 0 and 1")


def require_count(value: int, name: str, *, least: int) -> None:
    """Raise InvalidData unless `value` is an integer (never a bool or a float) of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not value >= least:
        raise InvalidData(f"`{name}` is `{value!r}`, allowed is an integer of at least {least}")


def require_finite(value: float, name: str) -> None:
    """Raise InvalidData unless `value` is a finite number: a NaN is neither zero nor missing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidData(f"`{name}` is `{value!r}`, allowed is a finite number")


def require_part(events: int, n: int, name: str) -> None:
    """Raise InvalidData unless 0 <= `events` <= `n` and `n` >= 1: zero items are no data, not a pass."""
    require_count(n, "n", least=1)
    require_count(events, name, least=0)
    if events > n:
        raise InvalidData(f"`{name}` is {events} of n = {n}, allowed is at most n")
