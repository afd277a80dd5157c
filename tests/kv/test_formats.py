"""E4M3FN against exact rational arithmetic over every 16-bit input, and torch against numpy bit for bit."""

from bisect import bisect_left
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from kassay.kv import cache, formats

FP16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
BF16 = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
SCALES = (1.0, float(formats.RECIPROCAL), 0.0104806087911129, 0.146623894572258, 2.2321430e-15, 140.7)


def grid():
    """(value, code) of the finite non-negative codes in rising order, from the format's definition in rationals."""
    values = [Fraction(mantissa, 2**9) for mantissa in range(8)]
    values += [
        Fraction(8 + m, 8) * Fraction(2) ** (e - 7)
        for e in range(1, 16)
        for m in range(8)
        if (e, m) != (15, 7)
    ]
    return values


GRID = grid()


def nearest_even(x):
    """The code of a finite number by exact search: nearest value, ties to the even code, saturated."""
    magnitude = min(abs(Fraction(float(x))), GRID[-1])
    above = bisect_left(GRID, magnitude)
    if GRID[above] == magnitude:
        code = above
    else:
        down, up = magnitude - GRID[above - 1], GRID[above] - magnitude
        code = above - 1 if down < up or (down == up and (above - 1) % 2 == 0) else above
    return code | (0x80 if np.signbit(x) else 0)


def test_value_facts():
    table = formats.TABLE
    finite = table[np.isfinite(table)]
    assert (len(finite), len(set(finite.tolist())), int(np.isnan(table).sum())) == (254, 253, 2)
    assert (finite.max(), finite.min()) == (448.0, -448.0)
    assert [formats.code_value(0x08), formats.code_value(0x01)] == [2.0**-6, 2.0**-9]
    assert [float(value) for value in GRID] == table[:127].tolist()


def test_table_equals_ml_dtypes():
    other = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(
        formats.TABLE.view(np.uint32)[other == other], other.view(np.uint32)[other == other]
    )
    np.testing.assert_array_equal(np.isnan(formats.TABLE), np.isnan(other))


def test_the_clip_is_needed():
    cast = np.array([448.0, 464.0, 465.0], np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert cast[:2].tolist() == [448.0, 448.0]
    assert np.isnan(cast[2])
    assert formats.encode(np.array([465.0, -1e30], np.float32), np.float32(1)).tolist() == [0x7E, 0xFE]


@pytest.mark.parametrize("inputs", [FP16, BF16], ids=["fp16", "bf16"])
def test_encode_equals_exact_rational_rounding(inputs):
    finite = inputs[np.isfinite(inputs)]
    expected = np.array([nearest_even(x) for x in finite], dtype=np.uint8)
    np.testing.assert_array_equal(formats.encode(finite, np.ones(1, np.float32)), expected)


def test_encode_divides_in_fp32_and_rounds_once():
    x = FP16[np.isfinite(FP16)]
    scale = np.float32(0.0104806087911129)
    quotient = (x / scale).astype(np.float32)
    expected = np.array([nearest_even(q) for q in quotient], dtype=np.uint8)
    np.testing.assert_array_equal(formats.encode(x, scale), expected)


def test_ties_go_to_the_even_code():
    ties = np.array([float((GRID[i] + GRID[i + 1]) / 2) for i in range(126)], dtype=np.float32)
    assert formats.encode(ties, np.float32(1)).tolist() == [i + i % 2 for i in range(126)]


def test_decode_inverts_encode_on_every_code():
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], dtype=np.uint8)
    np.testing.assert_array_equal(formats.encode(formats.decode(codes, np.float32(1)), np.float32(1)), codes)


def test_the_reciprocal_is_pinned():
    assert float(formats.RECIPROCAL).hex() == "0x1.24924a0000000p-9"
    assert float(formats.RECIPROCAL) == 0.0022321429569274187
    assert float(formats.RECIPROCAL) * 448 - 1 == pytest.approx(4.47e-8, rel=1e-3)


def test_scale_is_not_the_quotient_by_448():
    mantissas = (np.arange(0, 2**23, dtype=np.uint32) | 0x3F800000).view(np.float32)
    scale = formats.scale_of(mantissas)
    divided = mantissas / np.float32(448)
    assert np.mean(scale == divided) == pytest.approx(0.452, abs=5e-4)
    assert np.abs(scale.view(np.int32) - divided.view(np.int32)).max() == 1
    assert set((mantissas / scale).tolist()) == {448.0, float(np.nextafter(np.float32(448), np.float32(0)))}


def test_a_zero_vector_has_the_floor_scale_and_zero_codes():
    scale = formats.scale_of(np.zeros(1, np.float32))
    assert scale[0] == pytest.approx(2.2321430e-15, rel=1e-7)
    assert formats.encode(np.zeros(4, np.float32), scale).tolist() == [0, 0, 0, 0]


def test_double_rounding_through_bf16_differs():
    x = FP16[np.isfinite(FP16) & (np.abs(FP16) < 448)]
    twice = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert np.any(formats.encode(twice, np.float32(1)) != formats.encode(x, np.float32(1)))


@pytest.mark.parametrize("scale", SCALES)
def test_torch_encodes_the_same_bits(scale):
    x = FP16[np.isfinite(FP16)]
    expected = formats.encode(x, np.float32(scale))
    got = cache.encode(torch.from_numpy(x.astype(np.float16)), torch.tensor(scale, dtype=torch.float32))
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("scale", SCALES)
def test_torch_decodes_the_same_bits(scale):
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], dtype=np.uint8)
    expected = formats.decode(codes, np.float32(scale))
    got = cache.decode(torch.from_numpy(codes), torch.tensor(scale, dtype=torch.float32))
    np.testing.assert_array_equal(got.numpy().view(np.uint32), expected.view(np.uint32))


def test_torch_scales_are_the_same_bits():
    amax = np.abs(FP16[np.isfinite(FP16)])
    got = cache.scale_of(torch.from_numpy(amax.astype(np.float16))).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), formats.scale_of(amax).view(np.uint32))
