"""A pool of byte pages with stored sequences, as vLLM would hold it, and the reference in float64.

Axes: N tokens, B sequences, H query heads, G KV heads, D head dim, X pages of a sequence.
"""

import torch
from kassay_vllm.attend import Cache, Plans, Step
from kassay_vllm.page import PageFormat
from kassay_vllm.routes import split

from kassay.kernels.host import INTERPRETER
from kassay.kernels.split import Tile
from kassay.kv.paged import LayerScales
from kassay.kv.recipe import recipe_named

H, G, D = 4, 2, 64
SCALES = LayerScales(keys=0.01, values=0.012)
FIXED = {"k16v8-f": LayerScales(values=0.012), "k8v16-f": LayerScales(keys=0.01), "k8v8-f": SCALES}
CPU = torch.device("cpu")
SMALL = Tile(tokens=32, warps=4, stages=2)


def cache_of(recipe: str, pages: int, *, observe: bool = False, sixteen: str = "fp16") -> Cache:
    """An empty pool: every byte 0x7F, which is NaN as E4M3 and large in 16 bits."""
    format = PageFormat(recipe=recipe_named(recipe, sixteen), kv_heads=G, head_dim=D)
    pool = torch.full((pages, format.page_bytes), 0x7F, dtype=torch.uint8)
    return Cache(format, pool, FIXED.get(recipe, LayerScales()), INTERPRETER, observe)


def plans_of(cache: Cache, tokens: int = 128) -> Plans:
    """Kernels for up to that many tokens."""
    from kassay.kernels.launch import shape_of

    return Plans(shape_of(cache.layer, H), INTERPRETER, CPU, tokens, {1, 2, 4}, uneven=True, book=None)


def step_of(new: list[int], lengths: list[int], table_BX: torch.Tensor) -> Step:
    """A batch of requests with that many new tokens, of that many in all."""
    route = split(new, lengths)
    ends = torch.tensor([0, *new[route.decodes :]]).cumsum(0).int()
    return Step(
        route=route, tokens=sum(new), table_BX=table_BX, lengths_B=torch.tensor(lengths).int(), starts=ends,
        capturing=False,
    )  # fmt: skip


def slots_of_new(new: list[int], lengths: list[int], table_BX: torch.Tensor) -> torch.Tensor:
    """The slots of a batch's new tokens, in their order."""
    found = []
    for row, count, length in zip(table_BX.tolist(), new, lengths, strict=True):
        found += [row[at // 16] * 16 + at % 16 for at in range(length - count, length)]
    return torch.tensor(found, dtype=torch.int64)


def varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    starts_q: torch.Tensor, longest_q: int, starts_k: torch.Tensor, longest_k: int,
) -> None:  # fmt: skip
    """What a FlashAttention of sequences computes, causal to the lower right, in float64."""
    bounds = zip(starts_q.tolist(), starts_q.tolist()[1:], starts_k.tolist(), starts_k.tolist()[1:], strict=False)
    for first_q, last_q, first_k, last_k in bounds:
        out[first_q:last_q] = exact(q[first_q:last_q], k[first_k:last_k], v[first_k:last_k]).to(out.dtype)


def exact(q_NHD: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor) -> torch.Tensor:
    """Attention of the last tokens of a sequence over all of them, NHD in float64."""
    n, t = len(q_NHD), len(k_TGD)
    k, v = (x.double().repeat_interleave(H // G, dim=1) for x in (k_TGD, v_TGD))
    logits = torch.einsum("nhd,thd->hnt", q_NHD.double(), k) / D**0.5
    hidden = torch.arange(t)[None, :] > torch.arange(t - n, t)[:, None]
    return torch.einsum("hnt,thd->nhd", logits.masked_fill(hidden, -torch.inf).softmax(-1), v)


def drawn(*shape: int, seed: int = 1, sixteen: torch.dtype = torch.float16) -> torch.Tensor:
    """Normal operands."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(sixteen)
