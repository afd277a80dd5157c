"""The best of a few cuts for a decoder's attention, measured on its own pages: for points of a sweep, both arms alike.

A rule that is right within some per cent can still be wrong for one arm of a ratio at one batch: on an H200 it once
cost K16/V16 so much that K16/V8 seemed to gain more than its bytes allow. So the cuts that the rule's own estimate
(kassay.kernels.split) puts first are timed in turns, each over several layers' pages, and the fastest is taken.
"""

import statistics

import torch

from kassay.backend.fused import Decoder
from kassay.kernels.split import Cut, candidates, cut_of, estimate_us
from kassay.kernels.timing import mark
from kassay.kv.plane import DTYPES

ROUNDS = 3
LAYERS = 4  # whose pages one timing reads


def tune(decoder: Decoder, size: int, cuts: int) -> None:
    """Let the decoder attend to batches of that size by the fastest of so many cuts."""
    shape, host, tokens = decoder.shape, decoder.host, decoder.plan.row_tokens
    ranked = sorted(
        candidates(shape, host, size, tokens), key=lambda cut: estimate_us(shape, host, size, tokens, cut)
    )  # fmt: skip
    tried = list(dict.fromkeys([cut_of(shape, host, size, tokens, uneven=decoder.plan.uneven), *ranked]))[:cuts]
    kernels = {cut: decoder.attention(size, cut) for cut in tried}
    q_BHD = torch.randn(size, shape.query_heads, shape.head_dim, device=decoder.device).to(
        DTYPES[shape.recipe.sixteen]
    )  # fmt: skip
    times: dict[Cut, list[float]] = {cut: [] for cut in tried}
    for number in range(ROUNDS + 1):
        for cut, kernel in kernels.items():
            began, ended = mark(), mark()
            began.record()
            for index in range(min(LAYERS, len(decoder.cache.layers))):
                decoder.step.attended(index, kernel, q_BHD, decoder.cache.table_BX[:size], decoder.lengths_B[:size])
            ended.record()
            ended.synchronize()
            if number:  # the first compiles
                times[cut].append(float(began.elapsed_time(ended)))
    best = min(tried, key=lambda cut: statistics.median(times[cut]))
    decoder.attends[size] = kernels[best]
