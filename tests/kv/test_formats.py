"""What each stored format is, what happens at its ends, what is refused, and torch against numpy bit for bit.

Rounding of every input is in test_formats_exact.py, the scale rule and O19 in test_formats_scale.py, the integer
formats' own in test_formats_integer.py. All of O18 of bug-cases.md is here.
"""

import ml_dtypes
import numpy as np
import pytest
import torch

from kassay import paths
from kassay.errors import KassayError
from kassay.kv import float8, formats, plane
from kassay.kv.formats import E4M3FN, E4M3FNUZ, E5M2, FORMATS
from tests.imports import imported

ONE = np.float32(1)
FLOATS = (E4M3FN, E5M2, E4M3FNUZ)
FP16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
SCALES = (1.0, float(formats.RECIPROCAL), 0.0104806087911129, 0.146623894572258, 2.2321430e-15, 140.7)


@pytest.fixture(params=FLOATS, ids=lambda format: format.name)
def format(request):
    return request.param


def encode(format, values, saturate=True, scale=ONE):
    """Codes of Python numbers."""
    return formats.encode(format, np.array(values, np.float32), scale, saturate=saturate).tolist()


# finite codes, distinct finite values, NaN codes, infinities
COUNTS = {"e4m3fn": (254, 253, 2, 0), "e5m2": (248, 247, 6, 2), "e4m3fnuz": (255, 255, 1, 0)}


def test_the_record_says_what_the_bits_say(format):
    values = float8.table(format)
    finite = values[np.isfinite(values)]
    counts = len(finite), len(set(finite.tolist())), int(np.isnan(values).sum()), int(np.isinf(values).sum())
    assert counts == COUNTS[format.name]
    assert (finite.max(), finite.min()) == (format.largest, -format.largest)
    assert values[format.largest_code] == format.largest
    assert values[1] == format.smallest_subnormal == finite[finite > 0].min()
    assert values[1 << format.mantissa_bits] == format.smallest_normal
    assert np.flatnonzero(np.isnan(values)).tolist() == list(format.nan_codes) and format.nan_code in format.nan_codes
    assert format.has_infinity == bool(np.isinf(values).any())
    assert format.has_negative_zero == bool(np.signbit(values[0x80]) and values[0x80] == 0)
    assert 1 + format.exponent_bits + format.mantissa_bits == format.bits == format.bits_per_element == 8


def test_facts_of_e4m3fn():
    assert (E4M3FN.largest, E4M3FN.smallest_normal, E4M3FN.smallest_subnormal) == (448.0, 2.0**-6, 2.0**-9)


def test_the_table_is_that_of_ml_dtypes_and_read_only(format):
    values = float8.table(format)
    other = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, f"float8_{format.name}")).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(values), np.isnan(other))
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(values[numbers].view(np.uint32), other[numbers].view(np.uint32))
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1


# bug-cases.md O18, the whole: value -> code saturating, code otherwise
O18 = [
    (448, 0x7E, 0x7E),
    (449, 0x7E, 0x7E),
    (464, 0x7E, 0x7E),
    (np.nextafter(np.float32(464), np.float32(465)), 0x7E, 0x7F),
    (465, 0x7E, 0x7F),
    (480, 0x7E, 0x7F),
    (1000, 0x7E, 0x7F),
    (-465, 0xFE, 0xFF),
    (np.inf, 0x7E, 0x7F),
    (-np.inf, 0xFE, 0xFF),
    (np.nan, 0x7F, 0x7F),
    *((value, code, code) for value, code in ((4.25, 0x48), (4.75, 0x4A), (1.0625, 0x38), (1.1875, 0x3A))),
    *((value, code, code) for value, code in ((17, 0x58), (19, 0x5A), (232, 0x76), (232.05, 0x77))),
    *((value, code, code) for value, code in ((0.0, 0x00), (-0.0, 0x80), (-0.0005, 0x80))),
]


@pytest.mark.parametrize(("value", "saturating", "other"), O18)
def test_o18_e4m3fn_overflow_and_ties(value, saturating, other):
    assert encode(E4M3FN, [value]) == [saturating]
    assert encode(E4M3FN, [value], saturate=False) == [other]


