"""Attention over pages with queries as columns: what kassay.kernels.device.walk does with rows, for one group of them.

Axes: N tokens of a step, R query heads of one KV head, D head dim, W words (kassay.kernels.device.unpack).

Products are (N x W)(W x R) and (W x N)(N x R). The tensor cores' tiles are 16 by 8, so a group of up to 8 queries takes
half the products and half the softmax that it takes as 16 rows. A prefix's tiles of 16 to 64 queries are faster as rows
(measured, H200: 61 us of 64 queries a tile, 71 as columns), so both stand.

A step begins at a page, so that a token's slot is the same in all steps, and what is added to a row's address in a step
is its page alone: two instructions, where page, slot and end of each row took fourteen. Tokens beyond the end are read
from the first page of the sequence, which is full, or else from its last slot; their logits are -inf.

Everything else is as walk says: base 2, scales, FOLD, and INT4 keys without a subtraction.
"""

import triton
import triton.language as tl

from kassay.kernels.device.bias import of_bias
from kassay.kernels.device.place import page_step
from kassay.kernels.device.unpack import pairs, quads, raised_quads
from kassay.kernels.device.walk import LN_2, store_rows


@triton.jit
def product(q0, q1, q2, q3, start_NR, words_NW, FORMAT: tl.constexpr, ASM: tl.constexpr, RAISED: tl.constexpr):
    """k . q of all tokens of the step, NR in FP32, without the keys' scale; of raised INT4 2^-24 of it."""
    if FORMAT == 0:
        s_NR = tl.dot(words_NW.to(q0.dtype), q0)
    elif FORMAT == 3:
        if RAISED:
            a, b, c, d = raised_quads(words_NW)
        else:
            a, b, c, d = quads(words_NW, ASM)
        s_NR = tl.dot(a.to(q0.dtype), q0, start_NR)
        s_NR = tl.dot(b.to(q0.dtype), q1, s_NR)
        s_NR = tl.dot(c.to(q0.dtype), q2, s_NR)
        s_NR = tl.dot(d.to(q0.dtype), q3, s_NR)
    else:
        even, odd = pairs(words_NW, FORMAT, ASM)
        s_NR = tl.dot(even.to(q0.dtype), q0)
        s_NR = tl.dot(odd.to(q0.dtype), q1, s_NR)
    return s_NR


@triton.jit
def weighted(p_NR, words_WN, a0, a1, a2, a3, FORMAT: tl.constexpr, ASM: tl.constexpr):
    """Add v . p to the accumulators WR, one a lane."""
    if FORMAT == 0:
        a0 = tl.dot(words_WN.to(p_NR.dtype), p_NR, a0)
    elif FORMAT == 3:
        a, b, c, d = quads(words_WN, ASM)
        a0 = tl.dot(a.to(p_NR.dtype), p_NR, a0)
        a1 = tl.dot(b.to(p_NR.dtype), p_NR, a1)
        a2 = tl.dot(c.to(p_NR.dtype), p_NR, a2)
        a3 = tl.dot(d.to(p_NR.dtype), p_NR, a3)
    else:
        even, odd = pairs(words_WN, FORMAT, ASM)
        a0 = tl.dot(even.to(p_NR.dtype), p_NR, a0)
        a1 = tl.dot(odd.to(p_NR.dtype), p_NR, a1)
    return a0, a1, a2, a3


