"""All codes of every format through the portable unpackers. The instructions of `ASM` are checked on a GPU."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from kassay.kv.float8 import E4M3FN, table
from kassay.kv.integer import INT8
from kassay.kv.integer import table as integers
from tests.kernels.unpacking import pairs_kernel, quads_kernel


@pytest.mark.parametrize(("number", "values"), [(1, table(E4M3FN)), (2, integers(INT8))], ids=["e4m3fn", "int8"])
def test_all_words_of_two_codes(number: int, values: np.ndarray) -> None:
    words = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    out = torch.zeros(2 * len(words), dtype=torch.float16)
    pairs_kernel[(1,)](words, out, number, len(words))
    codes = words.numpy().view(np.uint8)
    finite = np.isfinite(values[codes])
    assert np.array_equal(out.float().numpy()[finite], values[codes][finite])
    assert finite.mean() > 0.99


def test_all_words_of_four_codes() -> None:
    words = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    out = torch.zeros(4 * len(words), dtype=torch.float16)
    quads_kernel[(1,)](words, out, len(words))
    whole = words.numpy().astype(np.int64)
    nibbles = np.stack([(whole >> (4 * lane)) & 15 for lane in range(4)], axis=-1)
    assert np.array_equal(out.numpy().reshape(-1, 4), np.where(nibbles > 7, nibbles - 16, nibbles))
