"""Attention from stored operands in float64, written apart from the code under test, and how far from it is too far.

Axes: B sequences, H query heads, G KV heads (query head h reads KV head h // (H/G)), T queries, S keys, D head dim.

    a[t,s] = q[t] . k[s] / sqrt(D),  s <= first + t;   lse[t] = log sum_s exp a[t,s];   out[t] = sum_s exp(a - lse) v[s]

k and v are the *stored* operands: an FP16 value, or an E4M3FN code through ml_dtypes times its FP32 scale, all in
float64. So the error of quantization is in the reference too, and what is left is the arithmetic of the code under test.

TOLERANCE of FP32 arithmetic on the same operands, unit roundoff u = 2^-24 = 5.96e-8. A dot product of D terms in any
order errs by about sqrt(D) u m, where m = sum_d |q_d k_d| / sqrt(D) and sqrt(D) is the random-walk growth of rounding
errors (Higham and Mary 2019, SIAM J. Sci. Comput. 41:A2815, eq. 2.2, probability constant 1). exp turns that absolute
error of a logit into a relative one of a weight, and the quotient counts it twice: 2 sqrt(D) u m for the output; the
sums over S add 2 sqrt(S) u, decode 2 u. At D = 128, S = 8,192 and m = 6 on average, which no shipped model exceeds,
that is 1.9e-5. Measured on the shipped models: see tests/kv/test_oracle.py. It judges whole arrays, both by the
norm of the error and by its largest element. It does not judge the model: only that its attention read what is stored.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

TOLERANCE = 2e-5  # relative, FP32 arithmetic on equal operands

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Component:
    """Keys or values of one layer as a cache stores them."""

    data_BGSD: npt.NDArray[Any]  # uint8 codes or FP16 values
    scale: npt.NDArray[np.float32] | None  # B G S 1 if dynamic, one number if fixed, None for FP16 values
    other_scale: npt.NDArray[np.float32] | None  # under a fixed policy the calibrated scale of the other component
    decoded_as: str  # `fp16` or `e4m3fn`; a fault may put another 8-bit format here


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What one layer's attention reads."""

    keys: Component
    values: Component
    q_BHTD: npt.NDArray[np.float32]  # after norm and RoPE, unscaled
    first_query: int  # position of the first query among the keys
    causal: bool


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How far a whole array is from its reference."""

    max_abs_error: float  # largest |got - wanted|
    relative_error: float  # |got - wanted| / |wanted|, Euclidean norms of the whole arrays
    peak_error: float  # largest |got - wanted| over the largest |wanted|
    tolerance: float  # of relative_error and peak_error
    within: bool

    @property
    def worst_ratio(self) -> float:
        """The larger error over the tolerance; NaN if an error is."""
        return float(np.max([self.relative_error, self.peak_error])) / self.tolerance


def compare(got: npt.NDArray[Any], wanted: Doubles, *, tolerance: float = TOLERANCE) -> Comparison:
    """Compare whole arrays; another shape or a value that is not finite is never within."""
    if got.shape != wanted.shape:
        infinite = float("inf")
        return Comparison(
            max_abs_error=infinite, relative_error=infinite, peak_error=infinite, tolerance=tolerance, within=False
        )
    difference = np.abs(got.astype(np.float64) - wanted)
    largest = float(difference.max())
    peak = quotient(largest, float(np.abs(wanted).max()))
    relative = quotient(float(np.sqrt(np.sum(difference**2))), float(np.sqrt(np.sum(wanted**2))))
    return Comparison(
        max_abs_error=largest,
        relative_error=relative,
        peak_error=peak,
        tolerance=tolerance,
        within=relative <= tolerance and peak <= tolerance,
    )


def quotient(error: float, size: float) -> float:
    """error / size; where the reference is all zeros, 0 for no error and infinity for any."""
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return error / size


def compare_bits(got: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Comparison:
    """Compare bit patterns: max_abs_error counts differing elements, relative_error is their share, tolerance 0."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        count, share = float("inf"), float("inf")
    else:
        unsigned = np.dtype(f"u{wanted.dtype.itemsize}")
        differing = np.ascontiguousarray(got).view(unsigned) != np.ascontiguousarray(wanted).view(unsigned)
        count, share = float(differing.sum()), float(differing.mean())
    return Comparison(
        max_abs_error=count, relative_error=share, peak_error=share, tolerance=0.0, within=count == 0
    )


def decoded(component: Component) -> Doubles:
    """x_BGSD in float64 of a stored component: the exact value, no rounding but that of one float64 product."""
    data = component.data_BGSD
    if component.scale is None:
        return data.astype(np.float64)
    return np.asarray(data.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * component.scale.astype(np.float64))


def reference_attention(
    q_BHTD: npt.NDArray[Any], k_BGSD: npt.NDArray[Any], v_BGSD: npt.NDArray[Any]
) -> tuple[Doubles, Doubles]:
    """out_BHTD and lse_BHT (natural log) in float64; causal, the T queries stand at the end of the S keys."""
    b, h, t, d = q_BHTD.shape
    g, s = k_BGSD.shape[1:3]
    q_BGRTD = q_BHTD.astype(np.float64).reshape(b, g, h // g, t, d)
    logits = np.einsum("bgrtd,bgsd->bgrts", q_BGRTD, k_BGSD.astype(np.float64), optimize=True) / np.sqrt(float(d))
    hidden_TS = np.arange(s)[None, :] > np.arange(s - t, s)[:, None]
    logits[..., hidden_TS] = -np.inf
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - peak)
    total = weights.sum(axis=-1, keepdims=True)
    out = np.einsum("bgrts,bgsd->bgrtd", weights / total, v_BGSD.astype(np.float64), optimize=True)
    return out.reshape(b, h, t, d), (np.log(total) + peak).reshape(b, h, t)


def reference_of(stored: Stored) -> tuple[Doubles, Doubles]:
    """out_BHTD and lse_BHT of clean stored operands."""
    return reference_attention(stored.q_BHTD, decoded(stored.keys), decoded(stored.values))
