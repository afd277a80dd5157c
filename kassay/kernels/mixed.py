"""A batch of prompts and of new tokens in one call: each request by its route, fresh prompts natively.

Axes: T query tokens of all requests, packed; H query heads, G KV heads, D head dim, B requests, X pages of a sequence.

Attention only: what is new has been written to the pages before. A step is planned once and used by all layers. Every
route attends a sequence alone, so a mixed batch gives what its parts give, bit for bit. Eager: lengths are numbers of
the host here; a batch of new tokens alone, in a captured graph, is kassay.kernels.launch.Decode's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from kassay.errors import KassayError
from kassay.kernels.fill import Asked
from kassay.kernels.gather import Filling, Gathered, Rows, places
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kernels.native import Spans, attend
from kassay.kernels.route import Decision, Limits, Request, decide
from kassay.kernels.shape import DecodeShape
from kassay.kernels.split import Cut
from kassay.kernels.tuning import Book
from kassay.kv.paged import PagedLayer


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """One call of the decode kernel: new tokens, and single queries of requests on the fallback."""

    queries: Rows
    table_BX: torch.Tensor
    lengths_B: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Step:
    """What all layers of a step share."""

    decisions: tuple[Decision, ...]
    tokens: int  # queries of all requests
    table_BX: torch.Tensor
    fresh: tuple[Spans, Rows] | None
    gathered: tuple[Filling, ...]
    decoded: tuple[Decoded, ...]


class Mixed:
    """Attention of mixed batches on one layer's shape."""

    def __init__(
        self, shape: DecodeShape, host: Host, device: torch.device, batch: int, tokens: int, limits: Limits,
        cut: Cut | None = None, book: Book | None = None,
    ) -> None:  # fmt: skip
        """`batch` sequences of up to `tokens` tokens in one call of the decode kernel."""
        self.shape, self.device, self.limits = shape, device, limits
        self.decode = Decode(shape, host, device, batch, tokens, cut, book=book)
        self.gathered = Gathered(shape, host, device, limits.workspace_tokens)

    def step(self, requests: Sequence[Request], table_BX: torch.Tensor) -> Step:
        """The plan of a step. Raises KassayError for a request or a table that does not fit."""
        if not requests or len(table_BX) != len(requests):
            raise KassayError(f"{len(requests)} requests with a block table of {len(table_BX)} rows")
        longest = max(request.context for request in requests)
        if longest > self.decode.tokens:
            raise KassayError(f"a context of {longest} tokens, planned were {self.decode.tokens}")
        decisions = decide(requests, self.limits, self.shape)
        firsts = list(accumulate((request.queries for request in requests), initial=0))

        def on(*routes: str) -> list[int]:
            return [decision.request for decision in decisions if decision.route in routes]

        asked = [
            Asked(row=at, first=firsts[at], queries=requests[at].queries, context=requests[at].context)
            for at in on("gather")
        ]
        single = [
            (at, firsts[at] + query, requests[at].context - requests[at].queries + query + 1)
            for at in on("decode", "by token")
            for query in range(requests[at].queries)
        ]
        return Step(
            decisions=decisions,
            tokens=firsts[-1],
            table_BX=table_BX,
            fresh=self._fresh([(firsts[at], requests[at].queries) for at in on("fresh")]),
            gathered=self.gathered.plan(asked) if asked else (),
            decoded=tuple(
                self._decoded(single[at : at + self.decode.batch], table_BX)
                for at in range(0, len(single), self.decode.batch)
            ),
        )

    def _fresh(self, prompts: list[tuple[int, int]]) -> tuple[Spans, Rows] | None:
        if not prompts:
            return None
        counts = [queries for _, queries in prompts]
        return Spans.of(counts, counts, self.device), places([range(a, a + n) for a, n in prompts], self.device)

    def _decoded(self, single: list[tuple[int, int, int]], table_BX: torch.Tensor) -> Decoded:
        rows = [row for row, _, _ in single]
        whole = rows == list(range(len(table_BX)))
        return Decoded(
            queries=places([range(at, at + 1) for _, at, _ in single], self.device),
            table_BX=table_BX if whole else table_BX[torch.tensor(rows, device=self.device)],
            lengths_B=torch.tensor([length for _, _, length in single], dtype=torch.int32, device=self.device),
        )

    def __call__(
        self,
        step: Step,
        q_THD: torch.Tensor,
        k_TGD: torch.Tensor,
        v_TGD: torch.Tensor,
        layer: PagedLayer,
        out_THD: torch.Tensor | None = None,
        lse_TH: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """out_THD in q's format and lse_TH (FP32, natural logarithm) of all queries.

        `k_TGD` and `v_TGD` are the model's own operands of the query tokens; fresh prompts alone read them. Raises
        KassayError for operands that are not those of the step.
        """
        if not len(q_THD) == len(k_TGD) == len(v_TGD) == step.tokens:
            raise KassayError(
                f"{len(q_THD)} queries with {len(k_TGD)} keys and {len(v_TGD)} values, the step has {step.tokens}"
            )
        out = torch.empty_like(q_THD) if out_THD is None else out_THD
        lse = torch.empty(q_THD.shape[:2], dtype=torch.float32, device=q_THD.device) if lse_TH is None else lse_TH
        if step.fresh is not None:
            spans, rows = step.fresh
            out[rows], lse[rows] = attend(q_THD[rows], k_TGD[rows], v_TGD[rows], spans, causal=True)
        self.gathered(step.gathered, q_THD, layer, step.table_BX, out, lse)
        for part in step.decoded:
            q_BHD = q_THD[part.queries].contiguous()
            out[part.queries], lse[part.queries] = self.decode(q_BHD, layer, part.table_BX, part.lengths_B)
        return out, lse
