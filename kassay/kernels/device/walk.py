"""What attention over pages is made of: queries by lanes, one online softmax over tokens of a table, its end.

Axes: R query rows of one KV head (padded to at least 16), N tokens of a step, D head dim, W words, L elements of a word
(kassay.kernels.device.unpack).

Keys and values are dequantized in registers; the softmax is in base 2. A scale of a key multiplies its logit, a scale
of a value its weight; a fixed value scale multiplies the output once. The weights are rounded to 16 bits for the tensor
cores, so weights with a scale are all raised by 2^FOLD, which falls out of the quotient: it keeps the scale of usual
values above FP16's subnormals, and that of the largest FP16 operand below FP16's largest number.

INT4 keys in FP16 need no subtraction: with codes n + 8 the product is q . n + 8 sum(q), so it starts at -8 sum(q).
Over D elements FP32 loses nothing by it. Over T tokens it would: the tensor cores cut off what they cannot hold, and
8 sum(p) is hundreds of times a mean of random values. So values are subtracted one by one.

Tokens beyond the end are read as another one of the sequence, and their logits are -inf: a mask of the reads costs a
tenth more instructions, and nothing outside the sequence is read either way.
"""

import triton
import triton.language as tl

from kassay.kernels.device.place import beside_of, row_of
from kassay.kernels.device.unpack import pairs, quads, raised_quads

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def product(q0, q1, q2, q3, start_RN, words_NW, FORMAT: tl.constexpr, ASM: tl.constexpr, RAISED: tl.constexpr):
    """q . k of all tokens of the tile, RN in FP32, without the keys' scale; of raised INT4 2^-24 of it."""
    if FORMAT == 0:
        s_RN = tl.dot(q0, tl.trans(words_NW.to(q0.dtype)))
    elif FORMAT == 3:
        if RAISED:
            a, b, c, d = raised_quads(words_NW)
        else:
            a, b, c, d = quads(words_NW, ASM)
        s_RN = tl.dot(q0, tl.trans(a.to(q0.dtype)), start_RN)
        s_RN = tl.dot(q1, tl.trans(b.to(q0.dtype)), s_RN)
        s_RN = tl.dot(q2, tl.trans(c.to(q0.dtype)), s_RN)
        s_RN = tl.dot(q3, tl.trans(d.to(q0.dtype)), s_RN)
    else:
        even, odd = pairs(words_NW, FORMAT, ASM)
        s_RN = tl.dot(q0, tl.trans(even.to(q0.dtype)))
        s_RN = tl.dot(q1, tl.trans(odd.to(q0.dtype)), s_RN)
    return s_RN


@triton.jit
def weighted(p_RN, words_NW, a0, a1, a2, a3, FORMAT: tl.constexpr, ASM: tl.constexpr):
    """Add p . v to the accumulators, one a lane."""
    if FORMAT == 0:
        a0 = tl.dot(p_RN, words_NW.to(p_RN.dtype), a0)
    elif FORMAT == 3:
        a, b, c, d = quads(words_NW, ASM)
        a0 = tl.dot(p_RN, a.to(p_RN.dtype), a0)
        a1 = tl.dot(p_RN, b.to(p_RN.dtype), a1)
        a2 = tl.dot(p_RN, c.to(p_RN.dtype), a2)
        a3 = tl.dot(p_RN, d.to(p_RN.dtype), a3)
    else:
        even, odd = pairs(words_NW, FORMAT, ASM)
        a0 = tl.dot(p_RN, even.to(p_RN.dtype), a0)
        a1 = tl.dot(p_RN, odd.to(p_RN.dtype), a1)
    return a0, a1, a2, a3


