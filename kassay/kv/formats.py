"""Stored formats exactly: how a 16-bit operand becomes codes and FP32 scales, and back. numpy only.

    scale = max(fp32 |x|_max, 1e-12) * fp32(1/largest)
    code  = nearest-even(clip(fp32 x / scale, -largest, largest))          one rounding, from FP32
    x'    = fp32(code) * scale

Four FP32 operations, each rounded by itself; the reciprocal is rounded too and multiplied with, which is not the
quotient by `largest` (1 ulp apart for 55 % of the mantissas with 448). The formats, their bits, ties, overflow,
NaN and zeros are in kassay.kv.float8 (E4M3FN, E5M2, E4M3FNUZ) and kassay.kv.integer (INT8, INT6, INT4); the rounding
is ours, on the bits of FP32, so it is the same whatever torch or ml_dtypes is installed.

`saturate` is said in every call. The recipes of kassay.kv.recipe saturate: that is the clip, as clipping before
and after nearest even are the same where `largest` is a value of the format. Else what rounds beyond the range becomes
the format's infinity or NaN, and an error in an integer format. A NaN operand stays NaN or raises, in both.

What torch does with a value beyond the range depends on its version and device, and ml_dtypes never saturates.
kassay.kv.cache has the rule for E4M3FN in torch, with the clip; a test holds them equal bit for bit.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kassay.errors import KassayError
from kassay.kv import float8, integer
from kassay.kv.float8 import E4M3FN, E4M3FNUZ, E5M2, Float8
from kassay.kv.integer import INT4, INT4_MINIMUM, INT4_UNGROUPED, INT6, INT8, Integer
from kassay.kv.rounding import Floats, fp32

Codes = npt.NDArray[np.uint8]
NumberFormat = Float8 | Integer

FORMATS: dict[str, NumberFormat] = {
    each.name: each for each in (E4M3FN, E5M2, E4M3FNUZ, INT8, INT6, INT4, INT4_MINIMUM, INT4_UNGROUPED)
}
SCALE_FLOOR = 1e-12


def reciprocal(format: NumberFormat) -> np.float32:
    """fp32(1/largest): part of the rule, not an error. For E4M3FN 0x1.24924ap-9, 4.47e-8 above 1/448."""
    return np.float32(1.0 / format.largest)


LARGEST = E4M3FN.largest  # for kassay.kv.cache, whose 8-bit format is E4M3FN
RECIPROCAL = reciprocal(E4M3FN)


def format_named(name: str) -> NumberFormat:
    """The format of that name. Raises KassayError that lists the allowed ones."""
    if name not in FORMATS:
        raise KassayError(f"unknown format `{name}`, allowed are {', '.join(FORMATS)}")
    return FORMATS[name]


def scale_of(format: NumberFormat, extent: Floats) -> Floats:
    """FP32 scale (shape of extent) of a largest absolute value, or of max - min where the format has a minimum.

    Raises KassayError unless every extent is finite and 0 or more: a NaN is no extent. For 0 it is the floor's
    scale, 2.2321430e-15 in E4M3FN, so zeros encode to zeros.
    """
    wide = fp32(extent)
    if not np.all((wide >= 0) & (wide < np.inf)):
        raise KassayError("a scale needs a finite largest absolute value of 0 or more: calibrate on finite operands")
    return np.asarray(np.maximum(wide, np.float32(SCALE_FLOOR)) * reciprocal(format), dtype=np.float32)


def group_planes(format: Integer, x: npt.NDArray[Any]) -> tuple[Floats, Floats | None]:
    """Scale and minimum (None for a symmetric format), each FP32 ...G, of operands x (...D, FP16, BF16 or FP32).

    Raises KassayError for a format without groups, another D, or a value that is not finite.
    """
    if format.group_size is None or x.shape[-1] % format.group_size:
        raise KassayError(f"format `{format.name}` has groups of {format.group_size}: a last axis of {x.shape[-1]}")
    grouped_GE = fp32(x).reshape(*x.shape[:-1], -1, format.group_size)
    if "minimum" not in format.beside:
        return scale_of(format, np.abs(grouped_GE).max(axis=-1)), None
    minimum = grouped_GE.min(axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):  # scale_of refuses what comes of it
        extent = grouped_GE.max(axis=-1) - minimum
    return scale_of(format, extent), minimum


def encode(
    format: NumberFormat, x: npt.NDArray[Any], scale: Floats, *, saturate: bool, minimum: Floats | None = None
) -> Codes:
    """Codes (uint8) of operands x (FP16, BF16 or FP32; any values): shape of x, or ...D/2 where two share a byte.

    `scale` is FP32, finite and above 0, and broadcasts against x (...G in a format with groups, like `minimum`).
    Raises KassayError for another scale, and in an integer format for NaN and, without saturation, for values
    beyond the range.
    """
    quotient = quotients(format, x, scale, minimum)
    if isinstance(format, Float8):
        return float8.encoded(format, quotient, saturate=saturate)
    codes = integer.encoded(format, quotient, saturate=saturate)
    return integer.packed(codes) if format.packing == "low_nibble_first" else codes


def decode(format: NumberFormat, codes: Codes, scale: Floats, *, minimum: Floats | None = None) -> Floats:
    """FP32 values of codes, shapes as in `encode`: the exact code value times the scale, rounded, plus the minimum.

    NaN and infinities of the format come back as such, and what FP32 cannot hold as an infinity. Raises KassayError
    for codes that are not uint8 and for a scale or minimum that `encode` would not take.
    """
    if codes.dtype != np.uint8:
        raise KassayError(f"format `{format.name}`: codes are uint8, got {codes.dtype}")
    scale = checked_scale(format, scale)
    least = checked_minimum(format, minimum)
    with np.errstate(over="ignore", under="ignore"):
        if isinstance(format, Float8):
            return np.asarray(float8.table(format)[codes] * scale, dtype=np.float32)
        apart = integer.unpacked(codes) if format.packing == "low_nibble_first" else codes
        values = integer.table(format)[apart] * integer.spread(format, scale, apart)
        if least is not None:
            values = values + integer.spread(format, least, apart)
    return np.asarray(values, dtype=np.float32)


def saturated(
    format: NumberFormat, x: npt.NDArray[Any], scale: Floats, *, minimum: Floats | None = None
) -> npt.NDArray[np.bool_]:
    """Where saturation changes a value (shape of x): its quotient rounds beyond the range. False for NaN."""
    quotient = quotients(format, x, scale, minimum)
    if isinstance(format, Float8):
        return float8.beyond_range(format, quotient)
    return integer.beyond_range(format, quotient)


def quotients(format: NumberFormat, x: npt.NDArray[Any], scale: Floats, minimum: Floats | None) -> Floats:
    """x / scale, or (x - minimum) / scale, in FP32; beyond FP32 it is infinite. Raises KassayError like `encode`."""
    divisor, operand = checked_scale(format, scale), fp32(x)
    least = checked_minimum(format, minimum)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if isinstance(format, Integer):
            divisor = integer.spread(format, divisor, operand)
            if least is not None:
                operand = operand - integer.spread(format, least, operand)
        return np.asarray(np.divide(operand, divisor, dtype=np.float32))


def checked_scale(format: NumberFormat, scale: Floats) -> Floats:
    """The scale, which is FP32, finite and above 0; else KassayError."""
    held = np.asarray(scale)
    if held.dtype != np.float32 or not np.all((held > 0) & (held < np.inf)):
        raise KassayError(f"format `{format.name}`: a scale is FP32, finite and above 0")
    return held


def checked_minimum(format: NumberFormat, minimum: Floats | None) -> Floats | None:
    """The minimum, which is there exactly if the format has one, finite and FP32; else KassayError."""
    wanted = isinstance(format, Integer) and "minimum" in format.beside
    if wanted != (minimum is not None):
        raise KassayError(f"format `{format.name}` {'needs a' if wanted else 'has no'} minimum")
    if minimum is not None and (minimum.dtype != np.float32 or not np.all(np.isfinite(minimum))):
        raise KassayError(f"format `{format.name}`: a minimum is FP32 and finite")
    return minimum
