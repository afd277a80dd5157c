"""What decode attention is checked and timed on: one set of operands stored by every recipe, and calls over cold pages.

Axes: B sequences, T tokens, H query heads, G KV heads, D head dim, N slots.

A pool holds the same random operands under each recipe; recipes that store a component alike share its plane. A call
reads pages in random order. Tables take turns and share no page, so that `COLD_BYTES` of K16/V16 lie between two reads
of one byte; a graph holds so many calls that it lasts milliseconds, as its launch costs 6 us that are no kernel's.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from kassay.kernels.host import Host
from kassay.kernels.launch import Decode
from kassay.kernels.shape import DecodeShape
from kassay.kernels.store import store
from kassay.kernels.unfused import Unfused
from kassay.kv import prebias
from kassay.kv.geometry import Geometry, token_bytes
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import RotatedBias
from kassay.kv.recipe import Recipe, Sixteen, recipe_named

SCALES = LayerScales(keys=0.012, values=0.012)  # of operands from a normal distribution: 5.4 / 448
COLD_BYTES = 5e8  # eight times an H200's L2, of INT4 still twice
GRAPH_BYTES = 1e10  # of K16/V16 that a graph reads: 2 ms
MOST_CALLS = 128  # of a graph
WRITTEN = 1 << 20  # tokens of one launch of the writer
DRAWN = 1 << 14  # pages of one draw of random numbers


@dataclass(frozen=True, kw_only=True)
class Heads:
    """A model's attention and its pages."""

    query_heads: int
    kv_heads: int
    head_dim: int
    page_tokens: int
    sixteen: Sixteen = "fp16"

    def shape(self, name: str) -> DecodeShape:
        """The same under a recipe."""
        return DecodeShape(
            recipe=recipe_named(name, self.sixteen), query_heads=self.query_heads, kv_heads=self.kv_heads,
            head_dim=self.head_dim, page_tokens=self.page_tokens,
        )  # fmt: skip

    def key_bias(self) -> RotatedBias:
        """What a pre-bias recipe takes off the keys of these heads."""
        return prebias.drawn(self.kv_heads, self.head_dim)

    def call_bytes(self, name: str, batch: int, tokens: int) -> int:
        """Bytes of a call: keys, values and scales of `tokens` of all sequences, queries and outputs, once each."""
        one = Geometry(layers=1, kv_heads=self.kv_heads, head_dim=self.head_dim)
        return token_bytes(one, recipe_named(name)) * tokens + 2 * 2 * batch * self.query_heads * self.head_dim


