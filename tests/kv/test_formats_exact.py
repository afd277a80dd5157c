"""Every format's rounding against exact rationals: all 16-bit inputs, and 10 million of FP32.

The reference knows a format by its definition only: the rational values of its codes, in order. The code of a
magnitude is then a search among the exact midpoints. Every midpoint is an FP32 value, and FP32 magnitudes are
ordered as their bits are, so for 10 million inputs the search is one among integers; it is itself held against
Fraction on a sample.
"""

from bisect import bisect_left
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

from kassay.kv import float8, formats, integer

ONE = np.float32(1)
NEIGHBOURS = np.arange(-64, 65)
CHUNKS, CHUNK = 20, 500_000  # 10 million FP32 inputs

# exponent bits, mantissa bits, bias, code of the largest, code beyond without saturation, code of NaN, has -0
DEFINED = {
    "e4m3fn": (4, 3, 7, 0x7E, 0x7F, 0x7F, True),
    "e5m2": (5, 2, 15, 0x7B, 0x7C, 0x7F, True),
    "e4m3fnuz": (4, 3, 8, 0x7F, 0x80, 0x80, False),
}
INTEGERS = {"int8": 127, "int6": 31, "int4-g32": 7, "int4-minimum-g32": 15}


def float_grid(name):
    """Magnitudes of the finite codes in order, then the one that would follow, from the definition."""
    _, mantissa_bits, bias, largest = DEFINED[name][:4]
    steps = 1 << mantissa_bits
    found = []
    for code in range(largest + 2):
        exponent, mantissa = divmod(code, steps)
        significand = Fraction(mantissa, steps) + (1 if exponent else 0)
        found.append(significand * Fraction(2) ** (max(exponent, 1) - bias))
    return found


GRIDS = {name: float_grid(name) for name in DEFINED} | {
    name: [Fraction(value) for value in range(largest + 2)] for name, largest in INTEGERS.items()
}


def exact_code(grid, magnitude):
    """Index of the nearest value of a grid, ties to the even index; the last one stands for all beyond."""
    above = bisect_left(grid, magnitude)
    if above == len(grid):
        return above - 1
    if grid[above] == magnitude:
        return above
    down, up = magnitude - grid[above - 1], grid[above] - magnitude
    return above - 1 if down < up or (down == up and above % 2) else above


def bits_of(value):
    """Bits of a rational that FP32 holds exactly."""
    held = np.float32(float(value))
    assert Fraction(float(held)) == value
    return int(held.view(np.uint32))


def boundaries(grid):
    """Bits of the smallest FP32 magnitude that belongs to each code but the first."""
    middles = [(low + high) / 2 for low, high in pairwise(grid)]
    return np.array([bits_of(middle) + (index % 2 == 0) for index, middle in enumerate(middles)], dtype=np.uint32)


def searched_code(grid, x):
    """`exact_code` of FP32 values (NaN: any number) by one search among bits."""
    return np.searchsorted(boundaries(grid), x.view(np.uint32) & 0x7FFFFFFF, side="right")


def float_codes(name, unsigned, x, saturate):
    """The codes that a float format must have, from `exact_code` of the magnitudes."""
    largest, beyond, nan, negative_zero = DEFINED[name][3:]
    code = np.where(unsigned > largest, largest if saturate else beyond, unsigned)
    code = np.where(np.signbit(x) & (negative_zero | (code != 0)), code | 0x80, code)
    return np.where(np.isnan(x), nan, code).astype(np.uint8)


def integer_codes(name, unsigned, x):
    """The codes that a saturating integer format must have, one an element."""
    largest = INTEGERS[name]
    lowest, mask = 0 if "minimum" in name else -largest, 0xF if name.startswith("int4") else 0xFF
    value = np.where(np.signbit(x), -1, 1) * np.minimum(unsigned, largest)
    return (np.maximum(value, lowest) & mask).astype(np.uint8)


def specials():
    """Zeros, infinities, NaN of both signs and several payloads, subnormals, the ends of FP32."""
    bits = [0, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF]
    return np.array([*bits, *(bit | 0x80000000 for bit in bits)], dtype=np.uint32)


def neighbourhoods():
    """Every midpoint and every value of every format, 64 FP32 steps to either side, both signs."""
    centres = []
    for grid in GRIDS.values():
        centres += [bits_of(value) for value in grid[1:]]
        centres += [bits_of((low + high) / 2) for low, high in pairwise(grid)]
    near = (np.unique(np.array(centres))[:, None] + NEIGHBOURS).astype(np.uint32).ravel()
    return np.concatenate((near, near | np.uint32(0x80000000)))


