"""The queries of a program by the lanes of a word of keys, and what their products start from.

Axes: N tokens of a step, R query heads of one KV head, W words (kassay.kernels.device.unpack).

COLUMNS: queries are columns, for kassay.kernels.device.columns; else rows, for kassay.kernels.device.walk.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
RAISED_STEP = tl.constexpr(2.0**-24)


@triton.jit
def query_lane(
    q_ptr,
    rows_R,
    valid_R,
    in_group_R,
    D: tl.constexpr,
    LANES: tl.constexpr,
    lane: tl.constexpr,
    WIDE: tl.constexpr,
    SECOND: tl.constexpr,  # of columns alone
    COLUMNS: tl.constexpr,
):
    """Elements LANES * i + lane of the queries, WR or RW; those of padding, and of another head, are 0."""
    if SECOND:
        at_W = tl.arange(0, D // LANES) * LANES + lane
        own_WR = (at_W >= D // 2)[:, None] == (in_group_R >= SECOND)[None, :]
        at_WR = rows_R[None, :] * (D // 2) + (at_W % (D // 2))[:, None]
        q = tl.load(q_ptr + at_WR, mask=valid_R[None, :] & own_WR, other=0.0)
    elif COLUMNS:
        at_WR = rows_R[None, :] * D + tl.arange(0, D // LANES)[:, None] * LANES + lane
        q = tl.load(q_ptr + at_WR, mask=valid_R[None, :], other=0.0)
    else:
        at_RW = rows_R[:, None] * D + tl.arange(0, D // LANES)[None, :] * LANES + lane
        q = tl.load(q_ptr + at_RW, mask=valid_R[:, None], other=0.0)
    return q.to(tl.float32) if WIDE else q


@triton.jit
def asked(
    q_ptr,
    rows_R,
    valid_R,
    in_group_R,
    k_scale_ptr,
    scale,
    D: tl.constexpr,
    K_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    RAISED: tl.constexpr,
    WIDE: tl.constexpr,
    SECOND: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Queries by lanes, where their products start, and what a product is multiplied by."""
    K_LANES: tl.constexpr = 1 if K_FORMAT == 0 else (4 if K_FORMAT == 3 else 2)
    q0 = query_lane(q_ptr, rows_R, valid_R, in_group_R, D, K_LANES, 0, WIDE, SECOND, COLUMNS)
    q1 = q0
    q2 = q0
    q3 = q0
    if K_LANES > 1:
        q1 = query_lane(q_ptr, rows_R, valid_R, in_group_R, D, K_LANES, 1, WIDE, SECOND, COLUMNS)
    if K_LANES > 2:
        q2 = query_lane(q_ptr, rows_R, valid_R, in_group_R, D, K_LANES, 2, WIDE, SECOND, COLUMNS)
        q3 = query_lane(q_ptr, rows_R, valid_R, in_group_R, D, K_LANES, 3, WIDE, SECOND, COLUMNS)

    logit_scale = scale * LOG2_E
    start = tl.zeros((BLOCK_N, BLOCK_R) if COLUMNS else (BLOCK_R, BLOCK_N), tl.float32)
    if RAISED:
        WORDS: tl.constexpr = 0 if COLUMNS else 1
        sum_R = tl.sum(q0.to(tl.float32) + q1.to(tl.float32) + q2.to(tl.float32) + q3.to(tl.float32), WORDS)
        start += tl.expand_dims(sum_R * (-8.0 * RAISED_STEP), WORDS)
        q1 = (q1.to(tl.float32) * 0.0625).to(q0.dtype)
        q3 = (q3.to(tl.float32) * 0.0625).to(q0.dtype)
        logit_scale /= RAISED_STEP
    if K_FORMAT != 0 and not K_DYNAMIC:
        logit_scale *= tl.load(k_scale_ptr)
    return q0, q1, q2, q3, start, logit_scale