def test_e5m2_ends_at_a_tie_that_overflows_to_infinity():
    below = np.nextafter(np.float32(61440), np.float32(0))
    values = [57344, below, 61440, -61440, 1e30, np.inf, -np.inf, np.nan, -0.0, 2.0**-17, 1.5 * 2.0**-17, -1e-30]
    assert encode(E5M2, values) == [0x7B, 0x7B, 0x7B, 0xFB, 0x7B, 0x7B, 0xFB, 0x7F, 0x80, 0, 1, 0x80]
    overflow = [0x7B, 0x7B, 0x7C, 0xFC, 0x7C, 0x7C, 0xFC, 0x7F, 0x80, 0, 1, 0x80]
    assert encode(E5M2, values, saturate=False) == overflow
    assert formats.decode(E5M2, np.array([0x7C, 0xFC], np.uint8), ONE).tolist() == [np.inf, -np.inf]


def test_e4m3fnuz_has_one_nan_and_one_zero():
    below = np.nextafter(np.float32(248), np.float32(0))
    values = [240, below, 248, -248, 1e30, np.inf, -np.inf, np.nan, -0.0, 2.0**-11, 1.5 * 2.0**-11, -1e-30]
    assert encode(E4M3FNUZ, values) == [0x7F, 0x7F, 0x7F, 0xFF, 0x7F, 0x7F, 0xFF, 0x80, 0, 0, 1, 0]
    assert encode(E4M3FNUZ, values, saturate=False) == [0x7F, 0x7F, *[0x80] * 6, 0, 0, 1, 0]


@pytest.mark.parametrize("saturate", [True, False])
def test_every_nan_stays_nan_by_one_code(format, saturate):
    fp32 = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF], np.uint32)
    fp16 = np.array([0x7C01, 0x7E00, 0xFC01, 0xFFFF], np.uint16)
    bf16 = np.array([0x7F81, 0x7FC0, 0xFF81, 0xFFFF], np.uint16)
    for x in (fp32.view(np.float32), fp16.view(np.float16), bf16.view(ml_dtypes.bfloat16)):
        for scale in (ONE, np.float32(1e-30)):
            codes = formats.encode(format, x, scale, saturate=saturate)
            assert set(codes.tolist()) == {format.nan_code}
            assert np.isnan(formats.decode(format, codes, scale)).all()


def test_every_nan_code_decodes_to_nan(format):
    assert np.isnan(formats.decode(format, np.array(format.nan_codes, np.uint8), np.float32(0.1))).all()


@pytest.mark.parametrize("saturate", [True, False])
def test_subnormal_operands(format, saturate):
    """FP32's are far below the first midpoint; FP16's and those lifted by a small scale are numbers like others."""
    tiny = [1e-45, 1.1e-38, -1e-45, -1.1e-38]
    assert encode(format, tiny, saturate) == [0, 0, *[0x80 if format.has_negative_zero else 0] * 2]
    smallest = np.array([2.0**-24, -(2.0**-24)], np.float16)
    codes = formats.encode(format, smallest, np.float32(2.0**-24), saturate=saturate)
    assert formats.decode(format, codes, np.float32(2.0**-24)).tolist() == [2.0**-24, -(2.0**-24)]
    lifted = formats.encode(format, np.array([2.0**-140], np.float32), np.float32(2.0**-140), saturate=saturate)
    assert float8.table(format)[lifted].tolist() == [1.0]


@pytest.mark.parametrize("saturate", [True, False])
def test_midpoints_go_to_the_even_code(format, saturate):
    codes = range(format.largest_code)
    values = float8.table(format)[: format.largest_code + 1].astype(np.float64)
    middles = ((values[:-1] + values[1:]) / 2).astype(np.float32)
    even = [code + code % 2 for code in codes]
    assert encode(format, middles, saturate) == even
    negative = [0x80 | code if code or format.has_negative_zero else 0 for code in even]
    assert encode(format, -middles, saturate) == negative


def test_clipping_before_rounding_is_saturating_after_it(format):
    x = np.arange(2**16, dtype=np.uint32)
    x = np.concatenate((x << 16, (x << 16) | 0x8001)).astype(np.uint32).view(np.float32)
    clipped = np.clip(x[~np.isnan(x)], -format.largest, format.largest).astype(np.float32)
    for saturate in (True, False):
        got = formats.encode(format, clipped, ONE, saturate=saturate)
        np.testing.assert_array_equal(got, formats.encode(format, x[~np.isnan(x)], ONE, saturate=True))


def test_ml_dtypes_does_not_saturate(format):
    beyond = np.array([1e30], np.float32)
    cast = beyond.astype(getattr(ml_dtypes, f"float8_{format.name}")).view(np.uint8)
    assert cast.tolist() == encode(format, beyond, saturate=False) != encode(format, beyond)


def test_decode_inverts_encode_on_every_code(format):
    codes = np.array([code for code in range(256) if code not in format.nan_codes], dtype=np.uint8)
    for scale in (np.float32(value) for value in SCALES):
        values = formats.decode(format, codes, scale)
        np.testing.assert_array_equal(formats.encode(format, values, scale, saturate=False), codes)


