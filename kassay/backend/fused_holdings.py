"""What a fused decoder holds, tensor by tensor, as views of their storages for kassay.kv.accounting.

    keys, values, scales  planes of all layers, and those of a shared prefix, which is there once whatever shares it
    block_tables          which pages a row has, and what a step is told of rows: ids, positions, lengths, outputs
    weights               of the decoder, with cosines and sines of its positions
    staging               queries, keys and values of the largest pass of a prefill, before they are stored
    scratch               parts of split attention, what a prefix is read back into, a key bias and its waves

Activations of a pass, the libraries' workspaces and what a graph keeps for itself are no tensors of ours: they stand in
the allocator's numbers, graph pools apart.
"""

from collections.abc import Iterable

import torch

from kassay.backend.fused import Decoder
from kassay.backend.fused_cache import PagedCache
from kassay.backend.fused_prefix import Prefix
from kassay.backend.holdings import held
from kassay.kernels.cartridge import Shared
from kassay.kernels.launch import rotated_bias_of
from kassay.kv.accounting import SCRATCH, STAGING, TABLES, WEIGHTS, Held
from kassay.kv.plane import Storage


def planes_held(storages: Iterable[Storage], used: int | None = None) -> list[Held]:
    """Persisted tensors in pages; `used` says how many of their tokens are payload, else all are."""
    return [
        held(one.part, one.tensor, None if used is None or not one.tensor.dim() else share(one, used))
        for one in storages
    ]


def share(storage: Storage, used: int) -> int:
    """Bytes of so many tokens of a plane."""
    return storage.tensor.nbytes * used // storage.tokens


def cache_held(cache: PagedCache, prefix: Prefix | None, used: int | None = None) -> list[Held]:
    """Keys, values and scales of the rows' pages, of which `used` tokens are payload, and of a prefix."""
    own = planes_held(cache.storages(), used)
    return own if prefix is None else [*own, *planes_held(prefix.storages())]


def tables_held(decoder: Decoder) -> list[Held]:
    """Block tables, and the state of the rows."""
    state = (decoder.ids_B, decoder.rows_B, decoder.lengths_B, decoder.live_B, decoder.positions_B)
    told = [decoder.cache.table_BX, *state, decoder.tokens_SB, decoder.at_1]
    if decoder.prefix is not None:
        told += [one.pages_on for one in decoder.prefix.cartridges]
    return [held(TABLES, tensor) for tensor in told]


def weights_held(decoder: Decoder) -> list[Held]:
    """Weights, and the turns of all positions."""
    return [held(WEIGHTS, tensor) for tensor in (*decoder.weights.tensors(), decoder.step.turns)]


def scratch_held(decoder: Decoder) -> list[Held]:
    """Workspaces that live as long as the decoder."""
    own = [one.own if isinstance(one, Shared) else one for one in decoder.attends.values()]
    found = [tensor for one in own for tensor in (one.part, one.part_lse)]
    if decoder.step.behind is not None:
        found += [decoder.step.behind.gathered.k_SGD, decoder.step.behind.gathered.v_SGD]
    for pool in decoder.cache.pools:
        if (offset := rotated_bias_of(pool)) is not None:
            found += [offset.bias_HD, *offset.held.values(), *offset.of.tensors()]
    return [held(SCRATCH, tensor) for tensor in found]


def used_tokens(decoder: Decoder) -> int:
    """Own tokens that all rows have in their pages: those before the one that a row is about to store."""
    return int(decoder.positions_B[: decoder.rows].sum())


class Staged:
    """Is told of every pass's operands and keeps the sizes of the largest, never the tensors."""

    def __init__(self) -> None:
        self.held: list[Held] = []

    def __call__(self, operands: tuple[torch.Tensor, torch.Tensor]) -> None:
        """One pass."""
        found = [held(STAGING, tensor) for tensor in operands]
        if sum(one.storage_bytes for one in found) > sum(one.storage_bytes for one in self.held):
            self.held = found
