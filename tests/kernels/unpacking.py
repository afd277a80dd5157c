"""Kernels that unpack words and store their elements, for a test: defined while the interpreter is on."""

import triton
import triton.language as tl

from kassay.kernels.device.unpack import pairs, quads


@triton.jit
def pairs_kernel(words_ptr, out_ptr, FORMAT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    even, odd = pairs(tl.load(words_ptr + at), FORMAT, False)
    tl.store(out_ptr + 2 * at, even)
    tl.store(out_ptr + 2 * at + 1, odd)


@triton.jit
def quads_kernel(words_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c, d = quads(tl.load(words_ptr + at), False)
    tl.store(out_ptr + 4 * at, a)
    tl.store(out_ptr + 4 * at + 1, b)
    tl.store(out_ptr + 4 * at + 2, c)
    tl.store(out_ptr + 4 * at + 3, d)
