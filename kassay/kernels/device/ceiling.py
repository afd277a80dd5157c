"""What a read of whole pages through a block table reaches: the ceiling of a kernel that only reads."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["table_stride"])
def read_pages(
    k_ptr,  # PSHD as int32 words
    v_ptr,
    out_ptr,  # one number a page of a table
    table_ptr,  # BX, int32
    table_stride,
    WORDS: tl.constexpr,  # of a page, one component
    BLOCK: tl.constexpr,
):
    """Keys and values of one page, reduced to a number that nobody needs."""
    index, b = tl.program_id(0), tl.program_id(1)
    page = tl.load(table_ptr + b.to(tl.int64) * table_stride + index).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.int32)
    for start in tl.static_range(0, WORDS, BLOCK):
        at = page * WORDS + start + tl.arange(0, BLOCK)
        total ^= tl.load(k_ptr + at) ^ tl.load(v_ptr + at)
    tl.store(out_ptr + b * tl.num_programs(0) + index, tl.max(total, 0))
