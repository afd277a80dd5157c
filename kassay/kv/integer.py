"""The integer formats: symmetric ones around zero, and INT4 above the minimum of its group.

Axes: D head dim (the last axis of an operand), G = D / group_size groups.

    symmetric    code = nearest-even(x / scale)               x' = code * scale
    minimum      code = nearest-even((x - minimum) / scale)   x' = code * scale + minimum

Every operation is FP32 and rounded by itself: x - minimum, the quotient, the product, the sum (no fused
multiply-add). Codes are two's complement where the format is signed; a signed one ends at -largest, so that -x
has the code of x negated and the lowest pattern (-128, -32, -8) is never written. There is no negative zero.

A group is `group_size` consecutive elements of D with one FP32 scale (and minimum). These lie in planes of
their own, of shape ...G, beside the codes; nothing is interleaved. Two 4-bit codes share a byte: element 2i in
the low nibble (bits 0-3), 2i + 1 in the high one.

An integer has no code for NaN, infinity or overflow: NaN raises in either mode; values beyond the range clip to
the end if the conversion saturates (infinities too), else raise. They never wrap.

Sources: INT4, groups of 32 along D, amax / 7 and also (max - min) / 15 with the minimum beside: mcgrof/knlp
(quantize_int4_grouped, quantize_kv_int4) and KIVI, Liu et al. 2024, arXiv:2402.02750, section 3; KIVI groups keys along
tokens: there move T last. Their floor and division by the largest are replaced by our scale rule (kassay.kv.formats).
INT6 keys: the sensitivity screen; one code a byte here.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kassay.errors import KassayError
from kassay.kv.rounding import EXPONENT_BIAS, FRACTION_BITS, INFINITY, Floats, exponents, magnitudes, nearest_even

Codes = npt.NDArray[np.uint8]
SIDE_BITS = 32  # of a scale or a minimum: FP32


@dataclass(frozen=True, kw_only=True)
class Integer:
    """One integer format."""

    name: str
    bits: int
    lowest: int  # code value that the encoder writes
    largest: int
    group_size: int | None  # elements of the last axis that share what lies beside; None: the caller's scale broadcasts
    beside: tuple[Literal["scale", "minimum"], ...]  # FP32 planes beside the codes, ...G each where there are groups
    packing: Literal["byte", "low_nibble_first"]

    def __post_init__(self) -> None:
        if "minimum" in self.beside and self.group_size is None:
            raise KassayError(f"format `{self.name}`: a minimum needs a group_size")
        if self.group_size is not None and (self.group_size < 2 or self.group_size % 2):
            raise KassayError(f"format `{self.name}`: group_size is {self.group_size}, allowed is an even one from 2")

    @property
    def bits_per_element(self) -> float:
        """Stored bits of one element: its code and, where there are groups, its part of what lies beside."""
        stored = self.bits if self.packing == "low_nibble_first" else 8
        return stored + (SIDE_BITS * len(self.beside) / self.group_size if self.group_size else 0.0)


INT8 = Integer(name="int8", bits=8, lowest=-127, largest=127, group_size=None, beside=("scale",), packing="byte")
INT6 = Integer(name="int6", bits=6, lowest=-31, largest=31, group_size=None, beside=("scale",), packing="byte")
INT4 = Integer(
    name="int4-g32", bits=4, lowest=-7, largest=7, group_size=32, beside=("scale",), packing="low_nibble_first"
)
INT4_UNGROUPED = replace(INT4, name="int4", group_size=None)  # the caller's scale: one for a token and head
INT4_MINIMUM = Integer(
    name="int4-minimum-g32",
    bits=4,
    lowest=0,
    largest=15,
    group_size=32,
    beside=("scale", "minimum"),
    packing="low_nibble_first",
)


def grouped(format: Integer, group_size: int) -> Integer:
    """The format with groups of `group_size` elements. Raises KassayError for an odd one."""
    return replace(format, name=f"{format.name.split('-g')[0]}-g{group_size}", group_size=group_size)


def code_value(format: Integer, code: int) -> float:
    """The value of a code, 0..255 or 0..15 in a nibble, from its bits; NaN for a byte that no element has."""
    signed = format.lowest < 0
    width = 4 if format.packing == "low_nibble_first" else 8
    value = code - (1 << width) if signed and code >> (width - 1) else code
    low, high = (-(1 << format.bits >> 1), 1 << format.bits >> 1) if signed else (0, 1 << format.bits)
    return float(value) if low <= value < high else float("nan")


@cache
def table(format: Integer) -> Floats:
    """The value of every code: 256 (16 in a nibble) in FP32, exact, read-only."""
    size = 16 if format.packing == "low_nibble_first" else 256
    values = np.array([code_value(format, code) for code in range(size)], dtype=np.float32)
    values.flags.writeable = False
    return values


def encoded(format: Integer, x: Floats, *, saturate: bool) -> Codes:
    """Codes (uint8, one an element, shape of x) of FP32 values. Raises KassayError as the module says."""
    magnitude = magnitudes(x)
    if count := int(np.count_nonzero(magnitude > INFINITY)):
        raise KassayError(f"format `{format.name}` has no NaN: {count} of {x.size} values are NaN")
    if not saturate and (count := int(np.count_nonzero(beyond_range(format, x)))):
        raise KassayError(
            f"format `{format.name}`: {count} of {x.size} values round beyond {format.lowest}..{format.largest}, "
            "which only a saturating conversion takes"
        )
    steps = np.minimum(rounded(magnitude), np.uint32(format.largest)).astype(np.int32)
    signed = np.maximum(np.where(np.signbit(x), -steps, steps), format.lowest)
    return np.asarray((signed & (0xF if format.packing == "low_nibble_first" else 0xFF)).astype(np.uint8))


def rounded(magnitude: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Nearest integers, ties to even, of FP32 magnitudes (bits); 2^22 or more stands for all from 2^22."""
    return nearest_even(magnitude, EXPONENT_BIAS + FRACTION_BITS - exponents(magnitude))


def beyond_range(format: Integer, x: Floats) -> npt.NDArray[np.bool_]:
    """Where a value rounds beyond the ends (shape of x): what saturation changes. False for NaN."""
    magnitude = magnitudes(x)
    end = np.where(np.signbit(x), np.uint32(-format.lowest), np.uint32(format.largest))
    return np.asarray((rounded(magnitude) > end) & (magnitude <= INFINITY))


def packed(codes: Codes) -> Codes:
    """Bytes (...D/2) of 4-bit codes (...D, D even): element 2i low, 2i + 1 high."""
    return np.asarray(codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4)))


def unpacked(codes: Codes) -> Codes:
    """4-bit codes (...D) of bytes (...D/2)."""
    apart = np.stack((codes & np.uint8(0xF), codes >> np.uint8(4)), axis=-1)
    return apart.reshape(*codes.shape[:-1], 2 * codes.shape[-1])


def spread(format: Integer, plane: Floats, x: npt.NDArray[Any]) -> Floats:
    """A plane beside (...G) at every element of x (...D); unchanged where there are no groups."""
    if format.group_size is None:
        return plane
    wanted = (*x.shape[:-1], x.shape[-1] // format.group_size)
    if plane.shape != wanted or x.shape[-1] % format.group_size:
        raise KassayError(
            f"format `{format.name}`: elements {x.shape} need a scale of shape {wanted} and a last axis that is a "
            f"multiple of {format.group_size}, got {plane.shape}"
        )
    return np.repeat(plane, format.group_size, axis=-1)