class Pool:
    """Planes of every recipe in `names`, which must hold `native`, over the same operands."""

    def __init__(self, heads: Heads, names: Sequence[str], slots: int, host: Host, device: torch.device) -> None:
        self.heads, self.host, self.device = heads, host, device
        self.shape = PagedShape(
            pages=-(-slots // heads.page_tokens), page_tokens=heads.page_tokens,
            kv_heads=heads.kv_heads, head_dim=heads.head_dim,
        )  # fmt: skip
        self._whole = {"native": PagedLayer(recipe_named("native", heads.sixteen), self.shape, device)}
        for plane in (self._whole["native"].keys, self._whole["native"].values):
            for at in range(0, self.shape.pages, DRAWN):
                plane.data_PSHW[at : at + DRAWN].normal_()
        self.layers = {name: self._layer(recipe_named(name, heads.sixteen)) for name in names}
        self.order = torch.randperm(self.shape.pages, device=device).int()

    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values NGD, as they were before any recipe stored them."""
        native = self._whole["native"]
        keys, values = (
            plane.data_PSHW.view(self.shape.slots, *plane.data_PSHW.shape[2:]) for plane in (native.keys, native.values)
        )
        return keys, values

    def _layer(self, recipe: Recipe) -> PagedLayer:
        if recipe.name == "native":
            return self._whole["native"]
        layer = PagedLayer(recipe, self.shape, "meta", SCALES, self.heads.key_bias() if recipe.prebias else None)
        stored = (recipe.key_format, recipe.value_format)
        sixteen = DTYPES[recipe.sixteen]
        letter = "f" if recipe.policy == "fixed" else "d"
        stems = ["native" if one in ("fp16", "bf16") else f"k{TWINS[one]}v{TWINS[one]}-{letter}" for one in stored]
        assert layer.keys.data_PSHW.dtype in (sixteen, torch.uint8)
        rule = layer.keys.rule
        layer.keys, layer.values = self._stored(stems[0]).keys, self._stored(stems[1]).values
        if recipe.prebias:  # the same codes, of what is left of keys whose bias was taken off
            layer.keys = copy.copy(layer.keys)
            layer.keys.rule = rule
        return layer

    def _stored(self, name: str) -> PagedLayer:
        if name not in self._whole:
            made = PagedLayer(recipe_named(name, self.heads.sixteen), self.shape, self.device, SCALES)
            k_NGD, v_NGD = self.operands()
            for first in range(0, self.shape.slots, WRITTEN):
                at = slice(first, min(first + WRITTEN, self.shape.slots))
                slots = torch.arange(at.start, at.stop, device=self.device)
                store(made, self.host, k_NGD[at], v_NGD[at], slots, checked=False)
            self._whole[name] = made
        return self._whole[name]


TWINS = {"e4m3fn": "8", "int8": "i8", "int4": "4"}  # in the names of recipes that store both components alike


class Calls:
    """One shape: what each call of a graph reads."""

    def __init__(self, pool: Pool, lengths: Sequence[int]) -> None:
        heads = pool.heads
        self.pool, self.batch, self.tokens, self.total = pool, len(lengths), max(lengths), sum(lengths)
        pages = self.batch * -(-self.tokens // heads.page_tokens)
        one = heads.call_bytes("native", self.batch, self.total)
        self.calls = min(MOST_CALLS, -(-int(GRAPH_BYTES) // one))
        tables = max(1, min(self.calls, -(-int(COLD_BYTES) // one), pool.shape.pages // pages))
        turns = [pool.order[at * pages : (at + 1) * pages].view(self.batch, -1) for at in range(tables)]
        self.tables = [turns[at % tables] for at in range(self.calls)]
        self.lengths = torch.tensor(lengths, dtype=torch.int32, device=pool.device)
        sixteen = DTYPES[heads.sixteen]
        self.q = torch.randn(self.batch, heads.query_heads, heads.head_dim, device=pool.device).to(sixteen)
        self.out = torch.empty_like(self.q)
        self.lse = torch.empty(self.batch, heads.query_heads, device=pool.device)

    def ours(self, name: str, kernel: Decode | Unfused) -> Callable[[int], object]:
        """A call of our kernels on a recipe's planes, by its number."""
        layer = self.pool.layers[name]
        return lambda at: kernel(self.q, layer, self.tables[at], self.lengths, self.out, self.lse)

    def torch_s(self, backend: SDPBackend) -> Callable[[int], object]:
        """A call of torch's attention on contiguous keys and values of the same bytes, by its number."""
        slots = self.batch * self.tokens
        planes = self.pool.operands()
        places = max(1, min(self.calls, len(planes[0]) // slots))

        def call(at: int) -> object:
            first = at % places * slots
            parts = (x[first : first + slots].view(self.batch, -1, *x.shape[1:]) for x in planes)
            k, v = (part.transpose(1, 2) for part in parts)
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(self.q[:, :, None], k, v, enable_gqa=True)

        return call

    def poison(self) -> None:
        """Make what a call leaves unwritten NaN."""
        self.out.fill_(float("nan"))
        self.lse.fill_(float("nan"))

    def error(self, name: str, sequence: int) -> tuple[float, float]:
        """Relative error of an output, and largest of a log-normalizer, against float64 on what call 0 reads."""
        one, length = slice(sequence, sequence + 1), int(self.lengths[sequence])
        if length == 0:
            empty = bool((self.lse[one] == -torch.inf).all()) and not bool(self.out[one].any())
            return (0.0, 0.0) if empty else (float("inf"), float("inf"))
        k, v = self.pool.layers[name].gather(self.tables[0][one], self.lengths[one], torch.float64)
        q = self.q[sequence].double().view(k.shape[1], -1, k.shape[3])
        logits = q @ k[0].transpose(1, 2) / k.shape[3] ** 0.5
        wanted, got = (logits.softmax(-1) @ v[0]).flatten(0, 1), self.out[sequence].double()
        lse = logits.logsumexp(-1).flatten()
        return float((got - wanted).norm() / wanted.norm()), float((self.lse[sequence].double() - lse).abs().max())
