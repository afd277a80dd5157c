"""The 8-bit floating-point formats, from their bits.

    code = S EEEE MMM (or S EEEEE MM)
    value = (-1)^S 2^(E - bias) (1 + M / 2^m)     E > 0
            (-1)^S 2^(1 - bias) (M / 2^m)         E = 0
    but infinities and NaN where the format says so

Sources: OCP 8-bit Floating Point Specification (OFP8) 1.0, 2023, tables 1 to 3, after Micikevicius et al. 2022,
"FP8 formats for deep learning", arXiv:2209.05433, for E4M3FN (there E4M3) and E5M2; Noune et al. 2022 (Graphcore),
arXiv:2206.02915, for E4M3FNUZ, which AMD's CDNA 3 computes in.

Conversion from FP32 rounds once to nearest even, as if exponents had no end, and then looks at the range:

                          E4M3FN        E5M2           E4M3FNUZ
    beyond, saturating    S.largest     S.largest      S.largest       infinities too
    beyond, else          S.1111.111    S.infinity     80 (NaN)        infinities too
    NaN, both             7F            7F             80              whatever its sign
    first beyond          464 < |x|     61440 <= |x|   248 <= |x|      a tie goes to the even code
    -0 and what rounds    80            80             00
    to it

NaN has one code: the sign of a NaN is the machine's whim (0/0 has it set on x86 and not on Arm).
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from kassay.kv.rounding import EXPONENT_BIAS, FRACTION_BITS, INFINITY, Floats, exponents, magnitudes, nearest_even

Codes = npt.NDArray[np.uint8]

SIGN = 0x80


@dataclass(frozen=True, kw_only=True)
class Float8:
    """One 8-bit floating-point format."""

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: float  # finite value
    smallest_normal: float
    smallest_subnormal: float
    largest_code: int  # of `largest`
    infinity_code: int | None  # of +infinity; None: the format has none
    nan_codes: tuple[int, ...]  # all that mean NaN
    nan_code: int  # the one that NaN is encoded as
    has_negative_zero: bool

    @property
    def has_infinity(self) -> bool:
        """Whether an infinity has a code."""
        return self.infinity_code is not None

    @property
    def bits_per_element(self) -> float:
        """Stored bits of one element without its scale, which the caller lays out."""
        return float(self.bits)


E4M3FN = Float8(
    name="e4m3fn",
    bits=8,
    exponent_bits=4,
    mantissa_bits=3,
    bias=7,
    largest=448.0,
    smallest_normal=2.0**-6,
    smallest_subnormal=2.0**-9,
    largest_code=0x7E,
    infinity_code=None,
    nan_codes=(0x7F, 0xFF),
    nan_code=0x7F,
    has_negative_zero=True,
)
E5M2 = Float8(
    name="e5m2",
    bits=8,
    exponent_bits=5,
    mantissa_bits=2,
    bias=15,
    largest=57344.0,
    smallest_normal=2.0**-14,
    smallest_subnormal=2.0**-16,
    largest_code=0x7B,
    infinity_code=0x7C,
    nan_codes=(0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF),
    nan_code=0x7F,
    has_negative_zero=True,
)
E4M3FNUZ = Float8(
    name="e4m3fnuz",
    bits=8,
    exponent_bits=4,
    mantissa_bits=3,
    bias=8,
    largest=240.0,
    smallest_normal=2.0**-7,
    smallest_subnormal=2.0**-10,
    largest_code=0x7F,
    infinity_code=None,
    nan_codes=(0x80,),
    nan_code=0x80,
    has_negative_zero=False,
)


def code_value(format: Float8, code: int) -> float:
    """The exact value of a code (0..255) from the format's definition; NaN and infinities included."""
    if code in format.nan_codes:
        return float("nan")
    sign = -1.0 if code & SIGN else 1.0
    if code & ~SIGN == format.infinity_code:
        return sign * float("inf")
    exponent = (code & ~SIGN) >> format.mantissa_bits
    mantissa = code & ((1 << format.mantissa_bits) - 1)
    leading = 1 << format.mantissa_bits if exponent else 0
    return float(sign * (leading + mantissa) * 2.0 ** (max(exponent, 1) - format.bias - format.mantissa_bits))


@cache
def table(format: Float8) -> Floats:
    """The value of every code: 256 in FP32, exact, read-only."""
    values = np.array([code_value(format, code) for code in range(256)], dtype=np.float32)
    values.flags.writeable = False
    return values


def encoded(format: Float8, x: Floats, *, saturate: bool) -> Codes:
    """Codes (uint8, shape of x) of any FP32 values, rounded once; the module's table says what lies beyond."""
    magnitude = magnitudes(x)
    code = rounded(format, magnitude)
    beyond = code > format.largest_code
    unsigned = np.where(beyond, format.largest_code if saturate else overflow_code(format), code)
    negative = np.signbit(x) if format.has_negative_zero else np.signbit(x) & (unsigned != 0)
    signed = np.where(negative, unsigned | SIGN, unsigned)
    return np.asarray(np.where(magnitude > INFINITY, format.nan_code, signed), dtype=np.uint8)


def overflow_code(format: Float8) -> int:
    """What a magnitude beyond the range becomes without saturation, before its sign."""
    return format.nan_code if format.infinity_code is None else format.infinity_code


def rounded(format: Float8, magnitude: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Codes without sign, as if exponent fields had no end, of FP32 magnitudes (bits).

    The exponent field is 1 or more here: a subnormal has the step of field 1 and no leading one. Where the
    significand rounds up to the next power of two, the carry runs into the exponent, which is right.
    """
    field = exponents(magnitude) - (EXPONENT_BIAS - format.bias)
    normal_field = np.maximum(field, 1)
    shift = normal_field - field + (FRACTION_BITS - format.mantissa_bits)
    steps = nearest_even(magnitude, shift)
    return np.asarray(steps + ((normal_field - 1) << format.mantissa_bits).astype(np.uint32))


def beyond_range(format: Float8, x: Floats) -> npt.NDArray[np.bool_]:
    """Where a value rounds beyond the largest (shape of x): what saturation changes. False for NaN."""
    magnitude = magnitudes(x)
    return np.asarray((rounded(format, magnitude) > format.largest_code) & (magnitude <= INFINITY))
