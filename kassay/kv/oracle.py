"""Attention from stored operands in float64, apart from the code under test, and how far is too far.

Axes: B sequences, H query heads, G KV heads (head h reads head h // (H/G)), T queries, S keys, D head dim.

    a[t,s] = q[t] . k[s] / sqrt(D) for s <= first + t
    lse[t] = log sum_s exp a[t,s]
    out[t] = sum_s exp(a[t,s] - lse[t]) v[s]

k and v are the *stored* operands in float64: a 16-bit value, or a code (E4M3FN through ml_dtypes, INT8, INT4)
times its FP32 scale, plus the rotated key bias where a recipe took it off. So the error of quantization is in the
reference too, and the arithmetic of the code under test is left.

Two tolerances of FP32 arithmetic (unit roundoff u = 2^-24) on equal operands; an array must meet both:

    largest error / largest of the reference      <=  max(TOLERANCE, u (2 sqrt(D) m + 2 sqrt(S) + 2))
    norm of the error / norm of the reference     <=  TOLERANCE

m is the largest sum_d |q_d k_d| / sqrt(D). A dot product of D terms errs by about sqrt(D) u m in any
order: rounding errors walk at random (Higham and Mary 2019, SIAM J. Sci. Comput. 41:A2815). exp makes
that a relative error of a weight, the quotient brings it in once more, the sums over S add 2 sqrt(S) u,
decode and division 2 u. For the norm m = 20 stands in, 2e-5 at D = 64 and S = 256: an error that all keys
share cancels, and where logits are larger, the weight lies on few keys. Measured: norm at most 4.0e-6 and
largest error 2.4e-5 on *fragile* (m = 859, tolerance 8.2e-4), 1.0e-6 and 1.6e-6 on *robust*; the smallest
of the injected faults 1.4e-3. It judges no model: only whether its attention read what is stored.

A model that computes in 16 bits (unit roundoff u' = 2^-11 of FP16, 2^-8 of BF16; e' half the least subnormal number)
reads a reconstruction that was rounded to its format and attends with FP32 sums. Its pass is held in two steps. What
it read may be off what is stored by one rounding of each element, after FP32's of the product:

    |read - stored|  <=  (u' + 4 u) (|stored| + |offset|) + e'

and its output, against attention in float64 on what it *read*, by one rounding of each weight and one of the output:

    |error|  <=  (u (2 sqrt(D) m + 2 sqrt(S) + 2) + u') sum_s w[s] |v[s]|  +  u' |out|  +  S e' max |v|

whose largest element and norm over those of the reference are the two tolerances. The replay from stored operands is
FP32's and keeps the narrow ones: a fault need not be larger than a 16-bit rounding to be caught.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

UNIT_ROUNDOFF = 2.0**-24  # of FP32, nearest even
TOLERANCE = 2e-5  # relative, FP32 arithmetic on equal operands; derived above
ROUNDING = {"fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}  # u' and e'

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Component:
    """Keys or values of one layer as a cache stores them."""

    data_BGSD: npt.NDArray[Any]  # uint8 codes (D/2 of 4 bits, element 2i low) or 16-bit values
    scale: npt.NDArray[np.float32] | None  # one number if fixed, else B, G or 1, S, scales a head; None of 16 bit
    other_scale: npt.NDArray[np.float32] | None  # under a fixed policy the calibrated scale of the other component
    decoded_as: str  # a format of kassay.kv.recipe; a fault may put another 8-bit format here
    offset_GSD: npt.NDArray[np.float32] | None = None  # added after decoding: the rotated key bias
    operand_BGSD: npt.NDArray[np.float32] | None = None  # what was quantized, for faults of the writer


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
    tolerance: float  # of relative_error
    peak_error: float  # largest |got - wanted| over the largest |wanted|; of `compare_read` over the element's own size
    peak_tolerance: float  # of peak_error
    within: bool

    @property
    def worst_ratio(self) -> float:
        """The larger error over its tolerance, infinite for NaN; of bits the number of differing elements."""
        if self.tolerance == 0:
            return self.max_abs_error
        ratio = np.max([self.relative_error / self.tolerance, self.peak_error / self.peak_tolerance])
        return float("inf") if np.isnan(ratio) else float(ratio)


def compare(
    got: npt.NDArray[Any], wanted: Doubles, *, peak_tolerance: float = TOLERANCE, tolerance: float = TOLERANCE
) -> Comparison:
    """Compare whole arrays; another shape or a value that is not finite is never within."""
    if got.shape == wanted.shape:
        difference = np.abs(got.astype(np.float64) - wanted)
        largest = float(difference.max())
        peak = quotient(largest, float(np.abs(wanted).max()))
        relative = quotient(float(np.sqrt(np.sum(difference**2))), float(np.sqrt(np.sum(wanted**2))))
    else:
        largest = peak = relative = float("inf")
    return Comparison(
        max_abs_error=largest,
        relative_error=relative,
        tolerance=tolerance,
        peak_error=peak,
        peak_tolerance=peak_tolerance,
        within=relative <= tolerance and peak <= peak_tolerance,
    )


def quotient(error: float, size: float) -> float:
    """error / size; where the reference is all zeros, 0 for no error and infinity for any."""
    if size == 0:
        return 0.0 if error == 0 else float("inf")
    return error / size


def compare_bits(got: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Comparison:
    """Compare bit patterns: max_abs_error counts differing elements, relative_error is their share."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        count, share = float("inf"), float("inf")
    else:
        unsigned = np.dtype(f"u{wanted.dtype.itemsize}")
        differing = np.ascontiguousarray(got).view(unsigned) != np.ascontiguousarray(wanted).view(unsigned)
        count, share = float(differing.sum()), float(differing.mean())
    return Comparison(
        max_abs_error=count,
        relative_error=share,
        tolerance=0.0,
        peak_error=share,
        peak_tolerance=0.0,
        within=count == 0,
    )