@triton.jit
def store_rows(o_ptr, rows_R, valid_R, value_RD, D: tl.constexpr):
    """Store output rows whole, 16 bytes at a time: lane by lane takes 4 % longer at batch 1 (measured, H200)."""
    at = rows_R[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(o_ptr + at, value_RD.to(o_ptr.dtype.element_ty), mask=valid_R[:, None])


@triton.jit
def walk(
    q0,
    q1,
    q2,
    q3,
    start_RN,
    logit_scale,
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    pages_ptr,  # page numbers of the sequence
    page_N,  # of the first step, those beyond the end of any page
    first_page,
    first,
    last,
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
):
    """The softmax of tokens [first, last): peak, sum raised by 2^FOLD, and the weighted values by lanes."""
    K_LANES: tl.constexpr = 1 if K_FORMAT == 0 else (4 if K_FORMAT == 3 else 2)
    V_LANES: tl.constexpr = 1 if V_FORMAT == 0 else (4 if V_FORMAT == 3 else 2)
    K_WORDS: tl.constexpr = D // K_LANES
    V_WORDS: tl.constexpr = D // V_LANES
    tokens_N = tl.arange(0, BLOCK_N)
    m_R = tl.full((BLOCK_R,), float("-inf"), tl.float32)
    l_R = tl.zeros((BLOCK_R,), tl.float32)
    a0 = tl.zeros((BLOCK_R, V_WORDS), tl.float32)
    a1 = a0
    a2 = a0
    a3 = a0

    word_K = tl.arange(0, K_WORDS)
    word_V = tl.arange(0, V_WORDS)
    place_N = tl.where(first + tokens_N < last, first + tokens_N, first)
    page_N = tl.where(first + tokens_N < last, page_N, first_page)
    for start in range(first, last, BLOCK_N):
        # The page numbers of the next step are read now: a read that other reads wait for costs the pipeline a stage.
        next_N = tl.minimum(start + BLOCK_N + tokens_N, last - 1)
        next_page_N = tl.load(pages_ptr + next_N // PAGE)
        k_row_N = row_of(page_N, place_N, head, KV_HEADS, PAGE, K_WORDS, K_PAGE)
        v_row_N = row_of(page_N, place_N, head, KV_HEADS, PAGE, V_WORDS, V_PAGE)
        k_NW = tl.load(k_ptr + k_row_N[:, None] + word_K[None, :])
        v_NW = tl.load(v_ptr + v_row_N[:, None] + word_V[None, :])

        s_RN = product(q0, q1, q2, q3, start_RN, k_NW, K_FORMAT, ASM, RAISED)
        hidden_N = tl.where(start + tokens_N < last, 0.0, float("-inf"))
        if K_DYNAMIC:
            k_beside_N = beside_of(page_N, place_N, head, KV_HEADS, PAGE, K_SCALE_PAGE)
            s_RN = s_RN * (tl.load(k_scale_ptr + k_beside_N) * logit_scale)[None, :] + hidden_N[None, :]
        else:
            s_RN = s_RN * logit_scale + hidden_N[None, :]
        peak_R = tl.maximum(m_R, tl.max(s_RN, 1))
        fade_R = tl.exp2(m_R - peak_R)
        p_RN = tl.exp2(s_RN - (peak_R - FOLD)[:, None])
        l_R = l_R * fade_R + tl.sum(p_RN, 1)
        m_R = peak_R
        if V_DYNAMIC:
            v_beside_N = beside_of(page_N, place_N, head, KV_HEADS, PAGE, V_SCALE_PAGE)
            p_RN = p_RN * tl.load(v_scale_ptr + v_beside_N)[None, :]
        a0 = a0 * fade_R[:, None]
        if V_LANES > 1:
            a1 = a1 * fade_R[:, None]
        if V_LANES > 2:
            a2 = a2 * fade_R[:, None]
            a3 = a3 * fade_R[:, None]
        a0, a1, a2, a3 = weighted(p_RN.to(q0.dtype), v_NW, a0, a1, a2, a3, V_FORMAT, ASM)
        page_N = next_page_N
        place_N = next_N
    return m_R, l_R, a0, a1, a2, a3


@triton.jit
def finish(
    o_ptr,
    lse_ptr,
    v_scale_ptr,
    out_R,
    valid_R,
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
):
    """Store the quotient, and the log-normalizer: in base 2 where there are several parts."""
    V_LANES: tl.constexpr = 1 if V_FORMAT == 0 else (4 if V_FORMAT == 3 else 2)
    share_R = 1.0 / l_R
    if V_FORMAT != 0 and not V_DYNAMIC:
        share_R = share_R * tl.load(v_scale_ptr)
    lse_R = m_R - FOLD + tl.log2(l_R)
    if not SEVERAL:
        lse_R = lse_R * LN_2
    tl.store(lse_ptr + out_R, lse_R, mask=valid_R)
    out_RD = a0
    if V_LANES == 2:
        out_RD = tl.interleave(a0, a1)
    if V_LANES > 2:
        out_RD = tl.interleave(tl.interleave(a0, a2), tl.interleave(a1, a3))
    store_rows(o_ptr, out_R, valid_R, out_RD * share_R[:, None], D)