def chunk(number):
    """FP32 inputs: half any bits, half of exponents -20..17; the first chunk holds all that is special too."""
    rng = np.random.default_rng([20261020, number])
    bits = rng.integers(0, 2**32, CHUNK, dtype=np.uint32)
    exponent = rng.integers(127 - 20, 127 + 18, CHUNK // 2, dtype=np.uint32)
    bits[::2] = (bits[::2] & np.uint32(0x807FFFFF)) | (exponent << np.uint32(23))
    if number == 0:
        bits = np.concatenate((bits, specials(), neighbourhoods()))
    return bits.view(np.float32)


def sixteen_bits(kind):
    """All 65,536 values of a 16-bit type, in FP32."""
    patterns = np.arange(65536, dtype=np.uint16)
    return formats.fp32(patterns.view(np.float16 if kind == "fp16" else ml_dtypes.bfloat16))


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("name", GRIDS)
def test_all_16_bit_inputs_against_fractions(name, kind):
    x = sixteen_bits(kind)
    positive = [Fraction(float(value)) if np.isfinite(value) else Fraction(2) ** 200 for value in x[:32768]]
    unsigned = np.array([exact_code(GRIDS[name], value) for value in positive] * 2)
    if name in DEFINED:
        for saturate in (True, False):
            expected = float_codes(name, unsigned, x, saturate)
            got = formats.encode(formats.FORMATS[name], x, ONE, saturate=saturate)
            np.testing.assert_array_equal(got, expected)
    else:
        numbers = ~np.isnan(x)
        got = integer.encoded(formats.FORMATS[name], x[numbers], saturate=True)
        np.testing.assert_array_equal(got, integer_codes(name, unsigned[numbers], x[numbers]))
        inside = numbers & (unsigned <= INTEGERS[name]) & ((x >= -0.5) | ("minimum" not in name))
        got = integer.encoded(formats.FORMATS[name], x[inside], saturate=False)
        np.testing.assert_array_equal(got, integer_codes(name, unsigned[inside], x[inside]))


@pytest.mark.parametrize("name", GRIDS)
def test_the_search_among_bits_is_that_among_fractions(name):
    rng = np.random.default_rng(7)
    x = np.concatenate((chunk(1)[:4000], rng.choice(neighbourhoods(), 4000).view(np.float32)))
    x = np.abs(x[np.isfinite(x)])
    expected = [exact_code(GRIDS[name], Fraction(float(value))) for value in x]
    np.testing.assert_array_equal(searched_code(GRIDS[name], x), expected)


@pytest.mark.parametrize("name", DEFINED)
def test_ten_million_fp32_inputs_in_float_formats(name):
    """Exact in both modes; ml_dtypes equals the non-saturating one in all but the sign and payload of NaN."""
    format, seen = formats.FORMATS[name], set()
    for number in range(CHUNKS):
        x = chunk(number)
        unsigned = searched_code(GRIDS[name], x)
        for saturate in (True, False):
            got = formats.encode(format, x, ONE, saturate=saturate)
            np.testing.assert_array_equal(got, float_codes(name, unsigned, x, saturate))
        with np.errstate(invalid="ignore"):
            other = x.astype(getattr(ml_dtypes, f"float8_{name}")).view(np.uint8)
        nan = np.isnan(x)
        np.testing.assert_array_equal(got[~nan], other[~nan])
        assert np.isnan(float8.table(format)[other[nan]]).all()
        seen.update(np.unique(got).tolist())
    assert set(range(256)) - seen == set(format.nan_codes) - {0x7F, 0x80, *((0xFF,) if name == "e4m3fn" else ())}


@pytest.mark.parametrize("name", ["int8", "int4-g32", "int4-minimum-g32"])
def test_ten_million_fp32_inputs_in_integer_formats(name):
    format, seen = formats.FORMATS[name], set()
    for number in range(CHUNKS):
        x = chunk(number)
        x = x[~np.isnan(x)]
        expected = integer_codes(name, searched_code(GRIDS[name], x), x)
        np.testing.assert_array_equal(integer.encoded(format, x, saturate=True), expected)
        seen.update(np.unique(expected).tolist())
    assert len(seen) == format.largest - format.lowest + 1
