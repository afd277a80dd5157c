"""What the old INT4 law was measured with: keys and values repeated to the query heads, and one program a query head.

Axes: X pages of a sequence, S slots of a page, N tokens of a step, W words, D head dim, C splits of a sequence.

`repeat_heads` writes the copy that a repeat_kv makes: every query head then reads bytes of its own. `attention_head`
is the published launch: a program reads the grouped codes of one sequence for a single query head, so heads of a group
read the same bytes, and a row of queries is too small for tensor cores: products and sums are plain FP32.
"""

import triton
import triton.language as tl

from kassay.kernels.device.queries import LOG2_E
from kassay.kernels.device.unpack import quads
from kassay.kernels.device.walk import LN_2


@triton.jit(do_not_specialize=["table_stride"])
def repeat_heads(
    k_ptr,  # PSHD, 16 bit
    v_ptr,
    k_to_ptr,  # the same with GROUP times the heads; pages in the order of the table
    v_to_ptr,
    table_ptr,  # BX, int32
    length_ptr,  # B, int32
    table_stride,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One KV head of one page of one sequence; slots beyond its length come along."""
    index, head, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if index * PAGE >= tl.load(length_ptr + b):
        return
    page = tl.load(table_ptr + b.to(tl.int64) * table_stride + index).to(tl.int64)
    slots_S = tl.arange(0, PAGE)
    dims_D = tl.arange(0, D)
    at_SD = ((page * PAGE + slots_S) * KV_HEADS + head)[:, None] * D + dims_D[None, :]
    k_SD = tl.load(k_ptr + at_SD)
    v_SD = tl.load(v_ptr + at_SD)
    to_S = (b.to(tl.int64) * tl.num_programs(0) + index) * PAGE + slots_S
    for member in tl.static_range(GROUP):
        to_SD = (to_S * (KV_HEADS * GROUP) + head * GROUP + member)[:, None] * D + dims_D[None, :]
        tl.store(k_to_ptr + to_SD, k_SD)
        tl.store(v_to_ptr + to_SD, v_SD)


@triton.jit(do_not_specialize=["chunk", "table_stride", "splits"])
def attention_head(
    q_ptr,  # BHD, 16 bit
    k_ptr,  # INT4 codes, words of PSHW
    v_ptr,
    k_scale_ptr,  # PHS, FP32
    v_scale_ptr,
    table_ptr,  # BX, int32
    length_ptr,  # B, int32
    o_ptr,  # BHD in q's format, or BHCD in FP32 where there are several splits
    lse_ptr,  # BHC, FP32: natural logarithm, or base 2 where there are several splits
    scale,  # 1 / sqrt(D)
    chunk,
    table_stride,
    splits,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    SEVERAL: tl.constexpr,  # splits
    BLOCK_N: tl.constexpr,
    ASM: tl.constexpr,
):
    """One split of one sequence and one query head."""
    WORDS: tl.constexpr = D // 4
    row, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = split * chunk
    last = tl.minimum(first + chunk, tl.load(length_ptr + b))
    pages_ptr = table_ptr + b.to(tl.int64) * table_stride
    words_W = tl.arange(0, WORDS)
    query = b.to(tl.int64) * (KV_HEADS * GROUP) + row
    out = query * splits + split
    q_W = q_ptr + query * D + 4 * words_W
    q0 = tl.load(q_W).to(tl.float32)
    q1 = tl.load(q_W + 1).to(tl.float32)
    q2 = tl.load(q_W + 2).to(tl.float32)
    q3 = tl.load(q_W + 3).to(tl.float32)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    a0 = tl.zeros((WORDS,), tl.float32)
    a1 = a0
    a2 = a0
    a3 = a0
    for start in range(first, last, BLOCK_N):
        token_N = start + tl.arange(0, BLOCK_N)
        there_N = token_N < last
        place_N = tl.minimum(token_N, last - 1)
        page_N = tl.load(pages_ptr + place_N // PAGE).to(tl.int64)
        at_N = (page_N * PAGE + place_N % PAGE) * KV_HEADS + row // GROUP
        beside_N = (page_N * KV_HEADS + row // GROUP) * PAGE + place_N % PAGE
        k0, k1, k2, k3 = quads(tl.load(k_ptr + at_N[:, None] * WORDS + words_W[None, :]), ASM)
        s_N = tl.sum(
            k0.to(tl.float32) * q0[None, :]
            + k1.to(tl.float32) * q1[None, :]
            + k2.to(tl.float32) * q2[None, :]
            + k3.to(tl.float32) * q3[None, :],
            1,
        )
        s_N = s_N * (tl.load(k_scale_ptr + beside_N) * (scale * LOG2_E)) + tl.where(there_N, 0.0, float("-inf"))
        higher = tl.maximum(peak, tl.max(s_N, 0))
        fade = tl.exp2(peak - higher)
        p_N = tl.exp2(s_N - higher)
        total = total * fade + tl.sum(p_N, 0)
        peak = higher
        p_N = p_N * tl.load(v_scale_ptr + beside_N)
        v0, v1, v2, v3 = quads(tl.load(v_ptr + at_N[:, None] * WORDS + words_W[None, :]), ASM)
        a0 = a0 * fade + tl.sum(p_N[:, None] * v0.to(tl.float32), 0)
        a1 = a1 * fade + tl.sum(p_N[:, None] * v1.to(tl.float32), 0)
        a2 = a2 * fade + tl.sum(p_N[:, None] * v2.to(tl.float32), 0)
        a3 = a3 * fade + tl.sum(p_N[:, None] * v3.to(tl.float32), 0)
    share = 1.0 / tl.where(total > 0, total, 1.0)
    lse = tl.where(total > 0, peak + tl.log2(tl.where(total > 0, total, 1.0)), float("-inf"))
    tl.store(lse_ptr + out, lse if SEVERAL else lse * LN_2)
    o_W = o_ptr + out * D + 4 * words_W
    tl.store(o_W, (a0 * share).to(o_ptr.dtype.element_ty))
    tl.store(o_W + 1, (a1 * share).to(o_ptr.dtype.element_ty))
    tl.store(o_W + 2, (a2 * share).to(o_ptr.dtype.element_ty))
    tl.store(o_W + 3, (a3 * share).to(o_ptr.dtype.element_ty))
