"""Paged split-KV decode attention, and the merge of its splits.

Axes: R query heads of one KV head (padded to at least 8), N tokens of a step, D head dim, C splits of a sequence.

One program reads tokens [split * chunk, (split + 1) * chunk) of one sequence and one KV head, as
kassay.kernels.device.columns says. The first page numbers are read before the length is known, within the table, and
looked at where they are the sequence's. Parts beside the splits (of a shared prefix) lie behind them, and are merged
with them.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kassay.kernels.device.bias import factors
from kassay.kernels.device.columns import finish, walk
from kassay.kernels.device.queries import asked
from kassay.kernels.device.walk import LN_2, store_rows


@triton.jit(do_not_specialize=["chunk", "table_stride", "width", "splits"])
def attention_split(
    q_ptr,  # BHD, 16 bit
    k_ptr,  # words of PSHW
    v_ptr,
    k_scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    v_scale_ptr,
    bias_ptr,  # of pre-biased keys, FP32 GD
    waves_ptr,  # FP16: cosines and sines of every position up to a whole step, TD
    table_ptr,  # BX, int32
    length_ptr,  # B, int32
    o_ptr,  # BHD in q's format, or BHCD in FP32 where there are several splits
    lse_ptr,  # BHC, FP32: natural logarithm, or base 2 where there are several splits
    scale,  # 1 / sqrt(D)
    chunk,
    table_stride,
    width,  # tokens of a row of the table
    splits,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a KV head
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    K_PAGE: tl.constexpr,  # words from a page to the next where other planes lie between them; 0: none do
    V_PAGE: tl.constexpr,
    K_SCALE_PAGE: tl.constexpr,  # FP32 numbers, in the same way
    V_SCALE_PAGE: tl.constexpr,
    FOLD: tl.constexpr,  # exponent of two; 0 unless the values' scales are dynamic
    SEVERAL: tl.constexpr,  # splits
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ASM: tl.constexpr,
    WIDE: tl.constexpr,  # products in FP32: Triton's interpreter has none of BF16
    PDL: tl.constexpr,
    AFTER: tl.constexpr,  # the kernel before this one writes parts too, and runs beside it
    SECOND: tl.constexpr,  # query heads of the first of two KV heads that are read as one; 0: heads are read singly
    PREBIAS: tl.constexpr,
):
    """One split of one sequence and one tile of query heads of one KV head."""
    RAISED: tl.constexpr = K_FORMAT == 3 and ASM and q_ptr.dtype.element_ty == tl.float16
    TILES: tl.constexpr = (GROUP + BLOCK_R - 1) // BLOCK_R
    if PDL:
        gdc_launch_dependents()  # the merge starts once all programs have, and waits for their ends itself
    head = tl.program_id(0) // TILES
    tile = tl.program_id(0) % TILES
    split = tl.program_id(1)
    b = tl.program_id(2)
    length = tl.load(length_ptr + b)
    first = split * chunk
    tokens_N = tl.arange(0, BLOCK_N)
    pages_ptr = table_ptr + b.to(tl.int64) * table_stride
    page_N = tl.load(pages_ptr + tl.minimum(first + tokens_N, width - 1) // PAGE)
    first_page = tl.load(pages_ptr)
    last = tl.minimum(first + chunk, length)

    in_group_R = tile * BLOCK_R + tl.arange(0, BLOCK_R)
    valid_R = in_group_R < GROUP
    rows_R = b.to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + in_group_R
    out_R = rows_R * splits + split

    if first >= last:
        if not SEVERAL:
            WIDTH: tl.constexpr = D // 2 if SECOND else D
            store_rows(o_ptr, rows_R, valid_R, tl.zeros((BLOCK_R, WIDTH), tl.float32), WIDTH)
        tl.store(lse_ptr + out_R, tl.full((BLOCK_R,), float("-inf"), tl.float32), mask=valid_R)
        if AFTER:
            gdc_wait()
        return

    q0, q1, q2, q3, start_NR, logit_scale = asked(
        q_ptr, rows_R, valid_R, in_group_R, k_scale_ptr, scale,
        D, K_FORMAT, K_DYNAMIC, BLOCK_R, BLOCK_N, RAISED, WIDE, SECOND, True,
    )  # fmt: skip
    cos_WR = start_NR
    cos_low_WR = start_NR
    sin_WR = start_NR
    sin_low_WR = start_NR
    unit_R = logit_scale
    if PREBIAS:
        cos_WR, cos_low_WR, sin_WR, sin_low_WR, unit_R = factors(
            q_ptr, rows_R, valid_R, in_group_R, bias_ptr, head, scale, D, SECOND
        )
    m_R, l_R, a0, a1, a2, a3 = walk(
        q0, q1, q2, q3, start_NR, logit_scale, cos_WR, cos_low_WR, sin_WR, sin_low_WR, unit_R, waves_ptr,
        k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, pages_ptr, page_N, first_page, first, last, length, head,
        KV_HEADS, D, PAGE, K_FORMAT, V_FORMAT, K_DYNAMIC, V_DYNAMIC, K_PAGE, V_PAGE, K_SCALE_PAGE, V_SCALE_PAGE,
        FOLD, BLOCK_R, BLOCK_N, ASM, RAISED, SECOND, PREBIAS,
    )  # fmt: skip
    finish(
        o_ptr, lse_ptr, v_scale_ptr, out_R, valid_R, in_group_R, m_R, l_R, a0, a1, a2, a3,
        D, V_FORMAT, V_DYNAMIC, FOLD, SEVERAL, SECOND,
    )  # fmt: skip
    if AFTER:
        gdc_wait()


@triton.jit(do_not_specialize=["splits"])
def attention_merge(
    part_ptr,  # BHCD, FP32
    part_lse_ptr,  # BHC, FP32, base 2; -inf for a split without tokens, whose part was never written
    o_ptr,  # BHD
    lse_ptr,  # BH, FP32, natural logarithm
    splits,
    D: tl.constexpr,
    BLOCK_C: tl.constexpr,
    PDL: tl.constexpr,
):
    """One query head of one sequence."""
    if PDL:
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    splits_C = tl.arange(0, BLOCK_C)
    there_C = splits_C < splits
    lse_C = tl.load(part_lse_ptr + row * splits + splits_C, mask=there_C, other=float("-inf"))
    written_C = lse_C > float("-inf")
    at_CD = (row * splits + splits_C)[:, None] * D + tl.arange(0, D)[None, :]
    part_CD = tl.load(part_ptr + at_CD, mask=there_C[:, None], other=0.0)  # beside the normalizers, not after them
    peak = tl.max(lse_C, 0)
    base = tl.where(peak > float("-inf"), peak, 0.0)
    weight_C = tl.exp2(lse_C - base)
    total = tl.sum(weight_C, 0)
    o_D = tl.sum(tl.where(written_C[:, None], part_CD, 0.0) * weight_C[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(o_ptr + row * D + tl.arange(0, D), o_D.to(o_ptr.dtype.element_ty))
    whole = (base + tl.log2(tl.where(total > 0, total, 1.0))) * LN_2
    tl.store(lse_ptr + row, tl.where(total > 0, whole, float("-inf")))
