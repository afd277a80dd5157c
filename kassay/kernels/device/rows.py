"""What a decoder layer does to a row beside its products: norms, the turned heads and their place in pages, the gate.

Axes: N rows (tokens), H query heads, G KV heads, R rows of a tile, D head dim, P half of it; W hidden or intermediate.

Formulas and roundings are those of transformers' dense models: a norm is taken in FP32, rounded, and multiplied by its
weight; the first half of a head is turned with the second. Keys and values are rounded to 16 bits before anything is
stored, and what is stored is written by kassay.kernels.device.write, bit for bit as everywhere.

Each of these ends in microseconds. So each may be launched while the one before it ends (PDL): it then waits before it
reads what that one wrote.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kassay.kernels.device.place import beside_of, row_of
from kassay.kernels.device.write import component


@triton.jit
def add_norm(
    hidden_ptr,  # NW, read and, with ADD, written
    added_ptr,  # NW
    weight_ptr,  # W
    out_ptr,  # NW
    epsilon,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    PDL: tl.constexpr,
):
    """hidden += added; out = hidden / sqrt(mean(hidden^2) + epsilon) * weight, one row."""
    if PDL:
        gdc_launch_dependents()
    at_W = tl.arange(0, BLOCK)
    valid_W = at_W < WIDTH
    weight_W = tl.load(weight_ptr + at_W, mask=valid_W, other=0.0)
    if PDL:
        gdc_wait()
    from_W = tl.program_id(0).to(tl.int64) * WIDTH + at_W
    x_W = tl.load(hidden_ptr + from_W, mask=valid_W, other=0.0)
    if ADD:
        y_W = tl.load(added_ptr + from_W, mask=valid_W, other=0.0)
        x_W = (x_W.to(tl.float32) + y_W.to(tl.float32)).to(x_W.dtype)
        tl.store(hidden_ptr + from_W, x_W, mask=valid_W)
    wide_W = x_W.to(tl.float32)
    share = 1.0 / tl.sqrt_rn(tl.sum(wide_W * wide_W, 0) / WIDTH + epsilon)
    tl.store(out_ptr + from_W, (wide_W * share).to(x_W.dtype) * weight_W, mask=valid_W)


@triton.jit
def gate(
    both_ptr,  # N x 2W: what is gated, then what gates it
    out_ptr,  # NW
    width,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """out = silu(first half) * second half."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    at_W = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid_W = at_W < width
    x_W = tl.load(both_ptr + 2 * row * width + at_W, mask=valid_W, other=0.0)
    y_W = tl.load(both_ptr + (2 * row + 1) * width + at_W, mask=valid_W, other=0.0)
    wide_W = x_W.to(tl.float32)
    tl.store(out_ptr + row * width + at_W, (wide_W / (1.0 + tl.exp(-wide_W))).to(x_W.dtype) * y_W, mask=valid_W)


