"""Our kernels behind transformers' attention interface: `attn_implementation="kassay"` with a `KernelCache`.

Axes: B sequences, H query heads, G KV heads, T new tokens, N rows (B T), D head dim, X pages of a sequence.

    from kassay.backend import fused_attention          # registers the name
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="kassay")
    model.generate(ids, past_key_values=fused_attention.KernelCache(model, recipe, scales, capacity_tokens=1024))

Whatever model transformers itself runs on this interface runs so, as far as kassay.backend.structure covers its layers
and kassay.kernels.shape its heads. A first pass attends to its native operands, rounded to 16 bits, as every recipe is
given them; tokens after it are stored by the writing kernel and attend in the pages, each as a sequence of its own
length over the same table. What another softmax, a window, a mask or another cache would need is refused by name.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from kassay.backend import structure
from kassay.backend.structure import ModelError
from kassay.kernels import store
from kassay.kernels.host import Host
from kassay.kernels.launch import Decode, host_of, shape_of
from kassay.kernels.shape import DecodeShape, require
from kassay.kv.cache import RecipeLayer, Scales, arranged, check_scales
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.plane import DTYPES
from kassay.kv.prebias import RotatedBias
from kassay.kv.recipe import Recipe

NAME = "kassay"
OWNER = "kassay_layer"  # the attribute by which keys say which cache they were handed to
PAGE_TOKENS = 16


class KernelLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers' own __init_subclass__
    """One attention layer in pages; sequence b has pages b X to (b + 1) X."""

    is_sliding = False
    is_compileable = False

    def __init__(
        self, recipe: Recipe, heads: tuple[int, int], scales: LayerScales | None, capacity: int,
        key_offset: RotatedBias | None = None,
    ) -> None:  # fmt: skip
        super().__init__()  # type: ignore[no-untyped-call]
        self.recipe, self.heads, self.scales, self.capacity = recipe, heads, scales, capacity
        self.key_offset = key_offset
        self.tokens = 0
        self.fresh = True  # whether the pass that stored last was the first
        self.pages = -(-capacity // PAGE_TOKENS)
        self.host: Host | None = None
        self.attends: dict[int, Decode] = {}

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make the pool for as many sequences as the first pass brings."""
        device, batch = key_states.device, key_states.shape[0]
        self.host = host_of(device)
        pool = PagedShape(
            pages=batch * self.pages, page_tokens=PAGE_TOKENS, kv_heads=self.heads[0], head_dim=self.heads[1]
        )  # fmt: skip
        self.layer = PagedLayer(self.recipe, pool, device, self.scales, self.key_offset)
        self.table_BX = torch.arange(batch * self.pages, dtype=torch.int32, device=device).view(batch, self.pages)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k_BGTD and v_BGTD of the new tokens, and hand them on with their owner's name."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        batch, _, count, _ = key_states.shape
        if batch != len(self.table_BX) or self.tokens + count > self.capacity:
            raise ModelError(
                f"{batch} sequences of {self.tokens + count} tokens, this cache was made for {len(self.table_BX)} of "
                f"up to {self.capacity}"
            )
        assert self.host is not None, "a bug: the pool was made"
        positions_T = torch.arange(self.tokens, self.tokens + count, device=key_states.device)
        first_B1 = torch.arange(batch, device=key_states.device)[:, None] * (self.pages * PAGE_TOKENS)
        kind = DTYPES[self.recipe.sixteen]
        k_NGD, v_NGD = (
            x.transpose(1, 2).reshape(-1, *self.heads).to(kind).clone(memory_format=torch.contiguous_format)
            for x in (key_states, value_states)
        )
        store.store(
            self.layer, self.host, k_NGD, v_NGD, (first_B1 + positions_T).flatten(), checked=True,
            positions_N=positions_T.repeat(batch),
        )  # fmt: skip
        self.fresh = self.tokens == 0
        self.tokens += count
        setattr(key_states, OWNER, self)
        return key_states, value_states

    def attend(self, q_BHTD: torch.Tensor) -> torch.Tensor:
        """out_BHTD of the newest T tokens of each sequence, in the pages."""
        batch, heads, count, head_dim = q_BHTD.shape
        rows = batch * count
        if rows not in self.attends:
            shape = shape_of(self.layer, heads)
            assert self.host is not None, "a bug: attention before anything was stored"
            self.attends[rows] = Decode(shape, self.host, q_BHTD.device, rows, self.pages * PAGE_TOKENS)
        q_NHD = q_BHTD.transpose(1, 2).reshape(rows, heads, head_dim).to(DTYPES[self.recipe.sixteen]).contiguous()
        last_T = torch.arange(self.tokens - count + 1, self.tokens + 1, dtype=torch.int32, device=q_BHTD.device)
        table_NX = self.table_BX.repeat_interleave(count, dim=0)
        out_NHD, _ = self.attends[rows](q_NHD, self.layer, table_NX, last_T.repeat(batch))
        return out_NHD.view(batch, count, heads, head_dim).transpose(1, 2).to(q_BHTD.dtype)

    def get_seq_length(self) -> int:
        """Stored tokens."""
        return self.tokens

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys that a query of `query_length` new tokens will see."""
        return self.tokens + query_length, 0

    def get_max_length(self) -> int:
        """Capacity in tokens."""
        return self.capacity


class KernelCache(Cache):
    """A cache of `recipe` in pages for a model that attends by our kernels.

    Raises ModelError for a model, and KassayError for a recipe or heads, that is not covered.
    """

    def __init__(self, model: Any, recipe: Recipe, scales: Scales | None, capacity_tokens: int) -> None:
        geometry, config = structure.geometry_of(model), structure.text_config(model)
        check_scales(recipe, geometry, scales)
        heads = (geometry.kv_heads, geometry.head_dim)
        self.recipe = recipe
        key_bias = structure.key_bias_of(model) if recipe.prebias else None
        self.stored = [
            KernelLayer(
                recipe, heads, scales_at(recipe, scales, layer), capacity_tokens,
                None if key_bias is None else key_bias.offset(layer),
            )
            for layer in range(geometry.layers)
        ]  # fmt: skip
        shape = DecodeShape(
            recipe=recipe, query_heads=config.num_attention_heads, kv_heads=heads[0], head_dim=heads[1],
            page_tokens=PAGE_TOKENS,
        )  # fmt: skip
        require(host_of(next(model.parameters()).device), shape, prebias=True)
        alike = cast(Sequence[RecipeLayer], self.stored)
        super().__init__(layers=arranged(alike, structure.kinds_of(model)))


def scales_at(recipe: Recipe, scales: Scales | None, layer: int) -> LayerScales | None:
    """The fixed scales of one layer, which were checked."""
    if recipe.policy != "fixed" or scales is None:
        return None
    return LayerScales(keys=scales["k"][layer], values=scales["v"][layer])


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """Attention as transformers asks for it: out_BTHD. Raises ModelError for what the kernels do not compute."""
    layer: KernelLayer | None = getattr(key, OWNER, None)
    if layer is None:
        raise ModelError(
            f"attn_implementation `{NAME}` attends in pages: it needs a KernelCache as `past_key_values`",
            hint="kassay.backend.fused_attention.KernelCache(model, recipe, scales, capacity_tokens)",
        )
    refuse(query, attention_mask, scaling, dropout, given)
    if not layer.fresh:
        return layer.attend(query).transpose(1, 2).contiguous(), None
    kind = DTYPES[layer.recipe.sixteen]
    k_BGTD, v_BGTD = (x.to(kind).to(query.dtype) for x in (key, value))
    out_BHTD = scaled_dot_product_attention(query, k_BGTD, v_BGTD, is_causal=True, enable_gqa=True)
    return out_BHTD.transpose(1, 2).contiguous(), None


def refuse(
    query: torch.Tensor, mask: torch.Tensor | None, scaling: float | None, dropout: float, given: dict[str, Any]
) -> None:
    """Raise ModelError that names everything that is not supported."""
    found = []
    if mask is not None:
        found.append("a mask of its own")
    if dropout:
        found.append(f"dropout of {dropout:g}")
    if scaling is not None and not math.isclose(scaling, query.shape[-1] ** -0.5, rel_tol=1e-6):
        found.append(f"logits scaled by {scaling:.6g}, not by 1/sqrt({query.shape[-1]})")
    names = {"sliding_window": "a sliding window", "softcap": "a soft cap", "s_aux": "attention sinks"}
    found += [words for name, words in names.items() if given.get(name) is not None]
    if found:
        raise ModelError(f"attn_implementation `{NAME}` does not support {', '.join(found)}")


def no_mask(*args: Any, attention_mask: torch.Tensor | None = None, local_size: int | None = None, **kw: Any) -> None:
    """Causal attention over whole sequences needs no mask. Raises ModelError for padding and windows."""
    if local_size is not None:
        raise ModelError(f"attn_implementation `{NAME}` does not support a window of {local_size} tokens")
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ModelError(
            f"attn_implementation `{NAME}` does not support padding: sequences of a batch are equally long"
        )


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, no_mask)
