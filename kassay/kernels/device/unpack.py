"""Words of 16 bits to their elements in FP16: two E4M3 or INT8 codes, or four INT4 codes, lowest bits first."""

import triton
import triton.language as tl

# Bytes 0, 2 and 1, 3 of two words side by side: the even codes of both, and the odd ones.
E4M3_ASM = tl.constexpr(
    """{
    .reg .b32 sorted;
    .reg .b16 even, odd;
    prmt.b32 sorted, $2, $2, 0x3120;
    mov.b32 {even, odd}, sorted;
    cvt.rn.f16x2.e4m3x2 $0, even;
    cvt.rn.f16x2.e4m3x2 $1, odd;
    }"""
)
# 0x6400 is 1024 in FP16, whose last bit is 1: a byte b + 128 below it is 1152 + b.
INT8_ASM = tl.constexpr(
    """{
    .reg .b32 raised, minus;
    xor.b32 raised, $2, 0x80808080;
    mov.b32 minus, 0xE480E480;
    prmt.b32 $0, raised, 0x64646464, 0x4240;
    prmt.b32 $1, raised, 0x64646464, 0x4341;
    add.f16x2 $0, $0, minus;
    add.f16x2 $1, $1, minus;
    }"""
)
# A nibble n + 8 below 1024 is 1032 + n; four bits higher it counts 16, so (1024 + 16 (n + 8)) / 16 - 72 is n.
INT4_ASM = tl.constexpr(
    """{
    .reg .b32 high, minus, part, less;
    mov.b32 minus, 0xE408E408;
    mov.b32 part, 0x2C002C00;
    mov.b32 less, 0xD480D480;
    shr.u32 high, $4, 8;
    lop3.b32 $0, $4, 0x000F000F, 0x64086408, 0x6A;
    lop3.b32 $1, $4, 0x00F000F0, 0x64806480, 0x6A;
    lop3.b32 $2, high, 0x000F000F, 0x64086408, 0x6A;
    lop3.b32 $3, high, 0x00F000F0, 0x64806480, 0x6A;
    add.f16x2 $0, $0, minus;
    fma.rn.f16x2 $1, $1, part, less;
    add.f16x2 $2, $2, minus;
    fma.rn.f16x2 $3, $3, part, less;
    }"""
)
# The same nibbles without an addition: n + 8 in the last bits of FP16 is the subnormal number 2^-24 (n + 8), and four
# bits higher 2^-20 (n + 8). Tensor cores take subnormals as they are.
RAISED_INT4_ASM = tl.constexpr(
    """{
    .reg .b32 high;
    shr.u32 high, $4, 8;
    lop3.b32 $0, $4, 0x000F000F, 0x00080008, 0x6A;
    lop3.b32 $1, $4, 0x00F000F0, 0x00800080, 0x6A;
    lop3.b32 $2, high, 0x000F000F, 0x00080008, 0x6A;
    lop3.b32 $3, high, 0x00F000F0, 0x00800080, 0x6A;
    }"""
)


@triton.jit
def e4m3_bits(high):
    """FP16 of an E4M3 code in the upper byte: its bits shifted into FP16's fields are 2^-8 of it."""
    return ((high & -0x8000) | ((high >> 1) & 0x3F80)).to(tl.float16, bitcast=True) * 256.0


@triton.jit
def pairs(words, FORMAT: tl.constexpr, ASM: tl.constexpr):
    """Elements 0 and 1 of words of two codes."""
    if FORMAT == 1:
        if ASM:
            even, odd = tl.inline_asm_elementwise(
                E4M3_ASM, "=r,=r,r", [words], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
            )
        else:
            even, odd = e4m3_bits(words << 8), e4m3_bits(words)
    else:
        if ASM:
            even, odd = tl.inline_asm_elementwise(
                INT8_ASM, "=&r,=&r,r", [words], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
            )
        else:
            even, odd = ((words << 8) >> 8).to(tl.float16), (words >> 8).to(tl.float16)
    return even, odd


@triton.jit
def quads(words, ASM: tl.constexpr):
    """Elements 0 to 3 of words of four INT4 codes."""
    if ASM:
        a, b, c, d = tl.inline_asm_elementwise(
            INT4_ASM,
            "=&r,=&r,=&r,=&r,r",
            [words],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        a, b = ((words << 12) >> 12).to(tl.float16), ((words << 8) >> 12).to(tl.float16)
        c, d = ((words << 4) >> 12).to(tl.float16), (words >> 12).to(tl.float16)
    return a, b, c, d


@triton.jit
def raised_quads(words):
    """Of words of four INT4 codes: 2^-24 (n + 8) of elements 0 and 2, 2^-20 (n + 8) of 1 and 3. NVIDIA only."""
    a, b, c, d = tl.inline_asm_elementwise(
        RAISED_INT4_ASM,
        "=&r,=&r,=&r,=&r,r",
        [words],
        dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
        is_pure=True,
        pack=2,
    )
    return a, b, c, d


@triton.jit
def elements(words_RW, FORMAT: tl.constexpr, ASM: tl.constexpr):
    """Elements RD of rows of words, in FP16; of a 16-bit format the words themselves."""
    if FORMAT == 0:
        x_RD = words_RW
    elif FORMAT == 3:
        a, b, c, d = quads(words_RW, ASM)
        x_RD = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    else:
        even, odd = pairs(words_RW, FORMAT, ASM)
        x_RD = tl.interleave(even, odd)
    return x_RD