def compare_read(got_BGSD: npt.NDArray[Any], component: Component, compute: str) -> Comparison:
    """What a 16-bit model read of a component, element by element against what is stored."""
    wanted = decoded(component)
    if got_BGSD.shape != wanted.shape:
        return compare(got_BGSD, wanted)
    roundoff, underflow = ROUNDING[compute]
    limit = roundoff + 4 * UNIT_ROUNDOFF
    offset = 0.0 if component.offset_GSD is None else np.abs(component.offset_GSD.astype(np.float64))
    size = np.abs(wanted) + offset + underflow / limit
    difference = np.abs(got_BGSD.astype(np.float64) - wanted)
    peak = float((difference / size).max())
    relative = quotient(float(np.sqrt(np.sum(difference**2))), float(np.sqrt(np.sum(size**2))))
    return Comparison(
        max_abs_error=float(difference.max()),
        relative_error=relative,
        tolerance=limit,
        peak_error=peak,
        peak_tolerance=limit,
        within=relative <= limit and peak <= limit,
    )


def decoded(component: Component) -> Doubles:
    """x_BGSD in float64 of a stored component: exact (4 and 24 significant bits) but for the sum with an offset."""
    values = code_values(component)
    if component.scale is None:
        return values
    scale = component.scale.astype(np.float64)
    if scale.ndim == 4 and scale.shape[-1] > 1:
        scale = np.repeat(scale, values.shape[-1] // scale.shape[-1], axis=-1)
    offset = 0.0 if component.offset_GSD is None else component.offset_GSD.astype(np.float64)
    return np.asarray(values * scale + offset)


def code_values(component: Component) -> Doubles:
    """Values of codes or 16-bit numbers, x_BGSD, without their scale."""
    data, form = component.data_BGSD, component.decoded_as
    if form == "e4m3fn":
        return np.asarray(data.view(ml_dtypes.float8_e4m3fn).astype(np.float64))
    if form in ("int8", "int6"):
        return data.view(np.int8).astype(np.float64)
    if form.startswith("int4"):
        nibbles = np.empty((*data.shape[:-1], 2 * data.shape[-1]))
        nibbles[..., 0::2], nibbles[..., 1::2] = data % 16, data // 16
        return np.where(nibbles >= 8, nibbles - 16, nibbles)
    return data.astype(np.float64)


def rotated_bias(bias_GD: npt.NDArray[Any], frequencies: npt.NDArray[Any], scaling: float, tokens: int) -> Doubles:
    """R(t) b for t = 0 … tokens - 1 in float64, GSD: pairs (d, d + D/2) turned by t times their frequency."""
    turns = np.exp(1j * np.arange(tokens)[:, None] * frequencies.astype(np.float64)[None, :]) * scaling
    half = bias_GD.shape[-1] // 2
    pairs_GSP = (bias_GD[:, None, :half] + 1j * bias_GD[:, None, half:]) * turns
    return np.concatenate([pairs_GSP.real, pairs_GSP.imag], axis=-1)


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


def arithmetic_error_of(q_BHTD: npt.NDArray[Any], k_BGSD: npt.NDArray[Any]) -> float:
    """u (2 sqrt(D) m + 2 sqrt(S) + 2): how far FP32 attention may be off on these operands, from which m is taken."""
    b, h, t, d = q_BHTD.shape
    g, s = k_BGSD.shape[1:3]
    q_BGRTD = np.abs(q_BHTD.astype(np.float64)).reshape(b, g, h // g, t, d)
    sums = np.einsum("bgrtd,bgsd->bgrts", q_BGRTD, np.abs(k_BGSD.astype(np.float64)), optimize=True)
    largest_m = sums.max() / np.sqrt(d)
    terms = 2 * np.sqrt(d) * largest_m + 2 * np.sqrt(s) + 2
    return float(UNIT_ROUNDOFF * terms)


def peak_tolerance_of(q_BHTD: npt.NDArray[Any], k_BGSD: npt.NDArray[Any]) -> float:
    """Largest admissible peak_error of FP32 attention on these operands."""
    return max(TOLERANCE, arithmetic_error_of(q_BHTD, k_BGSD))


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What attention on clean operands should return, and how far its arithmetic may be off."""

    out_BHTD: Doubles
    lse_BHT: Doubles
    peak_tolerance: float  # of the log-normalizer, which is FP32's
    output_tolerance: float  # of the output's norm
    output_peak_tolerance: float


def reference_of(stored: Stored) -> Reference:
    """The reference of one layer's clean stored operands, for FP32 arithmetic."""
    k_BGSD = decoded(stored.keys)
    out_BHTD, lse_BHT = reference_attention(stored.q_BHTD, k_BGSD, decoded(stored.values))
    peak = peak_tolerance_of(stored.q_BHTD, k_BGSD)
    return Reference(
        out_BHTD=out_BHTD,
        lse_BHT=lse_BHT,
        peak_tolerance=peak,
        output_tolerance=TOLERANCE,
        output_peak_tolerance=peak,
    )


def reference_of_read(
    q_BHTD: npt.NDArray[Any], k_BGSD: npt.NDArray[Any], v_BGSD: npt.NDArray[Any], compute: str
) -> Reference:
    """The reference of what a model that computes in `compute`, a 16-bit format, read."""
    out_BHTD, lse_BHT = reference_attention(q_BHTD, k_BGSD, v_BGSD)
    sizes = np.abs(v_BGSD.astype(np.float64))
    spread_BHTD, _ = reference_attention(q_BHTD, k_BGSD, sizes)
    roundoff, underflow = ROUNDING[compute]
    weights = arithmetic_error_of(q_BHTD, k_BGSD) + roundoff
    flushed = k_BGSD.shape[2] * underflow * float(sizes.max())
    bound_BHTD = weights * spread_BHTD + roundoff * np.abs(out_BHTD) + flushed
    return Reference(
        out_BHTD=out_BHTD,
        lse_BHT=lse_BHT,
        peak_tolerance=peak_tolerance_of(q_BHTD, k_BGSD),
        output_tolerance=quotient(float(np.linalg.norm(bound_BHTD)), float(np.linalg.norm(out_BHTD))),
        output_peak_tolerance=quotient(float(bound_BHTD.max()), float(np.abs(out_BHTD).max())),
    )
