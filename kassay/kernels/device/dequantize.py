"""The unfused control: codes of pages to 16 bits in a temporary of the same pages.

Axes: X pages of a sequence, R rows of a page (slot and head), W words, D head dim. One program a page that a sequence
uses. Words are read and 16-bit elements written in whole lines, so that the control loses by its bytes alone.
"""

import triton
import triton.language as tl

from kassay.kernels.device.unpack import elements


@triton.jit(do_not_specialize=["table_stride"])
def dequantize_pages(
    words_ptr,  # PSHW
    scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    to_ptr,  # PSHD, 16 bit
    table_ptr,  # BX, int32
    length_ptr,  # B, int32
    table_stride,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    FORMAT: tl.constexpr,
    DYNAMIC: tl.constexpr,
    BLOCK: tl.constexpr,  # rows of a step
    ASM: tl.constexpr,
):
    """One page of one sequence; slots beyond its length come along."""
    LANES: tl.constexpr = 4 if FORMAT == 3 else 2
    WORDS: tl.constexpr = D // LANES
    index = tl.program_id(0)
    b = tl.program_id(1)
    if index * PAGE >= tl.load(length_ptr + b):
        return
    page = tl.load(table_ptr + b.to(tl.int64) * table_stride + index).to(tl.int64)
    for start in range(0, PAGE * KV_HEADS, BLOCK):
        R = start + tl.arange(0, BLOCK)
        valid_R = R < PAGE * KV_HEADS
        row_R = page * (PAGE * KV_HEADS) + R
        words_RW = tl.load(
            words_ptr + row_R[:, None] * WORDS + tl.arange(0, WORDS)[None, :], mask=valid_R[:, None], other=0
        )
        x_RD = elements(words_RW, FORMAT, ASM)
        if DYNAMIC:
            beside_R = (page * KV_HEADS + R % KV_HEADS) * PAGE + R // KV_HEADS
            wide_RD = x_RD.to(tl.float32) * tl.load(scale_ptr + beside_R, mask=valid_R, other=0.0)[:, None]
        else:
            wide_RD = x_RD.to(tl.float32) * tl.load(scale_ptr)
        tl.store(
            to_ptr + row_R[:, None] * D + tl.arange(0, D)[None, :],
            wide_RD.to(to_ptr.dtype.element_ty),
            mask=valid_R[:, None],
        )
