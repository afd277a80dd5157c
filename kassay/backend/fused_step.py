"""One pass of a dense decoder over the rows of a step, on our kernels: the last tokens of a batch, or whole prompts.

Axes: N rows (tokens), B sequences, T tokens of a prompt, H query heads, G KV heads, D head dim, W hidden size.

A decode step attends in the pages, through the recipe. A prompt that is fresh and whole attends to its native operands
by torch's sdpa, causal, and its keys and values go into the pages beside it: what every recipe is given is the same.
Behind a frozen prefix (kassay.backend.fused_prefix) both also attend to that, and `turns` begins where it ends.
Nothing here waits for the device or asks it anything, so that a CUDA graph can hold a decode step.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from kassay.backend.fused_cache import PagedCache
from kassay.backend.fused_geometry import Dense
from kassay.backend.fused_prefix import Prefix, Prompts
from kassay.backend.fused_weights import LayerWeights, Weights, frequencies_of
from kassay.kernels import rows
from kassay.kernels.cartridge import Shared
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kv.plane import DTYPES

# Of torch's attention for prompts, the first that can: cuDNN's is the fastest on sm_90.
PROMPT_KERNELS = [
    SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Where:
    """Which tokens the rows of a pass are."""

    positions_N: torch.Tensor  # int32; below 0 a row of padding
    rows_N: torch.Tensor  # int32, of the table


def turns_of(geometry: Dense, tokens: int, device: torch.device) -> torch.Tensor:
    """Cosines and sines of every position, tokens x 2 x D/2 in FP32, as transformers computes them."""
    angles_TP = torch.arange(tokens, dtype=torch.float32, device=device)[:, None] * frequencies_of(geometry, device)
    return torch.stack((angles_TP.cos(), angles_TP.sin()), dim=1).contiguous()


class Step:
    """The layers of one decoder over one cache."""

    def __init__(
        self, weights: Weights, cache: PagedCache, host: Host, turns: torch.Tensor, prefix: Prefix | None = None
    ) -> None:
        self.weights, self.cache, self.host, self.turns = weights, cache, host, turns
        self.prefix = prefix
        self.behind = None if prefix is None else Prompts(prefix, host, weights.embedding.device)
        self.geometry = weights.geometry
        self.compute = weights.embedding.dtype
        self.sixteen = DTYPES[cache.recipe.sixteen]
        self.seen: list[tuple[torch.Tensor, torch.Tensor]] | None = None  # a list takes q_NHD and kv_N2GD of each layer
        self.staged: Callable[[tuple[torch.Tensor, torch.Tensor]], None] | None = None  # is told each pass's operands

    def decode(
        self,
        ids_N: torch.Tensor,
        where: Where,
        lengths_N: torch.Tensor,
        attend: Decode | Shared,
        *,
        attention: bool = True,
    ) -> torch.Tensor:
        """logits_NV of the last tokens; without `attention`, for the share of its time, its output is not computed."""
        hidden_NW = embedding(ids_N, self.weights.embedding)
        added: torch.Tensor | None = None
        table_NX = self.cache.table_BX[: len(ids_N)]
        q_NHD, kv_N2GD = self._operands(len(ids_N), self.sixteen)
        out_NHD = torch.zeros_like(q_NHD) if not attention else torch.empty_like(q_NHD)
        lse_NH = torch.empty(q_NHD.shape[:2], dtype=torch.float32, device=q_NHD.device)
        for index, layer in enumerate(self.weights.layers):
            self._project(layer, index, hidden_NW, added, where, (q_NHD, kv_N2GD))
            if attention:
                self.attended(index, attend, q_NHD, table_NX, lengths_N, (out_NHD, lse_NH))
            added = self._finish(layer, hidden_NW, out_NHD)
        last_NW = rows.normed(self.host, hidden_NW, added, self.weights.last_norm, self.geometry.epsilon)
        return linear(last_NW, self.weights.head)

    def prefill(self, ids_BT: torch.Tensor, where: Where) -> None:
        """Store the keys and values of whole fresh prompts; their last hidden states are not needed."""
        b, t = ids_BT.shape
        hidden_NW = embedding(ids_BT.flatten(), self.weights.embedding)
        added: torch.Tensor | None = None
        q_NHD, kv_N2GD = self._operands(b * t, self.compute)
        last = len(self.weights.layers) - 1
        for index, layer in enumerate(self.weights.layers):
            self._project(layer, index, hidden_NW, added, where, (q_NHD, kv_N2GD))
            if self.seen is not None:
                self.seen.append((q_NHD.clone(), kv_N2GD.clone()))
            if index == last:
                break
            added = self._finish(layer, hidden_NW, self._prompts(index, q_NHD, kv_N2GD.to(self.compute), b))

    def attended(
        self,
        index: int,
        attend: Decode | Shared,
        q_NHD: torch.Tensor,
        table_NX: torch.Tensor,
        lengths_N: torch.Tensor,
        outs: tuple[torch.Tensor, torch.Tensor] | tuple[None, None] = (None, None),
    ) -> None:
        """Attention of the last tokens over a layer's pages, and over the prefix where there is one."""
        layer = self.cache.layers[index]
        if not isinstance(attend, Shared):
            attend(q_NHD, layer, table_NX, lengths_N, *outs)
            return
        assert self.prefix is not None, "a bug: attention beside a prefix that is not there"
        attend(q_NHD, self.prefix.cartridges[index], layer, table_NX, lengths_N, *outs)

    def _prompts(self, index: int, q_NHD: torch.Tensor, kv_N2GD: torch.Tensor, prompts: int) -> torch.Tensor:
        """out_NHD of whole fresh prompts of equal length."""
        if self.behind is not None:
            return self.behind.attend(index, q_NHD, kv_N2GD, prompts)
        q_BHTD = q_NHD.view(prompts, -1, *q_NHD.shape[1:]).transpose(1, 2)
        k_BGTD, v_BGTD = kv_N2GD.view(prompts, -1, *kv_N2GD.shape[1:]).permute(2, 0, 3, 1, 4)
        with sdpa_kernel(PROMPT_KERNELS, set_priority=True):
            out_BHTD = scaled_dot_product_attention(q_BHTD, k_BGTD, v_BGTD, is_causal=True, enable_gqa=True)
        return out_BHTD.transpose(1, 2).flatten(0, 1)

    def _operands(self, count: int, queries: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for queries, and for keys and values in 16 bits; every layer uses it again."""
        g, device = self.geometry, self.weights.embedding.device
        q_NHD = torch.empty((count, g.query_heads, g.head_dim), dtype=queries, device=device)
        kv_N2GD = torch.empty((count, 2, g.kv_heads, g.head_dim), dtype=self.sixteen, device=device)
        if self.staged is not None:
            self.staged((q_NHD, kv_N2GD))
        return q_NHD, kv_N2GD

    def _project(
        self,
        layer: LayerWeights,
        index: int,
        hidden_NW: torch.Tensor,
        added: torch.Tensor | None,
        where: Where,
        out: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """Queries, keys and values of a layer, the latter two stored."""
        epsilon, cache = self.geometry.epsilon, self.cache
        x_NW = rows.normed(self.host, hidden_NW, added, layer.first_norm, epsilon)
        heads_NW = linear(x_NW, layer.qkv, layer.qkv_bias)
        rows.turned_and_stored(
            self.host, cache.layers[index], heads_NW, out, layer.head_norms, self.turns, epsilon,
            where.positions_N, where.rows_N, cache.table_BX,
        )  # fmt: skip

    def _finish(self, layer: LayerWeights, hidden_NW: torch.Tensor, out_NHD: torch.Tensor) -> torch.Tensor:
        """What a layer adds at its end; what attention adds is in `hidden_NW` then."""
        added_NW = linear(out_NHD.flatten(1).to(self.compute), layer.out, layer.out_bias)
        x_NW = rows.normed(self.host, hidden_NW, added_NW, layer.second_norm, self.geometry.epsilon)
        return linear(rows.gated(self.host, linear(x_NW, layer.gate_up)), layer.down)
