"""Pages of chosen sequences to packed 16-bit keys and values, for a prefill kernel that knows no pages and no codes.

Axes: L pieces (a range of tokens of one sequence), N tokens of the workspace, H KV heads, D head dim, R rows (token and
head) of a program, W words, X pages of a sequence. One program some rows of one piece. A scaled code is rounded once.
"""

import triton
import triton.language as tl

from kassay.kernels.device.place import beside_of, row_of
from kassay.kernels.device.unpack import elements


@triton.jit
def gathered(
    words_ptr,  # PSHW
    scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    to_ptr,  # NHD, 16 bit
    row_R,  # where the row of words lies
    beside_R,  # where the row's scale lies
    to_R,  # token of the workspace * H + head
    valid_R,
    D: tl.constexpr,
    FORMAT: tl.constexpr,
    DYNAMIC: tl.constexpr,
    ASM: tl.constexpr,
):
    """One component of a program's rows."""
    LANES: tl.constexpr = 1 if FORMAT == 0 else (4 if FORMAT == 3 else 2)
    WORDS: tl.constexpr = D // LANES
    words_RW = tl.load(words_ptr + row_R[:, None] + tl.arange(0, WORDS)[None, :], mask=valid_R[:, None], other=0)
    x_RD = elements(words_RW, FORMAT, ASM)
    if FORMAT != 0:
        if DYNAMIC:
            x_RD = x_RD.to(tl.float32) * tl.load(scale_ptr + beside_R, mask=valid_R, other=0.0)[:, None]
        else:
            x_RD = x_RD.to(tl.float32) * tl.load(scale_ptr)
    at_RD = to_R[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(to_ptr + at_RD, x_RD.to(to_ptr.dtype.element_ty), mask=valid_R[:, None])


@triton.jit(do_not_specialize=["table_stride"])
def gather_pages(
    k_words_ptr,
    v_words_ptr,
    k_scale_ptr,
    v_scale_ptr,
    k_to_ptr,
    v_to_ptr,
    table_ptr,  # BX, int32
    piece_ptr,  # L4, int32: row of the table, first token, tokens, first token of the workspace
    table_stride,
    KV_HEADS: tl.constexpr,
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
    BLOCK: tl.constexpr,  # rows of a program
    ASM: tl.constexpr,
):
    """Keys and values of some rows of one piece."""
    piece = piece_ptr + tl.program_id(1) * 4
    tokens = tl.load(piece + 2)
    R = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) * BLOCK >= tokens * KV_HEADS:
        return
    token_R, head_R = R // KV_HEADS, R % KV_HEADS
    valid_R = token_R < tokens
    at_R = tl.load(piece + 1) + token_R
    pages_ptr = table_ptr + tl.load(piece).to(tl.int64) * table_stride
    page_R = tl.load(pages_ptr + at_R // PAGE, mask=valid_R, other=0)
    K_WORDS: tl.constexpr = D // (1 if K_FORMAT == 0 else (4 if K_FORMAT == 3 else 2))
    V_WORDS: tl.constexpr = D // (1 if V_FORMAT == 0 else (4 if V_FORMAT == 3 else 2))
    k_row_R = row_of(page_R, at_R, head_R, KV_HEADS, PAGE, K_WORDS, K_PAGE)
    v_row_R = row_of(page_R, at_R, head_R, KV_HEADS, PAGE, V_WORDS, V_PAGE)
    k_by_R = beside_of(page_R, at_R, head_R, KV_HEADS, PAGE, K_SCALE_PAGE)
    v_by_R = beside_of(page_R, at_R, head_R, KV_HEADS, PAGE, V_SCALE_PAGE)
    to_R = (tl.load(piece + 3) + token_R).to(tl.int64) * KV_HEADS + head_R
    gathered(k_words_ptr, k_scale_ptr, k_to_ptr, k_row_R, k_by_R, to_R, valid_R, D, K_FORMAT, K_DYNAMIC, ASM)
    gathered(v_words_ptr, v_scale_ptr, v_to_ptr, v_row_R, v_by_R, to_R, valid_R, D, V_FORMAT, V_DYNAMIC, ASM)