@triton.jit
def own_half(a_WR, in_group_R, W: tl.constexpr, R: tl.constexpr, SECOND: tl.constexpr):
    """Of an accumulator over two heads' row the half of each query's head."""
    halves_2WR = tl.reshape(a_WR, (2, W // 2, R))
    own_2WR = (tl.arange(0, 2)[:, None, None] == 1) == (in_group_R >= SECOND)[None, None, :]
    return tl.sum(tl.where(own_2WR, halves_2WR, 0.0), 0)


@triton.jit
def walk(
    q0,
    q1,
    q2,
    q3,
    start_NR,
    logit_scale,
    cos_WR,  # of the bias: kassay.kernels.device.bias
    cos_low_WR,
    sin_WR,
    sin_low_WR,
    unit_R,
    waves_ptr,
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    pages_ptr,  # page numbers of the sequence
    page_N,  # of the first step's tokens, those beyond the end of any page
    first_page,  # of the sequence
    first,
    last,
    length,  # of the sequence
    head,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    K_PAGE: tl.constexpr,
    V_PAGE: tl.constexpr,
    K_SCALE_PAGE: tl.constexpr,
    V_SCALE_PAGE: tl.constexpr,
    FOLD: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ASM: tl.constexpr,
    RAISED: tl.constexpr,
    SECOND: tl.constexpr,  # first column of another KV head in the same rows; 0: there is none
    PREBIAS: tl.constexpr,
):
    """The softmax of tokens [first, last): peak, sum raised by 2^FOLD, and the weighted values by lanes."""
    K_LANES: tl.constexpr = 1 if K_FORMAT == 0 else (4 if K_FORMAT == 3 else 2)
    V_LANES: tl.constexpr = 1 if V_FORMAT == 0 else (4 if V_FORMAT == 3 else 2)
    K_WORDS: tl.constexpr = D // K_LANES
    V_WORDS: tl.constexpr = D // V_LANES
    K_STEP: tl.constexpr = page_step(KV_HEADS, PAGE, K_WORDS, K_PAGE)
    V_STEP: tl.constexpr = page_step(KV_HEADS, PAGE, V_WORDS, V_PAGE)
    NARROW: tl.constexpr = BLOCK_R <= 8
    tl.static_assert(BLOCK_N % PAGE == 0, "a step is whole pages")
    tokens_N = tl.arange(0, BLOCK_N)
    m_R = tl.full((BLOCK_R,), float("-inf"), tl.float32)
    l_R = tl.zeros((BLOCK_R,), tl.float32)
    l_NR = tl.zeros((BLOCK_N, BLOCK_R), tl.float32)
    a0 = tl.zeros((V_WORDS, BLOCK_R), tl.float32)
    a1 = a0
    a2 = a0
    a3 = a0

    slot_N = tokens_N % PAGE
    slot_N = tl.where(length < PAGE, tl.minimum(slot_N, length - 1), slot_N)
    page_N = tl.where(first + tokens_N < last, page_N, first_page)
    k_row_N = (slot_N * KV_HEADS + head) * K_WORDS
    v_row_N = (slot_N * KV_HEADS + head) * V_WORDS
    k_ptr_NW = k_ptr + (k_row_N[:, None] + tl.arange(0, K_WORDS)[None, :])
    v_ptr_WN = v_ptr + (v_row_N[None, :] + tl.arange(0, V_WORDS)[:, None])
    HEADS: tl.constexpr = 2 if SECOND else 1
    beside_N = HEADS * head * PAGE + slot_N
    for start in range(first, last, BLOCK_N):
        # The page numbers of the next step are read now: a read that other reads wait for costs the pipeline a stage.
        next_N = start + BLOCK_N + tokens_N
        next_page_N = tl.load(pages_ptr + tl.where(next_N < last, next_N, 0) // PAGE)
        wide_N = page_N.to(tl.int64)
        k_NW = tl.load(k_ptr_NW + (wide_N * K_STEP)[:, None])
        v_WN = tl.load(v_ptr_WN + (wide_N * V_STEP)[None, :])

        s_NR = product(q0, q1, q2, q3, start_NR, k_NW, K_FORMAT, ASM, RAISED)
        hidden_N = tl.where(start + tokens_N < last, 0.0, float("-inf"))
        if K_DYNAMIC:
            k_page_N = wide_N * page_step(HEADS * KV_HEADS, PAGE, 1, K_SCALE_PAGE)
            k_scale_N = tl.load(k_scale_ptr + beside_N + k_page_N)
            if SECOND:
                of_second_N = tl.load(k_scale_ptr + PAGE + beside_N + k_page_N)
                k_scale_NR = tl.where(tl.arange(0, BLOCK_R)[None, :] < SECOND, k_scale_N[:, None], of_second_N[:, None])
                s_NR = s_NR * (k_scale_NR * logit_scale) + hidden_N[:, None]
            else:
                s_NR = s_NR * (k_scale_N * logit_scale)[:, None] + hidden_N[:, None]
        else:
            s_NR = s_NR * logit_scale + hidden_N[:, None]
        if PREBIAS:
            s_NR += of_bias(
                cos_WR, cos_low_WR, sin_WR, sin_low_WR, unit_R, waves_ptr, start, tokens_N, D // HEADS
            )  # fmt: skip
        peak_R = tl.maximum(m_R, tl.max(s_NR, 0))
        fade_R = tl.exp2(m_R - peak_R)
        p_NR = tl.exp2(s_NR - (peak_R - FOLD)[None, :])
        if NARROW:  # its sum over tokens comes after the loop: a sum across warps is two barriers
            l_NR = l_NR * fade_R[None, :] + p_NR
        else:
            l_R = l_R * fade_R + tl.sum(p_NR, 0)
        m_R = peak_R
        if V_DYNAMIC:
            v_page_N = wide_N * page_step(HEADS * KV_HEADS, PAGE, 1, V_SCALE_PAGE)
            v_scale_N = tl.load(v_scale_ptr + beside_N + v_page_N)
            if SECOND:
                of_second_N = tl.load(v_scale_ptr + PAGE + beside_N + v_page_N)
                p_NR *= tl.where(tl.arange(0, BLOCK_R)[None, :] < SECOND, v_scale_N[:, None], of_second_N[:, None])
            else:
                p_NR = p_NR * v_scale_N[:, None]
        a0 = a0 * fade_R[None, :]
        if V_LANES > 1:
            a1 = a1 * fade_R[None, :]
        if V_LANES > 2:
            a2 = a2 * fade_R[None, :]
            a3 = a3 * fade_R[None, :]
        a0, a1, a2, a3 = weighted(p_NR.to(q0.dtype), v_WN, a0, a1, a2, a3, V_FORMAT, ASM)
        page_N = next_page_N
    if NARROW:
        l_R = tl.sum(l_NR, 0)
    return m_R, l_R, a0, a1, a2, a3


@triton.jit
def finish(
    o_ptr,
    lse_ptr,
    v_scale_ptr,
    out_R,
    valid_R,
    in_group_R,
    m_R,
    l_R,
    a0,
    a1,
    a2,
    a3,
    D: tl.constexpr,
    V_FORMAT: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    FOLD: tl.constexpr,
    SEVERAL: tl.constexpr,
    SECOND: tl.constexpr,
):
    """Store the quotient, and the log-normalizer: in base 2 where there are several parts."""
    V_LANES: tl.constexpr = 1 if V_FORMAT == 0 else (4 if V_FORMAT == 3 else 2)
    W: tl.constexpr = D // V_LANES
    R: tl.constexpr = a0.shape[1]
    if SECOND:
        a0 = own_half(a0, in_group_R, W, R, SECOND)
        if V_LANES > 1:
            a1 = own_half(a1, in_group_R, W, R, SECOND)
        if V_LANES > 2:
            a2 = own_half(a2, in_group_R, W, R, SECOND)
            a3 = own_half(a3, in_group_R, W, R, SECOND)
    share_R = 1.0 / l_R
    if V_FORMAT != 0 and not V_DYNAMIC:
        share_R = share_R * tl.load(v_scale_ptr)
    lse_R = m_R - FOLD + tl.log2(l_R)
    if not SEVERAL:
        lse_R = lse_R * LN_2
    tl.store(lse_ptr + out_R, lse_R, mask=valid_R)
    out_RD = tl.trans(a0)
    if V_LANES == 2:
        out_RD = tl.interleave(out_RD, tl.trans(a1))
    if V_LANES > 2:
        even_RD, odd_RD = tl.interleave(out_RD, tl.trans(a2)), tl.interleave(tl.trans(a1), tl.trans(a3))
        out_RD = tl.interleave(even_RD, odd_RD)
    store_rows(o_ptr, out_R, valid_R, out_RD * share_R[:, None], D // 2 if SECOND else D)