@triton.jit
def turned(first_RP, second_RP, weights, cos_P, sin_P, epsilon, D: tl.constexpr, NORM: tl.constexpr):
    """Both halves of heads after norm and RoPE, FP32."""
    a_RP, b_RP = first_RP.to(tl.float32), second_RP.to(tl.float32)
    if NORM:
        squares_R = tl.sum(a_RP * a_RP, 1) + tl.sum(b_RP * b_RP, 1)
        share_R1 = (1.0 / tl.sqrt_rn(squares_R / D + epsilon))[:, None]
        half_P = tl.arange(0, D // 2)
        low_P, high_P = tl.load(weights + half_P), tl.load(weights + D // 2 + half_P)
        a_RP = ((a_RP * share_R1).to(first_RP.dtype) * low_P[None, :]).to(tl.float32)
        b_RP = ((b_RP * share_R1).to(first_RP.dtype) * high_P[None, :]).to(tl.float32)
    cos_1P, sin_1P = cos_P[None, :], sin_P[None, :]
    return a_RP * cos_1P - b_RP * sin_1P, b_RP * cos_1P + a_RP * sin_1P


@triton.jit(do_not_specialize=["table_stride", "positions"])
def turn_and_store(
    heads_ptr,  # N x (H + 2G) x D: queries, keys, values as they were projected
    q_ptr,  # NHD
    kv_ptr,  # N x 2 x G x D, 16 bit: the operands that are stored
    q_weight_ptr,  # D, of the norm
    k_weight_ptr,
    turns_ptr,  # positions x 2 x P, FP32: cosines and sines
    bias_ptr,  # of pre-biased keys, FP32 GD
    unbiased_ptr,  # NGD, FP32: those keys without it
    position_ptr,  # N, int32; below 0 a row of padding, which stores nothing
    row_ptr,  # N, int32: which row of the table it has
    table_ptr,  # BX, int32
    k_data_ptr,  # PSHW
    v_data_ptr,
    k_scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    v_scale_ptr,
    epsilon,
    table_stride,
    positions,
    GROUP: tl.constexpr,  # query heads of a KV head
    NORM: tl.constexpr,
    PREBIAS: tl.constexpr,
    BLOCK_R: tl.constexpr,  # power of two from the group
    PDL: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    K_PAGE: tl.constexpr,  # as kassay.kernels.device.write has them
    V_PAGE: tl.constexpr,
    K_SCALE_PAGE: tl.constexpr,
    V_SCALE_PAGE: tl.constexpr,
    K_LARGEST: tl.constexpr,
    V_LARGEST: tl.constexpr,
    K_RECIPROCAL: tl.constexpr,
    V_RECIPROCAL: tl.constexpr,
):
    """One KV head of one token, and the query heads that read it."""
    if PDL:
        gdc_launch_dependents()
    n = tl.program_id(0).to(tl.int64)
    g = tl.program_id(1)
    position = tl.load(position_ptr + n)
    half_P = tl.arange(0, D // 2)
    turn_P = tl.minimum(tl.maximum(position, 0), positions - 1) * D + half_P
    cos_P, sin_P = tl.load(turns_ptr + turn_P), tl.load(turns_ptr + turn_P + D // 2)
    place = tl.maximum(position, 0)
    page = tl.load(table_ptr + tl.load(row_ptr + n).to(tl.int64) * table_stride + place // PAGE).to(tl.int64)
    if PDL:
        gdc_wait()
    token_ptr = heads_ptr + n * ((GROUP + 2) * KV_HEADS) * D

    rows_R = tl.arange(0, BLOCK_R)
    in_group_RP = (rows_R < GROUP)[:, None]
    at_RP = (g * GROUP + rows_R)[:, None] * D + half_P[None, :]
    a_RP = tl.load(token_ptr + at_RP, mask=in_group_RP, other=0.0)
    b_RP = tl.load(token_ptr + at_RP + D // 2, mask=in_group_RP, other=0.0)
    a_RP, b_RP = turned(a_RP, b_RP, q_weight_ptr, cos_P, sin_P, epsilon, D, NORM)
    to_ptr = q_ptr + n * (GROUP * KV_HEADS) * D
    tl.store(to_ptr + at_RP, a_RP.to(q_ptr.dtype.element_ty), mask=in_group_RP)
    tl.store(to_ptr + at_RP + D // 2, b_RP.to(q_ptr.dtype.element_ty), mask=in_group_RP)

    key_1P = (GROUP * KV_HEADS + g + tl.arange(0, 1))[:, None] * D + half_P[None, :]
    a_1P, b_1P = tl.load(token_ptr + key_1P), tl.load(token_ptr + key_1P + D // 2)
    a_1P, b_1P = turned(a_1P, b_1P, k_weight_ptr, cos_P, sin_P, epsilon, D, NORM)
    k_ptr = kv_ptr + (n * 2 * KV_HEADS + g) * D
    v_ptr = k_ptr + KV_HEADS * D
    one_1P = tl.arange(0, 1)[:, None] + half_P[None, :]
    a_1P, b_1P = a_1P.to(kv_ptr.dtype.element_ty), b_1P.to(kv_ptr.dtype.element_ty)
    tl.store(k_ptr + one_1P, a_1P)
    tl.store(k_ptr + one_1P + D // 2, b_1P)
    x_ptr = k_ptr
    if PREBIAS:
        x_ptr = unbiased_ptr + (n * KV_HEADS + g) * D
        wave_P, over_P = cos_P.to(tl.float16).to(tl.float32), sin_P.to(tl.float16).to(tl.float32)
        one_P, two_P = tl.load(bias_ptr + g * D + half_P), tl.load(bias_ptr + g * D + D // 2 + half_P)
        tl.store(x_ptr + one_1P, a_1P.to(tl.float32) - (one_P * wave_P - two_P * over_P)[None, :])
        tl.store(x_ptr + one_1P + D // 2, b_1P.to(tl.float32) - (two_P * wave_P + one_P * over_P)[None, :])
    at_D = tl.arange(0, D)
    v_D = tl.load(token_ptr + ((GROUP + 1) * KV_HEADS + g) * D + at_D)
    tl.store(v_ptr + at_D, v_D.to(kv_ptr.dtype.element_ty))
    tl.debug_barrier()  # the halves of a head were written by other threads than read them now

    one_R = tl.arange(0, 1)
    valid_R = one_R + position >= 0
    K_WIDTH: tl.constexpr = D // (2 if K_FORMAT == 3 else 1)
    V_WIDTH: tl.constexpr = D // (2 if V_FORMAT == 3 else 1)
    k_row_R = one_R + row_of(page, place, g, KV_HEADS, PAGE, K_WIDTH, K_PAGE)
    v_row_R = one_R + row_of(page, place, g, KV_HEADS, PAGE, V_WIDTH, V_PAGE)
    k_by_R = one_R + beside_of(page, place, g, KV_HEADS, PAGE, K_SCALE_PAGE)
    v_by_R = one_R + beside_of(page, place, g, KV_HEADS, PAGE, V_SCALE_PAGE)
    component(
        x_ptr, k_data_ptr, k_scale_ptr, one_R, k_row_R, k_by_R, valid_R,
        D, K_FORMAT, K_DYNAMIC, K_LARGEST, K_RECIPROCAL,
    )  # fmt: skip
    component(
        v_ptr, v_data_ptr, v_scale_ptr, one_R, v_row_R, v_by_R, valid_R,
        D, V_FORMAT, V_DYNAMIC, V_LARGEST, V_RECIPROCAL,
    )  # fmt: skip
