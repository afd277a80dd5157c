"""The best of a few cuts for a decoder's attention, measured on its own pages: for points of a sweep, both arms alike.

A rule that is right within some per cent can still be wrong for one arm of a ratio at one batch: on an H200 it once
cost K16/V16 so much that K16/V8 seemed to gain more than its bytes allow. So the cuts that the rule's own estimate
(kassay.kernels.split) puts first are timed in turns, each over several layers' pages, and the fastest is taken. Each is
a captured graph: an eager call costs a host more than a small one takes, and what was chosen by it was chance (a cut of
128 tokens where 32 are faster, seen behind a shared prefix at batch 64).
"""

import statistics
from dataclasses import dataclass

import torch

from kassay.backend.fused import Decoder
from kassay.kernels.cartridge import Shared
from kassay.kernels.launch import Decode
from kassay.kernels.split import candidates, cut_of, estimate_us
from kassay.kernels.timing import captured, interleaved
from kassay.kv.plane import DTYPES

ROUNDS = 5
CALLS = 12  # of a graph, each another layer's, as far as there are pools


@dataclass(frozen=True)
class Trial:
    """One cut on a decoder's own pages: a call of its number reads a layer and allocates nothing."""

    decoder: Decoder
    kernel: Decode | Shared
    q_BHD: torch.Tensor
    outs: tuple[torch.Tensor, torch.Tensor]  # out_BHD, lse_BH

    def __call__(self, at: int) -> None:
        """Attention of that layer, counted round."""
        decoder, size = self.decoder, len(self.q_BHD)
        decoder.step.attended(
            at % len(decoder.cache.layers), self.kernel, self.q_BHD, decoder.cache.table_BX[:size],
            decoder.lengths_B[:size], self.outs,
        )  # fmt: skip


def tune(decoder: Decoder, size: int, cuts: int) -> None:
    """Let the decoder attend to batches of that size by the fastest of so many cuts."""
    shape, host, tokens = decoder.shape, decoder.host, decoder.plan.row_tokens
    ranked = sorted(
        candidates(shape, host, size, tokens), key=lambda cut: estimate_us(shape, host, size, tokens, cut)
    )  # fmt: skip
    tried = list(dict.fromkeys([cut_of(shape, host, size, tokens, uneven=decoder.plan.uneven), *ranked]))[:cuts]
    q_BHD = torch.randn(size, shape.query_heads, shape.head_dim, device=decoder.device).to(
        DTYPES[shape.recipe.sixteen]
    )  # fmt: skip
    kernels = {str(number): decoder.attention(size, cut) for number, cut in enumerate(tried)}
    graphs = {}
    for name, kernel in kernels.items():
        outs = torch.empty_like(q_BHD), torch.empty(q_BHD.shape[:2], dtype=torch.float32, device=decoder.device)
        graphs[name] = captured(Trial(decoder, kernel, q_BHD, outs), CALLS)
    times = interleaved(graphs, CALLS, ROUNDS)
    decoder.attends[size] = kernels[min(kernels, key=lambda name: statistics.median(times[name]))]
