"""What our kernels are judged on: operands of a layer, cut out of a model's own prefill, or drawn for other heads.

Axes: B requests, N rows (tokens), H query heads, G KV heads, S tokens, D head dim.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from kassay.kv import prebias
from kassay.kv.paged import LayerScales
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import RotatedBias


@dataclass(frozen=True, kw_only=True)
class Given:
    """Operands of one layer and the queries of their last tokens, on the device, 16 bit."""

    k_BGSD: torch.Tensor
    v_BGSD: torch.Tensor
    q_BHSD: torch.Tensor
    scales: LayerScales
    bias: RotatedBias | None = None  # in the keys, of position 0 on; None: they have none

    @property
    def whole(self) -> int:
        """Tokens of a request."""
        return self.k_BGSD.shape[2]


def drawn(heads: tuple[int, int, int], sixteen: str, device: torch.device, requests: int, tokens: int) -> Given:
    """Operands from a normal distribution: query heads, KV heads, head dim."""
    query_heads, kv_heads, head_dim = heads
    generator = torch.Generator().manual_seed(7)

    def some(count: int) -> torch.Tensor:
        size = (requests, count, tokens, head_dim)
        return torch.randn(size, generator=generator).to(DTYPES[sixteen]).to(device)

    return Given(
        k_BGSD=some(kv_heads), v_BGSD=some(kv_heads), q_BHSD=some(query_heads),
        scales=LayerScales(keys=0.01, values=0.012),
    )  # fmt: skip


def biased(given: Given) -> Given:
    """The same with a drawn bias in the keys that a RoPE has turned."""
    _, kv_heads, tokens, head_dim = given.k_BGSD.shape
    bias = prebias.drawn(kv_heads, head_dim)
    turned_GSD = bias.at(torch.arange(tokens, device=given.k_BGSD.device))
    return replace(given, k_BGSD=(given.k_BGSD.float() + turned_GSD).to(given.k_BGSD.dtype), bias=bias)


def cut_apart(
    seen: list[tuple[torch.Tensor, torch.Tensor]], requests: int, scales: dict[str, list[float]]
) -> Iterator[Given]:
    """The layers of a prefill of `requests` prompts (kassay.backend.fused_step), as operands."""
    for layer, (q_NHD, kv_N2GD) in enumerate(seen):
        q_BHSD = q_NHD.unflatten(0, (requests, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
        k_BGSD, v_BGSD = kv_N2GD.unflatten(0, (requests, -1)).permute(2, 0, 3, 1, 4)  # type: ignore[no-untyped-call]
        own = LayerScales(keys=scales["k"][layer], values=scales["v"][layer])
        yield Given(k_BGSD=k_BGSD, v_BGSD=v_BGSD, q_BHSD=q_BHSD.to(k_BGSD.dtype), scales=own)
