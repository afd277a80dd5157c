"""The rotated bias of pre-biased keys, inside the loop of attention: R(t) b is added to no key, only to its product.

Axes: N tokens of a step, R query heads of one KV head, W half of the head dim.

    q . R(t) b  =  sum over i of  cos(t f_i) (q_i b_i + q_i+W b_i+W) + sin(t f_i) (q_i+W b_i - q_i b_i+W)

The two factors in brackets are a query's own, made once; cosines and sines of all positions are a table that all
heads, sequences and layers share (kassay.kv.prebias), FP32 as the writer's, so that what was taken off is what is
added. A token of a program reads 4 D bytes of it, from the L2 as a rule: more than its 8-bit key and value have. The
products keep FP32's precision (three products of TF32), for a bias is large where it is worth taking off.
"""

import triton
import triton.language as tl

from kassay.kernels.device.queries import LOG2_E


@triton.jit
def factors(q_ptr, rows_R, valid_R, bias_ptr, head, scale, D: tl.constexpr):
    """Of the cosines and of the sines, WR in FP32, in units of base-2 logits."""
    W: tl.constexpr = D // 2
    at_W = tl.arange(0, W)
    at_WR = rows_R[None, :] * D + at_W[:, None]
    first_WR = tl.load(q_ptr + at_WR, mask=valid_R[None, :], other=0.0).to(tl.float32)
    second_WR = tl.load(q_ptr + at_WR + W, mask=valid_R[None, :], other=0.0).to(tl.float32)
    first_W1 = tl.load(bias_ptr + head * D + at_W)[:, None] * (scale * LOG2_E)
    second_W1 = tl.load(bias_ptr + head * D + W + at_W)[:, None] * (scale * LOG2_E)
    return first_WR * first_W1 + second_WR * second_W1, second_WR * first_W1 - first_WR * second_W1


@triton.jit
def of_bias(cos_WR, sin_WR, waves_ptr, start, tokens_N, D: tl.constexpr):
    """What the bias adds to the logits of the tokens of a step, NR; the table covers whole steps."""
    W: tl.constexpr = D // 2
    at_NW = (start + tokens_N)[:, None] * D + tl.arange(0, W)[None, :]
    s_NR = tl.dot(tl.load(waves_ptr + at_NW), cos_WR, input_precision="tf32x3")
    return tl.dot(tl.load(waves_ptr + at_NW + W), sin_WR, s_NR, input_precision="tf32x3")
