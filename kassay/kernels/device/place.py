"""Where a token's words and scales lie: pages packed one after the other, or as planes of a larger page of bytes.

STEP is the distance from a page of one plane to the next page of the same plane. 0 says that the plane is packed:
its slots follow each other, and the address is that of the slot. vLLM's pools hold keys, values and their scales of
16 tokens in one page of bytes, so a plane's pages lie STEP apart (plugins/vllm).
"""

import triton
import triton.language as tl


@triton.jit
def row_of(page, place, head, KV_HEADS: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr):
    """First element of a token's row of one head, from the plane's first; int64."""
    if STEP == 0:
        at = ((page.to(tl.int64) * PAGE + place % PAGE) * KV_HEADS + head) * WIDTH
    else:
        at = page.to(tl.int64) * STEP + (place % PAGE * KV_HEADS + head) * WIDTH
    return at


@triton.jit
def beside_of(page, place, head, KV_HEADS: tl.constexpr, PAGE: tl.constexpr, STEP: tl.constexpr):
    """Where the token's scale of one head lies, from the plane's first; int64."""
    if STEP == 0:
        at = (page.to(tl.int64) * KV_HEADS + head) * PAGE + place % PAGE
    else:
        at = page.to(tl.int64) * STEP + head * PAGE + place % PAGE
    return at


@triton.constexpr_function
def page_step(kv_heads: int, page_tokens: int, width: int, step: int) -> int:
    """Elements from a page of a plane to its next; `width` of a token and head, 1 in a plane of scales."""
    return step if step else page_tokens * kv_heads * width