def test_encode_divides_in_fp32_and_rounds_once(format):
    x, scale = FP16[np.isfinite(FP16)], np.float32(0.0104806087911129)
    got = formats.encode(format, x, scale, saturate=True)
    quotient = (x / scale).astype(np.float32)
    np.testing.assert_array_equal(got, formats.encode(format, quotient, ONE, saturate=True))
    exact = x.astype(np.float64) / np.float64(scale)
    assert np.any(quotient.astype(np.float64) != exact)


def test_operands_of_16_bits_and_any_layout_are_taken_as_they_are(format):
    x_THD = np.random.default_rng(3).standard_normal((6, 4, 8)).astype(np.float16)
    scale_TH1 = formats.scale_of(format, np.abs(x_THD).max(axis=-1, keepdims=True))
    expected = formats.encode(format, x_THD.astype(np.float32), scale_TH1, saturate=True)
    np.testing.assert_array_equal(formats.encode(format, x_THD, scale_TH1, saturate=True), expected)
    turned = formats.encode(format, x_THD.transpose(2, 1, 0), scale_TH1.transpose(2, 1, 0), saturate=True)
    np.testing.assert_array_equal(turned.transpose(2, 1, 0), expected)
    assert formats.encode(format, x_THD[0, 0, 0], ONE, saturate=True).shape == ()
    assert formats.encode(format, x_THD[:0], ONE, saturate=True).shape == (0, 4, 8)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, -0.0], ids=str)
@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_a_scale_that_is_no_scale_is_refused(format, bad):
    planes = {"minimum": np.zeros((3, 1), np.float32)} if "minimum" in getattr(format, "beside", ()) else {}
    scale = np.array([[1.0], [bad], [1.0]], np.float32)
    with pytest.raises(KassayError, match="finite and above 0"):
        formats.encode(format, np.ones((3, 32), np.float32), scale, saturate=True, **planes)
    with pytest.raises(KassayError, match="finite and above 0"):
        formats.decode(format, np.zeros((3, 32), np.uint8), scale, **planes)


def test_fp64_would_be_rounded_twice_and_is_refused():
    with pytest.raises(TypeError):
        formats.encode(E4M3FN, np.ones(2), ONE, saturate=True)
    with pytest.raises(TypeError):
        formats.scale_of(E4M3FN, np.ones(2))
    with pytest.raises(KassayError, match="is FP32"):
        formats.encode(E4M3FN, np.ones(2, np.float32), np.ones(1), saturate=True)


def test_codes_of_another_type_are_refused():
    with pytest.raises(KassayError, match="codes are uint8, got int8"):
        formats.decode(E4M3FN, np.zeros(2, np.int8), ONE)


def test_a_float_format_has_no_minimum():
    with pytest.raises(KassayError, match="`e4m3fn` has no minimum"):
        formats.encode(E4M3FN, np.ones(2, np.float32), ONE, saturate=True, minimum=np.zeros(1, np.float32))


def test_formats_by_name():
    assert {name: formats.format_named(name) for name in FORMATS} == FORMATS
    with pytest.raises(KassayError, match="unknown format `e3m4`, allowed are e4m3fn, e5m2, e4m3fnuz, int8"):
        formats.format_named("e3m4")


@pytest.mark.parametrize("module", ["formats", "float8", "integer", "rounding"])
def test_only_numpy_is_imported(module):
    tops = {name.split(".")[0] for name in imported(paths.ROOT / "kassay" / "kv" / f"{module}.py")}
    assert tops <= {"numpy", "kassay", "dataclasses", "functools", "typing"}


@pytest.mark.parametrize("scale", SCALES)
def test_torch_encodes_the_same_bits(scale):
    x = FP16[np.isfinite(FP16)]
    expected = formats.encode(E4M3FN, x, np.float32(scale), saturate=True)
    got = plane.encode(torch.from_numpy(x.astype(np.float16)), torch.tensor(scale, dtype=torch.float32))
    np.testing.assert_array_equal(got.numpy(), expected)


@pytest.mark.parametrize("scale", SCALES)
def test_torch_decodes_the_same_bits(scale):
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], dtype=np.uint8)
    expected = formats.decode(E4M3FN, codes, np.float32(scale))
    got = plane.decode(torch.from_numpy(codes), torch.tensor(scale, dtype=torch.float32))
    np.testing.assert_array_equal(got.numpy().view(np.uint32), expected.view(np.uint32))
