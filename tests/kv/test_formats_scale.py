"""The scale rule: how it is rounded, what other rules would change, and O19 of bug-cases.md as far as it is arithmetic.

Of O19, refusing layers of zeros and folding all batches are kassay.kv.calibrate's, refusing unit scales
kassay.kv.cache's.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch

from kassay.errors import KassayError
from kassay.kv import float8, formats, integer, plane
from kassay.kv.formats import E4M3FN, E4M3FNUZ, E5M2, FORMATS

ONE = np.float32(1)
FLOATS = (E4M3FN, E5M2, E4M3FNUZ)
FP16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
MANTISSAS = (np.arange(0, 2**23, dtype=np.uint32) | 0x3F800000).view(np.float32)
PAIRS = [105, 11]  # differing codes of the 1,048,576 pairs of FP16 mantissas: by division, by multiplication


def test_the_reciprocal_is_pinned():
    assert formats.reciprocal(E4M3FN) == formats.RECIPROCAL and formats.LARGEST == 448.0
    assert float(formats.RECIPROCAL).hex() == "0x1.24924a0000000p-9"
    assert float(formats.RECIPROCAL) == 0.0022321429569274187
    assert float(formats.RECIPROCAL) * 448 - 1 == pytest.approx(4.47e-8, rel=1e-3)


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_every_reciprocal_is_rounded_once(format):
    exact, got = Fraction(1, int(format.largest)), formats.reciprocal(format)
    errors = [abs(Fraction(float(np.nextafter(got, np.float32(end)))) - exact) for end in (0, 1)]
    assert abs(Fraction(float(got)) - exact) < min(errors)


def test_scale_is_not_the_quotient_by_448():
    scale = formats.scale_of(E4M3FN, MANTISSAS)
    divided = MANTISSAS / np.float32(448)
    assert np.mean(scale == divided) == pytest.approx(0.452, abs=5e-4)
    assert np.abs(scale.view(np.int32) - divided.view(np.int32)).max() == 1
    assert set((MANTISSAS / scale).tolist()) == {448.0, float(np.nextafter(np.float32(448), np.float32(0)))}


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_the_largest_operand_has_the_largest_code_in_either_mode(format):
    amax = MANTISSAS[::97]
    quotient = amax / formats.scale_of(format, amax)
    encoded = float8.encoded if format in FLOATS else integer.encoded
    codes = set(encoded(format, quotient, saturate=False).tolist())
    assert codes == {format.largest_code if format in FLOATS else format.largest}


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_double_rounding_through_16_bits(kind):
    """Of all mantissas 1/256 (0.39 %) get another code through FP16, 1/32 (3.1 %) through BF16."""
    twice = formats.encode(E4M3FN, MANTISSAS.astype(kind), ONE, saturate=True)
    differing = np.count_nonzero(twice != formats.encode(E4M3FN, MANTISSAS, ONE, saturate=True))
    assert differing == 2**23 // (256 if kind is np.float16 else 32)


def test_other_scale_rules_give_other_codes():
    """By amax/448 1.3e-4 of FP16 operands get another code, by multiplying with 1/scale 2.7e-5, says statistics.md 2.9
    and does not say of which. Over all pairs of FP16 mantissas it is 1.0e-4 and 1.05e-5, exactly these counts; over
    normal operands, 128 to a scale, 1.5e-4 and 1.2e-5: the same orders, which is what is held here.
    """
    one_binade = np.arange(0x3C00, 0x4000, dtype=np.uint16).view(np.float16).astype(np.float32)
    pairs = one_binade[None, :] / np.float32(4), one_binade[:, None]
    normal = np.random.default_rng(20261020).standard_normal((2**14, 128)).astype(np.float16).astype(np.float32)
    shares = []
    for x, amax in (pairs, (normal, np.abs(normal).max(axis=-1, keepdims=True))):
        scale = formats.scale_of(E4M3FN, amax)
        codes = formats.encode(E4M3FN, x, scale, saturate=True)
        divided = formats.encode(E4M3FN, x, amax / np.float32(448), saturate=True)
        multiplied = formats.encode(E4M3FN, x * (ONE / scale), ONE, saturate=True)
        shares.append([float(np.mean(codes != other)) for other in (divided, multiplied)])
    assert [share * 2**20 for share in shares[0]] == PAIRS
    assert shares[1] == pytest.approx([1.3e-4, 2.7e-5], rel=0.7)


def test_a_zero_vector_has_the_floor_scale_and_zero_codes():
    """O19 (a), what of it is a format's: no 0/0. That the layer is refused is kassay.kv.calibrate's."""
    scale = formats.scale_of(E4M3FN, np.zeros(1, np.float32))
    assert scale[0] == pytest.approx(2.2321430e-15, rel=1e-7)
    codes = formats.encode(E4M3FN, np.zeros(3, np.float32), scale, saturate=True)
    assert codes.tolist() == [0, 0, 0]
    assert formats.decode(E4M3FN, codes, scale).tolist() == [0, 0, 0]


def test_o19_unit_scales_clip_and_flush():
    """O19 (b), its arithmetic; kassay.kv.cache refuses such scales."""
    codes = formats.encode(E4M3FN, np.array([500, 0.0009], np.float32), ONE, saturate=True)
    assert formats.decode(E4M3FN, codes, ONE).tolist() == [448.0, 0.0]
    assert formats.saturated(E4M3FN, np.array([500, 0.0009], np.float32), ONE).tolist() == [True, False]


@pytest.mark.parametrize(
    ("amax", "decoded", "clipped"),
    [(100, [100, 46.42857142857143, -9.821428571428571], 0), (44.8, [44.8, 44.8, -9.6], 1)],
)
def test_o19_the_scale_of_the_first_batch_clips_the_second(amax, decoded, clipped):
    """O19 (c), its arithmetic; that calibration folds all batches is kassay.kv.calibrate's."""
    x = np.array([100, 44.8, -10], np.float32)
    scale = formats.scale_of(E4M3FN, np.array(amax, np.float32))
    assert float(scale) == pytest.approx(amax / 448, rel=1e-7)
    got = formats.decode(E4M3FN, formats.encode(E4M3FN, x, scale, saturate=True), scale)
    assert got.tolist() == pytest.approx(decoded, rel=2e-7)
    assert np.count_nonzero(formats.saturated(E4M3FN, x, scale)) == clipped


@pytest.mark.parametrize("format", FLOATS, ids=lambda format: format.name)
def test_saturated_is_where_the_two_modes_differ(format):
    x = np.concatenate((FP16, [np.float32(1e30), np.float32(-1e30)]))
    for scale in (ONE, np.float32(0.01)):
        both = [formats.encode(format, x, scale, saturate=saturate) for saturate in (True, False)]
        np.testing.assert_array_equal(formats.saturated(format, x, scale), both[0] != both[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0], ids=str)
def test_no_scale_comes_of_an_extent_that_is_not_finite(bad):
    with pytest.raises(KassayError, match="finite largest absolute value"):
        formats.scale_of(E4M3FN, np.array([1.0, bad], np.float32))


def test_torch_scales_are_the_same_bits():
    amax = np.abs(FP16[np.isfinite(FP16)])
    got = plane.scale_of(torch.from_numpy(amax.astype(np.float16))).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), formats.scale_of(E4M3FN, amax).view(np.uint32))
