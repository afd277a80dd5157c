"""E4M3FN exactly: how a 16-bit operand becomes an 8-bit code and an FP32 scale, and back. numpy only.

    scale = max(fp32 |x|_max, 1e-12) * fp32(1/448)
    code  = nearest-even(clip(fp32 x / scale, -448, 448))          one rounding, from FP32
    x'    = fp32(code) * scale

E4M3FN (OCP OFP8): 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinity, NaN is S.1111.111; largest 448,
smallest normal 2^-6, smallest subnormal 2^-9. Without the clip a value above 464 would become NaN, so the
clip is part of the format's use here. kassay.kv.cache has the same rule in torch; a test holds them equal bit
for bit.
"""

import ml_dtypes
import numpy as np
import numpy.typing as npt

LARGEST = 448.0
SCALE_FLOOR = 1e-12
RECIPROCAL = np.float32(1.0 / 448.0)  # 0x1.24924ap-9, 4.47e-8 above 1/448: part of the rule, not an error

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]


def scale_of(amax: Floats) -> Floats:
    """Scale of a largest absolute value (any shape, FP32, finite): max(amax, 1e-12) times fp32(1/448)."""
    return np.asarray(np.maximum(amax.astype(np.float32), np.float32(SCALE_FLOOR)) * RECIPROCAL, dtype=np.float32)


def encode(x: Floats, scale: Floats) -> Codes:
    """E4M3FN codes (uint8, shape of x) of finite FP32 values; `scale` broadcasts against x and is above 0."""
    with np.errstate(over="ignore"):  # a quotient beyond FP32 is clipped like any other that is too large
        quotient = np.divide(x.astype(np.float32), scale, dtype=np.float32)
    clipped = np.clip(quotient, -LARGEST, LARGEST).astype(np.float32)
    return clipped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)


def decode(codes: Codes, scale: Floats) -> Floats:
    """FP32 values of codes: the exact code value times the scale, rounded once."""
    return np.asarray(TABLE[codes] * scale, dtype=np.float32)


def code_value(code: int) -> float:
    """The exact value of one code from the format's definition, NaN for S.1111.111."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 0xF, code & 0x7
    if exponent == 0xF and mantissa == 0x7:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0**-9
    return float(sign * (8 + mantissa) * 2.0 ** (exponent - 10))


TABLE: Floats = np.array([code_value(code) for code in range(256)], dtype=np.float32)
