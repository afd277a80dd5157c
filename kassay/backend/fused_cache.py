"""The paged cache of all layers of a fused decoder: pages handed out to rows of a batch, tables on the device.

Axes: B rows of the batch, X pages of a row, N tokens of a write, G KV heads, D head dim.

A row is a sequence's place in the batch; its pages come from one list for all layers, in an order that a seed decides.
`shared` says how many pools stand for all layers: as many as layers, unless a study of speed asks for a cache that the
device could not hold. Layers then take turns with the pools. Each still reads all its own bytes, from memory as long as
one pool is far larger than the device's cache of it; what they read is another layer's, and so only drawn weights may.
"""

from collections.abc import Sequence

import torch

from kassay.errors import KassayError
from kassay.kernels import store
from kassay.kernels.host import Host
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.plane import DTYPES, Storage
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import Recipe

DRAWN_TOKENS = 1 << 18  # of one write of drawn operands

Scales = dict[str, list[float]]  # component `k` or `v` -> FP32 scale per layer


class PagedCache:
    """Pages of every layer, and who has which."""

    def __init__(
        self,
        recipe: Recipe,
        shape: PagedShape,
        layers: int,
        device: torch.device,
        scales: Scales | None,
        *,
        rows: int,
        row_tokens: int,
        shared: int | None = None,
        seed: int = 0,
        key_bias: KeyBias | None = None,
    ) -> None:
        """`key_bias` of a pre-bias recipe."""
        self.recipe, self.shape, self.device = recipe, shape, device
        pools = layers if shared is None else min(shared, layers)
        offsets = [None if key_bias is None else key_bias.offset(layer) for layer in range(pools)]
        self.pools = [
            PagedLayer(recipe, shape, device, scales_at(recipe, scales, layer), offset)
            for layer, offset in enumerate(offsets)
        ]
        self.layers = [self.pools[layer % pools] for layer in range(layers)]
        self.row_tokens = row_tokens
        self.table_BX = torch.zeros((rows, -(-row_tokens // shape.page_tokens)), dtype=torch.int32, device=device)
        order = torch.randperm(shape.pages, generator=torch.Generator().manual_seed(seed))
        self.free: list[int] = order.tolist()
        self.held: list[list[int]] = []

    @property
    def shared(self) -> bool:
        """Whether layers share pools."""
        return len(self.pools) < len(self.layers)

    def take(self, tokens: int) -> list[int]:
        """Pages for a row of so many tokens. Raises KassayError where the row or the pool is too short."""
        count = -(-tokens // self.shape.page_tokens)
        if tokens > self.row_tokens:
            raise KassayError(f"a row of {tokens} tokens was asked for, the table's rows hold {self.row_tokens}")
        if count > len(self.free):
            raise KassayError(f"{count} pages are needed for {tokens} tokens, {len(self.free)} are free")
        pages, self.free = self.free[:count], self.free[count:]
        return pages

    def admit(self, tokens: Sequence[int]) -> list[int]:
        """Rows for sequences of so many tokens each, behind those that are there."""
        if len(self.held) + len(tokens) > len(self.table_BX):
            raise KassayError(f"{len(self.held)} + {len(tokens)} rows, the batch has {len(self.table_BX)}")
        first = len(self.held)
        self.held += [self.take(count) for count in tokens]
        self._tell(range(first, len(self.held)))
        return list(range(first, len(self.held)))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order, and free the pages of all others."""
        for row, pages in enumerate(self.held):
            if row not in set(rows):
                self.free += pages
        self.held = [self.held[row] for row in rows]
        self._tell(range(len(self.held)))

    def _tell(self, rows: Sequence[int]) -> None:
        """Put pages into the device's table."""
        if not rows:
            return
        width = self.table_BX.shape[1]
        padded = [[*self.held[row], *[0] * (width - len(self.held[row]))] for row in rows]
        self.table_BX[rows[0] : rows[-1] + 1] = torch.tensor(padded, dtype=torch.int32, device=self.device)

    def draw(self, host: Host, seed: int = 0) -> None:
        """Fill every slot of every pool with operands from a normal distribution: a context of no text."""
        generator = torch.Generator(self.device).manual_seed(seed)
        sixteen, shape = DTYPES[self.recipe.sixteen], self.shape
        for layer in self.pools:
            for first in range(0, shape.slots, DRAWN_TOKENS):
                slots_N = torch.arange(first, min(first + DRAWN_TOKENS, shape.slots), device=self.device)
                size = (2, len(slots_N), shape.kv_heads, shape.head_dim)
                k_NGD, v_NGD = torch.randn(size, generator=generator, device=self.device, dtype=sixteen)
                first_N = torch.zeros_like(slots_N)  # a pre-bias recipe takes off the bias of position 0
                store.store(layer, host, k_NGD, v_NGD, slots_N, checked=False, positions_N=first_N)

    def storages(self) -> list[Storage]:
        """Every persisted tensor, a pool that several layers share once."""
        return [storage for layer, pool in enumerate(self.pools) for storage in pool.storages(layer)]


def scales_at(recipe: Recipe, scales: Scales | None, layer: int) -> LayerScales | None:
    """The fixed scales of one layer. Raises KassayError where a fixed recipe has none."""
    if recipe.policy != "fixed":
        return None
    for component in ("k", "v"):
        if scales is None or len(scales.get(component, [])) <= layer:
            raise KassayError(f"recipe `{recipe.name}` needs a scale of component `{component}` for layer {layer}")
    assert scales is not None, "a bug: scales were checked"
    return LayerScales(keys=scales["k"][layer], values=scales["v"][layer])
