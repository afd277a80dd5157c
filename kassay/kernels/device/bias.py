"""The rotated bias of pre-biased keys, inside the loop of attention: R(t) b is added to no key, only to its product.

Axes: N tokens of a step, R query heads of one KV head or of two, W half of the head dim.

    q . R(t) b  =  sum over i of  cos(t f_i) (q_i b_i + q_i+W b_i+W) + sin(t f_i) (q_i+W b_i - q_i b_i+W)

The two factors in brackets are a query's own, made once; cosines and sines of all positions are a table that all
heads, sequences and layers share (kassay.kv.prebias), in FP16 and not rounded again here, so that what was taken off is
what is added. A factor is a unit of its query times the sum of two FP16 numbers, which is 22 bits of the largest: the
bias is large where it is worth taking off. So the products are the tensor cores' usual ones, two for each factor;
three products of TF32 instead took longer than 16-bit keys do (docs/findings/2026-11-30-prebias.md).

A program reads 2 D bytes of the table a token, from the L2 as a rule, and over two heads no more than over one.
"""

import triton
import triton.language as tl

from kassay.kernels.device.queries import LOG2_E


@triton.jit
def factors(
    q_ptr, rows_R, valid_R, in_group_R, bias_ptr, head, scale, D: tl.constexpr, SECOND: tl.constexpr
):  # fmt: skip
    """Of the cosines and of the sines, WR in FP16, each and what it lacks; their units R, of base-2 logits.

    D: of the row, which two heads share where SECOND is not 0; the bias of a query from there on is the second's.
    """
    HEADS: tl.constexpr = 2 if SECOND else 1
    WIDTH: tl.constexpr = D // HEADS
    W: tl.constexpr = WIDTH // 2
    at_W = tl.arange(0, W)
    at_WR = rows_R[None, :] * WIDTH + at_W[:, None]
    one_WR = tl.load(q_ptr + at_WR, mask=valid_R[None, :], other=0.0).to(tl.float32)
    two_WR = tl.load(q_ptr + at_WR + W, mask=valid_R[None, :], other=0.0).to(tl.float32)
    row_R = tl.zeros_like(in_group_R) + HEADS * head
    if SECOND:
        row_R += (in_group_R >= SECOND).to(tl.int32)
    bias_ptr_WR = bias_ptr + row_R[None, :] * WIDTH + at_W[:, None]
    bias_one_WR = tl.load(bias_ptr_WR) * (scale * LOG2_E)
    bias_two_WR = tl.load(bias_ptr_WR + W) * (scale * LOG2_E)
    cos_WR = one_WR * bias_one_WR + two_WR * bias_two_WR
    sin_WR = two_WR * bias_one_WR - one_WR * bias_two_WR
    unit_R = tl.max(tl.maximum(tl.abs(cos_WR), tl.abs(sin_WR)), 0)
    unit_R = tl.where(unit_R > 0, unit_R, 1.0)
    cos_WR /= unit_R[None, :]
    sin_WR /= unit_R[None, :]
    cos_16 = cos_WR.to(tl.float16)
    sin_16 = sin_WR.to(tl.float16)
    cos_low = (cos_WR - cos_16.to(tl.float32)).to(tl.float16)
    sin_low = (sin_WR - sin_16.to(tl.float32)).to(tl.float16)
    return cos_16, cos_low, sin_16, sin_low, unit_R


@triton.jit
def of_bias(cos_WR, cos_low_WR, sin_WR, sin_low_WR, unit_R, waves_ptr, start, tokens_N, WIDTH: tl.constexpr):
    """What the bias adds to the logits of the tokens of a step, NR; the table covers whole steps."""
    W: tl.constexpr = WIDTH // 2
    at_NW = (start + tokens_N)[:, None] * WIDTH + tl.arange(0, W)[None, :]
    wave_NW = tl.load(waves_ptr + at_NW)
    s_NR = tl.dot(wave_NW, cos_WR)
    s_NR = tl.dot(wave_NW, cos_low_WR, s_NR)
    wave_NW = tl.load(waves_ptr + at_NW + W)
    s_NR = tl.dot(wave_NW, sin_WR, s_NR)
    return tl.dot(wave_NW, sin_low_WR, s_NR) * unit_R[None, :]
