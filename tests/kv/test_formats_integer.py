"""INT8, INT6 and grouped INT4: codes, nibbles, groups, minima, and that nothing wraps or swallows a NaN."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from kassay.errors import KassayError
from kassay.kv import formats, integer
from kassay.kv.formats import INT4, INT4_MINIMUM, INT6, INT8

ONE = np.float32(1)
INTEGERS = (INT8, INT6, INT4, INT4_MINIMUM)
OPERANDS_THD = np.random.default_rng(11).standard_normal((5, 3, 64)).astype(np.float16)


@pytest.fixture(params=INTEGERS, ids=lambda format: format.name)
def format(request):
    return request.param


def codes_of(format, values, saturate=True):
    """Codes of Python numbers, one an element."""
    return integer.encoded(format, np.array(values, np.float32), saturate=saturate).tolist()


def stored(format, x):
    """Codes of operands and what lies beside them."""
    scale, minimum = formats.group_planes(format, x)
    return formats.encode(format, x, scale, saturate=False, minimum=minimum), scale, minimum


def test_the_record_says_what_the_codes_say(format):
    values = integer.table(format)
    written = [code for code in range(len(values)) if format.lowest <= values[code] <= format.largest]
    assert len(values) == (256 if format.packing == "byte" else 16)
    assert codes_of(format, values[written]) == written
    assert sorted(values[written].tolist()) == list(range(format.lowest, format.largest + 1))
    assert format.largest - format.lowest + 1 == 2**format.bits - (format.lowest < 0)


def test_codes_are_twos_complement():
    assert codes_of(INT8, [-127, -1, 0, 127]) == [0x81, 0xFF, 0x00, 0x7F]
    assert codes_of(INT6, [-31, -1, 31]) == [0xE1, 0xFF, 0x1F]
    assert codes_of(INT4, [-7, -1, 7]) == [0x9, 0xF, 0x7]
    assert codes_of(INT4_MINIMUM, [0, 7, 8, 15]) == [0x0, 0x7, 0x8, 0xF]
    assert [integer.table(f)[c] for f, c in ((INT8, 0x80), (INT6, 0xE0), (INT4, 0x8))] == [-128, -32, -8]
    assert np.isnan(integer.table(INT6)[0x20:0xE0]).all()
    other = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32)
    np.testing.assert_array_equal(integer.table(INT8), other)


def test_ties_zeros_and_ends(format):
    assert codes_of(format, [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, 1e-45]) == [0, 0, 0, 0, 2, 2, 0]
    end = format.largest
    top = end  # largest is odd, so the tie above it leaves the range
    below = np.nextafter(np.float32(end + 0.5), np.float32(0))
    assert codes_of(format, [end, below], saturate=False) == [top, top]
    assert codes_of(format, [end + 0.5, 1e30, np.inf]) == [top] * 3
    bottom = codes_of(format, [format.lowest])
    assert codes_of(format, [-1e30, -np.inf]) == bottom * 2


@pytest.mark.parametrize("beyond", [0.5, 1.0, 1e30, np.inf])
@pytest.mark.parametrize("sign", [1, -1])
def test_beyond_the_range_raises_without_saturation(format, beyond, sign):
    value = format.largest + beyond if sign > 0 else format.lowest - beyond - (format.lowest == 0) * 0.5
    assert integer.beyond_range(format, np.array([1.0, value], np.float32)).tolist() == [False, True]
    with pytest.raises(KassayError, match=f"`{format.name}`: 1 of 2 values round beyond {format.lowest}"):
        codes_of(format, [1.0, value], saturate=False)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001])
def test_a_nan_raises_in_either_mode(format, saturate, bits):
    x = np.array([bits, 0], np.uint32).view(np.float32)
    with pytest.raises(KassayError, match="has no NaN: 1 of 2 values are NaN"):
        integer.encoded(format, x, saturate=saturate)


def test_numpy_and_ml_dtypes_agree_in_the_range_and_wrap_beyond():
    x = np.linspace(-7.49, 7.49, 1001).astype(np.float32)
    truncated = np.rint(x).astype(ml_dtypes.int4).view(np.uint8) & 0xF
    assert codes_of(INT4, x) == truncated.tolist()
    assert np.array([8], np.float32).astype(ml_dtypes.int4).astype(int).tolist() == [-8]
    assert codes_of(INT4, [8]) == [7]


def test_int8_and_int6_with_a_scale_of_the_caller():
    for format, largest in ((INT8, 127), (INT6, 31)):
        amax_TH1 = np.abs(OPERANDS_THD).max(axis=-1, keepdims=True)
        scale_TH1 = formats.scale_of(format, amax_TH1)
        codes = formats.encode(format, OPERANDS_THD, scale_TH1, saturate=False)
        wide = OPERANDS_THD.astype(np.float32)
        np.testing.assert_array_equal(codes.view(np.int8), np.rint(wide / scale_TH1).astype(np.int8))
        np.testing.assert_allclose(scale_TH1, amax_TH1.astype(np.float64) / largest, rtol=2e-7)
        got = formats.decode(format, codes, scale_TH1).astype(np.float64)
        assert np.max(np.abs(got - wide) / scale_TH1) <= 0.5 * (1 + 1e-5)


def test_the_even_element_lies_in_the_low_nibble():
    x = np.zeros(32, np.float32)
    x[:4] = [1, 2, -1, 7]
    packed = formats.encode(INT4, x, np.ones(1, np.float32), saturate=False)
    assert (packed.shape, packed.dtype, packed[:2].tolist()) == ((16,), np.uint8, [0x21, 0x7F])
    np.testing.assert_array_equal(formats.decode(INT4, packed, np.ones(1, np.float32)), x)


def test_packing_is_a_bijection():
    every = np.arange(256, dtype=np.uint8).reshape(4, 64)
    assert integer.unpacked(every).shape == (4, 128) and integer.unpacked(every).max() == 15
    np.testing.assert_array_equal(integer.packed(integer.unpacked(every)), every)


def reference(format, group):
    """Codes, scale, minimum and values of one group, element by element in FP32."""
    f = np.float32
    least = min(group) if format is INT4_MINIMUM else f(0)
    extent = f(max(group) - least) if format is INT4_MINIMUM else max(abs(value) for value in group)
    scale = f(max(extent, f(1e-12)) * f(1 / format.largest))
    codes = [np.rint(f(f(value - least) / scale)) for value in group]
    return codes, scale, least, [f(f(code * scale) + least) for code in codes]


@pytest.mark.parametrize("format", [INT4, INT4_MINIMUM], ids=lambda format: format.name)
def test_groups_have_planes_of_their_own(format):
    codes, scale_THG, minimum_THG = stored(format, OPERANDS_THD)
    assert codes.shape == (5, 3, 32) and scale_THG.shape == (5, 3, 2) and scale_THG.dtype == np.float32
    assert (minimum_THG is None) == ("minimum" not in format.beside)
    values = formats.decode(format, codes, scale_THG, minimum=minimum_THG)
    apart = integer.table(format)[integer.unpacked(codes)]
    for t, h, g in np.ndindex(5, 3, 2):
        place = slice(32 * g, 32 * g + 32)
        wanted = reference(format, list(OPERANDS_THD[t, h, place].astype(np.float32)))
        assert apart[t, h, place].tolist() == wanted[0]
        assert scale_THG[t, h, g] == wanted[1]
        assert minimum_THG is None or minimum_THG[t, h, g] == wanted[2]
        assert values[t, h, place].tolist() == wanted[3]
    step = np.repeat(scale_THG, 32, axis=-1)
    assert np.max(np.abs(values - OPERANDS_THD.astype(np.float64)) / step) <= 0.5 * (1 + 1e-5)


def test_a_minimum_spends_no_code_on_what_is_not_there():
    """On operands all of one sign the minimum halves the step and more; both ends are exact codes."""
    x = (np.arange(32, dtype=np.float32) / 31 + 10).reshape(1, 32)
    codes, scale, minimum = stored(INT4_MINIMUM, x)
    apart = integer.unpacked(codes)
    assert (int(apart.min()), int(apart.max()), float(minimum[0, 0])) == (0, 15, 10.0)
    assert float(scale[0, 0]) < float(formats.group_planes(INT4, x)[0][0, 0]) / 20


@pytest.mark.parametrize("format", [INT4, INT4_MINIMUM], ids=lambda format: format.name)
def test_equal_operands_have_the_floor_scale(format):
    for value in (0.0, 3.0):
        x = np.full((1, 32), value, np.float32)
        codes, scale, minimum = stored(format, x)
        got = formats.decode(format, codes, scale, minimum=minimum)
        np.testing.assert_allclose(got, x, rtol=1e-7)
        assert np.isfinite(scale).all() and scale.min() > 0


def test_saturation_of_a_group_is_counted():
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 32)
    scale = np.full((1, 1), 0.1, np.float32)
    clipped = formats.saturated(INT4, x, scale)
    assert clipped.tolist() == (np.rint(np.abs(x) / scale) > 7).tolist() and clipped.sum() == 8


def test_stored_bits_of_an_element():
    bits = [format.bits_per_element for format in (*INTEGERS, integer.grouped(INT4, 128), integer.grouped(INT8, 32))]
    assert bits == [8.0, 8.0, 5.0, 6.0, 4.25, 9.0]
    assert 16 / bits[4] == pytest.approx(3.765, abs=5e-4)  # limit of K4/V4 with FP32 scales per token and head, D = 128


def test_groups_of_another_size():
    wide = integer.grouped(INT4, 64)
    assert (wide.name, wide.group_size, integer.grouped(INT4_MINIMUM, 64).name) == (
        "int4-g64",
        64,
        "int4-minimum-g64",
    )
    codes, scale, _ = stored(wide, OPERANDS_THD)
    assert scale.shape == (5, 3, 1)
    same = formats.encode(replace(wide, group_size=32), OPERANDS_THD, np.repeat(scale, 2, axis=-1), saturate=False)
    np.testing.assert_array_equal(codes, same)


@pytest.mark.parametrize("size", [0, 1, 7, -2])
def test_a_group_is_even_so_that_no_byte_spans_two(size):
    with pytest.raises(KassayError, match="allowed is an even one from 2"):
        integer.grouped(INT4, size)


def test_a_minimum_needs_groups():
    with pytest.raises(KassayError, match="a minimum needs a group_size"):
        replace(INT4_MINIMUM, group_size=None)


def test_shapes_that_do_not_fit_are_refused():
    x, scale = np.ones((2, 64), np.float32), np.ones((2, 2), np.float32)
    for operand, plane in ((x, scale[:, :1]), (x, ONE), (x[:, :48], scale), (x[:, :48], scale[:, :1]), (x[:1], scale)):
        with pytest.raises(KassayError, match="multiple of 32"):
            formats.encode(INT4, operand, np.asarray(plane), saturate=True)
    with pytest.raises(KassayError, match="a last axis of 48"):
        formats.group_planes(INT4, x[:, :48])
    with pytest.raises(KassayError, match="groups of None"):
        formats.group_planes(INT8, x)


def test_a_minimum_is_there_exactly_if_the_format_has_one():
    x, plane = np.ones((2, 32), np.float32), np.ones((2, 1), np.float32)
    with pytest.raises(KassayError, match="`int4-g32` has no minimum"):
        formats.encode(INT4, x, plane, saturate=True, minimum=plane)
    codes = formats.encode(INT4_MINIMUM, x, plane, saturate=True, minimum=plane)
    for wrong in (None, plane * np.float32(np.nan), plane.astype(np.float64)):
        with pytest.raises(KassayError, match="minimum"):
            formats.encode(INT4_MINIMUM, x, plane, saturate=True, minimum=wrong)
        with pytest.raises(KassayError, match="minimum"):
            formats.decode(INT4_MINIMUM, codes, plane, minimum=wrong)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("format", [INT4, INT4_MINIMUM], ids=lambda format: format.name)
def test_groups_that_are_not_finite_have_no_planes(format, bad):
    x = np.ones((2, 64), np.float32)
    x[1, 40] = bad
    with pytest.raises(KassayError, match="finite largest absolute value"):
        formats.group_planes(format, x)
