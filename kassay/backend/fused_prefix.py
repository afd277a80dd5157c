"""A frozen prefix of all requests of a fused decoder: one cartridge a layer, and prompts that begin behind it.

Axes: N tokens, B requests, T own tokens of a request, P positions of the prefix, H query heads, G KV heads, D head dim.

The prefix stands at positions 0 to P - 1 and is stored once, in pages and a recipe of its own; a request's own tokens
stand from P on, in its own pages, whose places count from 0. A decode step attends both by one softmax
(kassay.kernels.cartridge). So does a fresh prompt behind the prefix:

    own       its native operands, causal, by torch's FlashAttention
    prefix    what its pages hold, gathered into 16 bits, seen by every query; all prompts of a pass are one call

and the two are merged by their log-normalizers (kassay.kernels.native.Merge). What is seen of the prefix is what is
stored of it, in a prompt as in a step, so K16/V8 rounds its values for both.

Operands come from a text by a decoder's own prefill (kassay.backend.fused_arms), or are trained elsewhere: keys after
norm and RoPE. `copied` stores the same operands in every request's own pages: the control.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kassay.backend.fused_cache import PagedCache, Scales, scales_at
from kassay.errors import KassayError
from kassay.kernels import store
from kassay.kernels.cartridge import Cartridge
from kassay.kernels.fill import Piece
from kassay.kernels.gather import Filling, Gathered
from kassay.kernels.host import Host
from kassay.kernels.launch import shape_of
from kassay.kernels.native import Merge, Spans, attend
from kassay.kernels.shape import DecodeShape
from kassay.kv.paged import slots_of
from kassay.kv.plane import Storage
from kassay.kv.recipe import Recipe

Operands = Sequence[tuple[torch.Tensor, torch.Tensor]]  # k_NGD and v_NGD of each layer, 16 bits


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """What all requests share."""

    cartridges: tuple[Cartridge, ...]  # of each layer
    shape: DecodeShape

    @property
    def positions(self) -> int:
        """Tokens of it."""
        return self.cartridges[0].positions

    @property
    def recipe(self) -> Recipe:
        """How it is stored."""
        return self.shape.recipe

    def storages(self) -> list[Storage]:
        """Every persisted tensor."""
        return [one for layer, each in enumerate(self.cartridges) for one in each.layer.storages(layer)]

    def digest(self) -> str:
        """SHA-256 of what is stored in all layers: decoding leaves it as it is."""
        return hashlib.sha256("".join(each.digest() for each in self.cartridges).encode()).hexdigest()


def frozen(recipe: Recipe, operands: Operands, *, query_heads: int, page_tokens: int, scales: Scales | None) -> Prefix:
    """A prefix from 16-bit operands. Raises KassayError for positions that end inside a page."""
    made = tuple(
        Cartridge.of(recipe, k_NGD, v_NGD, page_tokens, scales_at(recipe, scales, layer))
        for layer, (k_NGD, v_NGD) in enumerate(operands)
    )
    return Prefix(cartridges=made, shape=shape_of(made[0].layer, query_heads))


class Prompts:
    """Fresh prompts behind a prefix: a workspace for what is read back of it, for one layer at a time."""

    def __init__(self, prefix: Prefix, host: Host, device: torch.device) -> None:
        self.prefix = prefix
        self.gathered = Gathered(prefix.shape, host, device, prefix.positions)

    def attend(self, index: int, q_NHD: torch.Tensor, kv_N2GD: torch.Tensor, prompts: int) -> torch.Tensor:
        """out_NHD of prompts of equal length, packed; their operands are in the queries' format."""
        n, device = len(q_NHD), q_NHD.device
        own = Spans.of([n // prompts] * prompts, [n // prompts] * prompts, device)
        k_NGD, v_NGD = (kv_N2GD[:, at].contiguous() for at in (0, 1))
        merged = Merge(*attend(q_NHD, k_NGD, v_NGD, own, causal=True))
        positions, cartridge = self.prefix.positions, self.prefix.cartridges[index]
        every = Spans.of([n], [positions], device)
        piece = Piece(row=0, first=0, queries=n, first_key=0, keys=positions, causal=False, alone=False)
        pieces_L4 = torch.tensor([[0, 0, positions, 0]], dtype=torch.int32, device=device)
        filling = Filling(fill=(piece,), pieces_L4=pieces_L4, spans=every, queries=slice(0, n))
        k_SGD, v_SGD = self.gathered.gather(filling, cartridge.layer, cartridge.pages_on[None])
        k_SGD, v_SGD = k_SGD.to(q_NHD.dtype), v_SGD.to(q_NHD.dtype)
        merged.add(*attend(q_NHD, k_SGD, v_SGD, every, causal=False))
        return merged.out_THD.to(q_NHD.dtype)


def copied(cache: PagedCache, host: Host, rows: int, operands: Operands) -> None:
    """Store a prefix at the first places of each of the first `rows` rows, in every pool."""
    positions = len(operands[0][0])
    lengths_B = torch.full((rows,), positions, device=cache.device)
    slots_BP = slots_of(cache.table_BX[:rows], lengths_B, cache.shape)
    positions_P = torch.arange(positions, device=cache.device)
    for pool, (k_NGD, v_NGD) in zip(cache.pools, operands, strict=False):
        for slots_P in slots_BP:
            store.store(
                pool, host, k_NGD.contiguous(), v_NGD.contiguous(), slots_P.contiguous(), checked=False,
                positions_N=positions_P,
            )  # fmt: skip


def check_room(prefix: Prefix, layers: int, own: DecodeShape, compute: torch.dtype, device: torch.device) -> None:
    """Raise KassayError for a prefix of another model, and for what its prompts cannot be attended in."""
    if len(prefix.cartridges) != layers:
        raise KassayError(f"a prefix of {len(prefix.cartridges)} layers, the model has {layers}")
    if device.type == "cuda" and compute == torch.float32:
        raise KassayError("prompts behind a prefix are attended in 16 bits on a GPU, and these weights are FP32")
    if own.page_tokens != prefix.shape.page_tokens:
        raise KassayError(
            f"a prefix in pages of {prefix.shape.page_tokens} tokens, the own pages have {own.page_tokens}"
        )
