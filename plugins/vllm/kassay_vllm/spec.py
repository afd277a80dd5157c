"""How vLLM learns the size of our pages: the one method of vLLM that is wrapped.

An attention layer is asked for its cache's spec, and neither its backend nor its implementation is (vLLM 0.25.1,
model_executor/layers/attention/attention.py). A spec says the bytes of a block; the allocator divides by them, so a
smaller page is more tokens in the same memory, and nothing else of the allocator knows of it.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec

from kassay.errors import KassayError
from kassay_vllm.page import PAGE_TOKENS, PageFormat
from kassay_vllm.state import STATE

MARK = "kassay_vllm_wraps"


@dataclass(frozen=True, kw_only=True)
class PagedSpec(FullAttentionSpec):
    """Full attention over pages of bytes. vLLM's manager of FullAttentionSpec takes it: it is found by inheritance."""

    page_bytes: int  # of PAGE_TOKENS tokens

    @property
    def real_page_size_bytes(self) -> int:
        """Of a block, which may be several pages."""
        return self.page_bytes * self.block_size // PAGE_TOKENS

    @classmethod
    def merge(cls, specs: list["PagedSpec"]) -> "PagedSpec":  # type: ignore[override]
        """The spec of a group of layers, whose pages must be alike."""
        if len({one.page_bytes for one in specs}) > 1:
            raise KassayError(f"layers of one group have pages of {sorted({one.page_bytes for one in specs})} bytes")
        plain = [FullAttentionSpec(**{name: getattr(one, name) for name in PLAIN}) for one in specs]
        merged = FullAttentionSpec.merge(plain)
        return cls(**{name: getattr(merged, name) for name in PLAIN}, page_bytes=specs[0].page_bytes)


PLAIN = tuple(FullAttentionSpec.__dataclass_fields__)


def wrap() -> None:
    """Wrap `Attention.get_kv_cache_spec`; a second time changes nothing."""
    from vllm.model_executor.layers.attention.attention import Attention

    before = Attention.get_kv_cache_spec
    if getattr(before, MARK, False):
        return

    def get_kv_cache_spec(self: Any, vllm_config: Any) -> Any:
        found = before(self, vllm_config)
        return paged(self, found) if is_ours(self) else found

    setattr(get_kv_cache_spec, MARK, True)
    Attention.get_kv_cache_spec = get_kv_cache_spec


def is_ours(layer: Any) -> bool:
    """Whether a layer is on our backend."""
    from kassay_vllm.backend import PagedBackend

    backend = layer.attn_backend
    return isinstance(backend, type) and issubclass(backend, PagedBackend)


def paged(layer: Any, found: Any) -> PagedSpec:
    """Our spec instead of a layer's own. Raises KassayError where that is no full attention."""
    if type(found) is not FullAttentionSpec or found.block_size % PAGE_TOKENS:
        raise KassayError(f"layer `{layer.layer_name}` wants a cache of {found}: only full attention in blocks of 16")
    assert STATE.settings is not None, "a bug: a layer of ours was made without settings"
    format = PageFormat(recipe=STATE.settings.recipe, kv_heads=layer.num_kv_heads, head_dim=layer.head_size)
    plain = {name: getattr(replace(found, dtype=torch.uint8), name) for name in PLAIN}
    return PagedSpec(**plain, page_bytes=format.page_bytes)
