"""Nearest even on the bits of FP32: the one rounding that every format of kassay.kv.formats shares.

    |x| = significand * 2^(exponent - 150)        FP32: bias 127, 23 bits behind the leading one

Integer arithmetic only, so no library's cast, rounding mode or version is part of the result. FP32 subnormals
(below 2^-126) get a leading one that they do not have: every format here rounds them to zero either way, as
half of its smallest step is 2^-17 or more. Source: IEEE 754-2019, sections 3.4 and 4.3.1 (roundTiesToEven).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint32]

EXPONENT_BIAS = 127
FRACTION_BITS = 23
MAGNITUDE = np.uint32(0x7FFFFFFF)
FRACTION = np.uint32(0x007FFFFF)
LEADING_ONE = np.uint32(0x00800000)
INFINITY = np.uint32(0x7F800000)  # magnitudes above it are NaN
SMALLEST_SHIFT, LARGEST_SHIFT = 1, 25  # a significand has 24 bits: 25 places down, it is below one half


def magnitudes(x: Floats) -> Words:
    """Bits of |x| (shape of x): as unsigned integers they are ordered as the magnitudes are, NaN above all."""
    return np.asarray(x, order="C").view(np.uint32) & MAGNITUDE


def nearest_even(magnitude: Words, shift: npt.NDArray[np.int32]) -> Words:
    """significand / 2^shift to the nearest integer, ties to even; both shapes equal.

    Shifts beyond 1..25 are taken as 1 and 25: above, the result is 0 for either; below, it is 2^22 or more,
    beyond every format here.
    """
    places = np.clip(shift, SMALLEST_SHIFT, LARGEST_SHIFT).astype(np.uint32)
    significand = (magnitude & FRACTION) | LEADING_ONE
    below_half = (np.uint32(1) << (places - np.uint32(1))) - np.uint32(1)
    odd = (significand >> places) & np.uint32(1)
    return np.asarray((significand + below_half + odd) >> places)


def exponents(magnitude: Words) -> npt.NDArray[np.int32]:
    """The exponent field of each magnitude, 0..255; 255 for infinity and NaN."""
    return np.asarray((magnitude >> np.uint32(FRACTION_BITS)).astype(np.int32))


def fp32(x: npt.NDArray[Any]) -> Floats:
    """x in FP32, exactly: a type that FP32 does not hold raises TypeError, it would be rounded twice."""
    with np.errstate(invalid="ignore"):  # a signalling NaN stays a NaN
        return np.asarray(x).astype(np.float32, casting="safe", copy=False)
