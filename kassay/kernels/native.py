"""Native prefill attention: packed 16-bit queries, keys and values of several sequences, by kernels that torch has.

Axes: T query tokens and S keys of all sequences, packed; H query heads, G KV heads, D head dim.

On a GPU one call of FlashAttention's variable-length kernel, as torch ships it; on a CPU torch's flash kernel, sequence
by sequence. Both return the log-normalizer, by which parts of one softmax are merged (`Merge`). A causal call has the
queries of a sequence at the end of its keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from kassay.errors import KassayError


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Where sequences begin and end among packed queries and keys."""

    queries: tuple[int, ...]  # starts, and the end of the last
    keys: tuple[int, ...]
    queries_on: torch.Tensor  # the same, int32 on the device
    keys_on: torch.Tensor
    most_queries: int  # of one sequence
    most_keys: int

    @classmethod
    def of(cls, queries: Sequence[int], keys: Sequence[int], device: torch.device) -> "Spans":
        """From the counts of each sequence. Raises KassayError for unequal numbers of them, or a count below 1."""
        if len(queries) != len(keys) or not queries or min(*queries, *keys) < 1:
            raise KassayError(f"spans of queries {list(queries)} and keys {list(keys)}: one of each, at least 1")
        q, k = (tuple(accumulate(counts, initial=0)) for counts in (queries, keys))
        on = [torch.tensor(starts, dtype=torch.int32, device=device) for starts in (q, k)]
        return cls(queries=q, keys=k, queries_on=on[0], keys_on=on[1], most_queries=max(queries), most_keys=max(keys))


def attend(
    q_THD: torch.Tensor, k_SGD: torch.Tensor, v_SGD: torch.Tensor, spans: Spans, *, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """out_THD in q's format, lse_TH in FP32 (natural logarithm).

    Raises KassayError for operands that the spans do not cover, of other formats or heads, and for a causal sequence of
    more queries than keys.
    """
    _check(q_THD, k_SGD, v_SGD, spans, causal)
    if q_THD.is_cuda:
        out_THD, lse, *_ = torch.ops.aten._flash_attention_forward(
            q_THD, k_SGD, v_SGD, spans.queries_on, spans.keys_on, spans.most_queries, spans.most_keys,
            0.0, causal, False,
        )  # fmt: skip
        if lse.shape != (q_THD.shape[1], len(q_THD)):
            raise KassayError(f"torch {torch.__version__} returns a log-normalizer of {tuple(lse.shape)}, not (H, T)")
        return out_THD, lse.T
    parts = [
        _on_cpu(q_THD[a:b], k_SGD[c:d], v_SGD[c:d], causal)
        for a, b, c, d in zip(spans.queries, spans.queries[1:], spans.keys, spans.keys[1:], strict=False)
    ]
    return torch.cat([out for out, _ in parts]), torch.cat([lse for _, lse in parts])


def _on_cpu(
    q_THD: torch.Tensor, k_SGD: torch.Tensor, v_SGD: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence; where queries are fewer than keys, a mask puts them at the end, as the kernel's own would not."""
    t, s, group = len(q_THD), len(k_SGD), q_THD.shape[1] // k_SGD.shape[1]
    k_1HSD, v_1HSD = (x.repeat_interleave(group, dim=1).transpose(0, 1)[None] for x in (k_SGD, v_SGD))
    mask = None
    if causal and t < s:
        hidden_TS = torch.arange(s)[None, :] > torch.arange(s - t, s)[:, None]
        mask = torch.zeros(t, s, dtype=q_THD.dtype).masked_fill_(hidden_TS, float("-inf"))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_THD.transpose(0, 1)[None], k_1HSD, v_1HSD, 0.0, causal and t == s, attn_mask=mask
    )
    return out[0].transpose(0, 1), lse[0].T


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spans: Spans, causal: bool) -> None:
    if (len(q), len(k)) != (spans.queries[-1], spans.keys[-1]):
        raise KassayError(f"{len(q)} queries and {len(k)} keys, the spans cover {spans.queries[-1]}, {spans.keys[-1]}")
    heads = k.shape[1]
    if k.shape != v.shape or k.shape[2] != q.shape[2] or q.shape[1] % heads or not q.dtype == k.dtype == v.dtype:
        raise KassayError(
            f"queries {tuple(q.shape)} of {q.dtype} do not attend keys {tuple(k.shape)} of {k.dtype} "
            f"and values {tuple(v.shape)} of {v.dtype}"
        )
    counts = zip(spans.queries, spans.queries[1:], spans.keys, spans.keys[1:], strict=False)
    if causal and any(b - a > d - c for a, b, c, d in counts):
        raise KassayError("a causal sequence has more queries than keys")


class Merge:
    """Parts of one softmax, put together in FP32 in the order in which they come, by their log-normalizers.

    With L = log(sum of e^logit) of a part and out its normalized output: L' = log(e^L1 + e^L2) and
    out' = e^(L1 - L') out1 + e^(L2 - L') out2, which is attention over the keys of both (exact but for FP32).
    """

    def __init__(self, out_THD: torch.Tensor, lse_TH: torch.Tensor) -> None:
        self.out_THD, self.lse_TH = out_THD.float(), lse_TH

    def add(self, out_THD: torch.Tensor, lse_TH: torch.Tensor) -> None:
        """Another part of the same queries."""
        whole_TH = torch.logaddexp(self.lse_TH, lse_TH)
        mine_TH, theirs_TH = (torch.exp(each - whole_TH) for each in (self.lse_TH, lse_TH))
        self.out_THD = self.out_THD * mine_TH[..., None] + out_THD.float() * theirs_TH[..., None]
        self.lse_TH = whole_TH
