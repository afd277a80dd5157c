"""What runs on the GPU: Triton functions only. Bodies are long where a loop is; launchers beside this package are not.

Formats are numbers here: 0 is 16 bit, 1 E4M3FN, 2 INT8, 3 INT4 (kassay.kernels.shape.FORMATS). A word is what one
16-bit read along the head dim brings: one element of 16 bits, two of 8, four of 4. Lane l of a tile of words is the
matrix of elements L*i + l, and a product over D is the sum of L products over D/L.

Why words: read as bytes, an E4M3 tile of values reaches the tensor cores through byte-wise shared-memory reads, which
on an H200 ate the whole gain (r = 1.03 against 1.28 of a possible 1.32). As words it takes `ldmatrix` as FP16 does,
and is unpacked in registers, two elements an instruction.

`ASM` picks NVIDIA instructions (E4M3 needs sm_89); without it the same values come of integer arithmetic, on any
device and under Triton's interpreter. Both are exact: an 8-bit or 4-bit code is a number of FP16 and BF16.
"""
