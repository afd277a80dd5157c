"""A shared prefix, read once for many queries: parts of the softmax that the merge of splits takes in.

Axes: R rows (sequence and query head of one KV head), N tokens of a step, D head dim, C parts of a sequence.

All sequences attend the same pages, so the queries of a KV head of several sequences are rows of one tile: the prefix
is read once for a tile of up to 64 of them, not once for each sequence. One program reads tokens
[split * chunk, (split + 1) * chunk) of the prefix and writes parts `first` + split of its rows.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kassay.kernels.device.queries import asked
from kassay.kernels.device.walk import finish, walk


@triton.jit(do_not_specialize=["tokens", "chunk", "batch", "first", "parts"])
def attention_prefix(
    q_ptr,  # BHD, 16 bit
    k_ptr,  # words of PSHW
    v_ptr,
    k_scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    v_scale_ptr,
    pages_ptr,  # of the prefix, int32
    part_ptr,  # BHCD, FP32
    part_lse_ptr,  # BHC, FP32, base 2
    scale,  # 1 / sqrt(D)
    tokens,  # of the prefix
    chunk,
    batch,
    first,
    parts,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a KV head
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    K_PAGE: tl.constexpr,  # kassay.kernels.device.place; words
    V_PAGE: tl.constexpr,
    K_SCALE_PAGE: tl.constexpr,
    V_SCALE_PAGE: tl.constexpr,
    FOLD: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ASM: tl.constexpr,
    WIDE: tl.constexpr,  # products in FP32: Triton's interpreter has none of BF16
    PDL: tl.constexpr,
):
    """One split of the prefix, one KV head, one tile of rows."""
    RAISED: tl.constexpr = K_FORMAT == 3 and ASM and q_ptr.dtype.element_ty == tl.float16
    if PDL:
        gdc_launch_dependents()  # the sequences' own pages are read meanwhile; that kernel waits for this one's end
    head, split = tl.program_id(0), tl.program_id(1)
    R = tl.program_id(2) * BLOCK_R + tl.arange(0, BLOCK_R)
    valid_R = batch * GROUP > R
    rows_R = (R // GROUP).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + R % GROUP
    begin = split * chunk
    last = tl.minimum(begin + chunk, tokens)
    page_N = tl.load(pages_ptr + tl.minimum(begin + tl.arange(0, BLOCK_N), tokens - 1) // PAGE)
    first_page = tl.load(pages_ptr + begin // PAGE)
    q0, q1, q2, q3, start_RN, logit_scale = asked(
        q_ptr, rows_R, valid_R, R % GROUP, k_scale_ptr, scale,
        D, K_FORMAT, K_DYNAMIC, BLOCK_R, BLOCK_N, RAISED, WIDE, 0, False,
    )  # fmt: skip
    m_R, l_R, a0, a1, a2, a3 = walk(
        q0, q1, q2, q3, start_RN, logit_scale, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr,
        pages_ptr, page_N, first_page, begin, last, head,
        KV_HEADS, D, PAGE, K_FORMAT, V_FORMAT, K_DYNAMIC, V_DYNAMIC, K_PAGE, V_PAGE, K_SCALE_PAGE, V_SCALE_PAGE,
        FOLD, BLOCK_R, BLOCK_N, ASM, RAISED,
    )  # fmt: skip
    finish(
        part_ptr, part_lse_ptr, v_scale_ptr, rows_R * parts + first + split, valid_R, m_R, l_R, a0, a1, a2, a3,
        D, V_FORMAT, V_DYNAMIC, FOLD, True,
    )  # fmt: skip
