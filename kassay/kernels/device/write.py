"""Quantize keys and values and store them into pages, fixed and dynamic scales.

Axes: N tokens, H KV heads, D head dim, R rows of a tile: token and head.

Bits equal kassay.kv.formats: FP32 throughout, the division rounded to nearest (Triton's `/` is not), codes rounded to
nearest even from FP32 in one step on the bits, on every device alike. A conversion instruction would do the same
on sm_89; writing is memory traffic, and one path is one thing to prove.
"""

import triton
import triton.language as tl

from kassay.kernels.device.place import beside_of, row_of

FLOOR = tl.constexpr(9.999999960041972e-13)  # kassay.kv.formats.SCALE_FLOOR in FP32


@triton.jit
def e4m3_code(x):
    """Codes of FP32 values of at most 448: half of the last kept bit is added; below 2^-6 the sum with 2^14 rounds."""
    bits = x.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - 960
    tiny = (magnitude.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    return tl.where(magnitude < 0x3C800000, tiny, normal) | ((bits >> 24) & 0x80)


@triton.jit
def integer_code(x):
    """Nearest integers, ties to even: the last bit of a sum with 1.5 * 2^23 is 1."""
    return (x + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000


@triton.jit
def component(
    x_ptr,
    data_ptr,
    scale_ptr,
    x_R,  # first element of a row
    row_R,  # where the row of codes lies
    beside_R,  # where the row's scale lies
    valid_R,
    D: tl.constexpr,
    FORMAT: tl.constexpr,
    DYNAMIC: tl.constexpr,
    LARGEST: tl.constexpr,
    RECIPROCAL: tl.constexpr,
):
    """Store one component of a tile of rows."""
    LANES: tl.constexpr = 2 if FORMAT == 3 else 1
    WIDTH: tl.constexpr = D // LANES
    at_RW = row_R[:, None] + tl.arange(0, WIDTH)[None, :]
    from_RW = x_R[:, None] + tl.arange(0, WIDTH)[None, :] * LANES
    first_RW = tl.load(x_ptr + from_RW, mask=valid_R[:, None], other=0.0)
    if FORMAT == 0:
        tl.store(data_ptr + at_RW, first_RW, mask=valid_R[:, None])
    else:
        wide_RW = first_RW.to(tl.float32)
        other_RW = wide_RW
        if LANES == 2:
            other_RW = tl.load(x_ptr + from_RW + 1, mask=valid_R[:, None], other=0.0).to(tl.float32)
        if DYNAMIC:
            amax_R = tl.max(tl.maximum(tl.abs(wide_RW), tl.abs(other_RW)), 1)
            scale_R = tl.maximum(amax_R, FLOOR) * RECIPROCAL
            tl.store(scale_ptr + beside_R, scale_R, mask=valid_R)
            scale_R1 = scale_R[:, None]
        else:
            scale_R1 = tl.load(scale_ptr) + tl.zeros_like(wide_RW)
        quotient_RW = tl.div_rn(wide_RW, tl.broadcast_to(scale_R1, wide_RW.shape))
        clipped_RW = tl.minimum(tl.maximum(quotient_RW, -LARGEST), LARGEST)
        code_RW = e4m3_code(clipped_RW) if FORMAT == 1 else integer_code(clipped_RW)
        if LANES == 2:
            quotient_RW = tl.div_rn(other_RW, tl.broadcast_to(scale_R1, other_RW.shape))
            clipped_RW = tl.minimum(tl.maximum(quotient_RW, -LARGEST), LARGEST)
            code_RW = (code_RW & 0xF) | (integer_code(clipped_RW) << 4)
        tl.store(data_ptr + at_RW, code_RW.to(tl.uint8), mask=valid_R[:, None])


@triton.jit(do_not_specialize=["tokens", "k_stride", "v_stride"])
def write_pages(
    k_ptr,  # NHD, 16 bit; D and H contiguous
    v_ptr,
    slot_ptr,  # N, int64; -1 stores nothing
    k_data_ptr,  # PSHW
    v_data_ptr,
    k_scale_ptr,  # FP32: PHS if dynamic, one number if fixed
    v_scale_ptr,
    tokens,
    k_stride,
    v_stride,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    K_FORMAT: tl.constexpr,
    V_FORMAT: tl.constexpr,
    K_DYNAMIC: tl.constexpr,
    V_DYNAMIC: tl.constexpr,
    K_PAGE: tl.constexpr,  # stored elements from a page to the next where other planes lie between them; 0: none do
    V_PAGE: tl.constexpr,
    K_SCALE_PAGE: tl.constexpr,  # FP32 numbers, in the same way
    V_SCALE_PAGE: tl.constexpr,
    K_LARGEST: tl.constexpr,
    V_LARGEST: tl.constexpr,
    K_RECIPROCAL: tl.constexpr,
    V_RECIPROCAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Keys and values of a tile of rows."""
    R = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    token_R, head_R = R // KV_HEADS, R % KV_HEADS
    slot_R = tl.load(slot_ptr + token_R, mask=token_R < tokens, other=-1)
    valid_R = slot_R >= 0
    page_R, place_R = slot_R // PAGE, slot_R % PAGE
    K_WIDTH: tl.constexpr = D // (2 if K_FORMAT == 3 else 1)
    V_WIDTH: tl.constexpr = D // (2 if V_FORMAT == 3 else 1)
    k_row_R = row_of(page_R, place_R, head_R, KV_HEADS, PAGE, K_WIDTH, K_PAGE)
    v_row_R = row_of(page_R, place_R, head_R, KV_HEADS, PAGE, V_WIDTH, V_PAGE)
    k_by_R = beside_of(page_R, place_R, head_R, KV_HEADS, PAGE, K_SCALE_PAGE)
    v_by_R = beside_of(page_R, place_R, head_R, KV_HEADS, PAGE, V_SCALE_PAGE)
    k_R, v_R = token_R * k_stride + head_R * D, token_R * v_stride + head_R * D
    component(
        k_ptr, k_data_ptr, k_scale_ptr, k_R, k_row_R, k_by_R, valid_R, D, K_FORMAT, K_DYNAMIC, K_LARGEST, K_RECIPROCAL
    )
    component(
        v_ptr, v_data_ptr, v_scale_ptr, v_R, v_row_R, v_by_R, valid_R, D, V_FORMAT, V_DYNAMIC, V_LARGEST, V_RECIPROCAL
    )
