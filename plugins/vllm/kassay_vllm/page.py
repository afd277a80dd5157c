"""How keys, values and their scales share one page of bytes of vLLM's pool.

Axes: P pages, S tokens of a page, H KV heads, D head dim.

    page = keys SHD, then values SHD, then the keys' scales HS, then the values' scales HS

16-bit numbers or codes of a byte; FP32 scales only under a dynamic policy. So K16/V8 takes 3 bytes where K16/V16 takes
4, and 3 + 4 / D per element with dynamic scales: limits 1.3333 and, at D = 128, 1.3196 on capacity. Every plane
begins at a multiple of 16 bytes, and a plane's pages lie one whole page apart: kassay.kernels reads them as they are.
"""

from dataclasses import dataclass

import torch

from kassay.errors import KassayError
from kassay.kv.paged import LayerScales, PagedLayer, PagedShape
from kassay.kv.plane import DTYPES
from kassay.kv.recipe import BITS, Format, Recipe

PAGE_TOKENS = 16
ALIGNED = 16  # bytes: what the kernels read at once
SCALE_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class PageFormat:
    """The bytes of one page of one layer."""

    recipe: Recipe
    kv_heads: int
    head_dim: int
    page_tokens: int = PAGE_TOKENS

    def __post_init__(self) -> None:
        parts = {"keys": self.key_bytes, "values": self.value_bytes}
        if odd := {name: count for name, count in parts.items() if count % ALIGNED}:
            raise KassayError(f"a page of recipe `{self.recipe.name}` would hold {odd}, no multiple of {ALIGNED} bytes")

    def _codes(self, stored: Format) -> int:
        return self.page_tokens * self.kv_heads * self.head_dim * BITS[stored] // 8

    def _scales(self, stored: Format) -> int:
        dynamic = self.recipe.policy_of(stored) == "dynamic"
        return self.page_tokens * self.kv_heads * SCALE_BYTES if dynamic else 0

    @property
    def key_bytes(self) -> int:
        """Of the keys' plane."""
        return self._codes(self.recipe.key_format)

    @property
    def value_bytes(self) -> int:
        """Of the values' plane."""
        return self._codes(self.recipe.value_format)

    @property
    def key_scale_bytes(self) -> int:
        """Of the keys' scales; 0 unless they are dynamic."""
        return self._scales(self.recipe.key_format)

    @property
    def value_scale_bytes(self) -> int:
        """Of the values' scales; 0 unless they are dynamic."""
        return self._scales(self.recipe.value_format)

    @property
    def page_bytes(self) -> int:
        """Of one page of one layer."""
        return self.key_bytes + self.value_bytes + self.key_scale_bytes + self.value_scale_bytes

    def layer(self, pages: torch.Tensor, scales: LayerScales) -> PagedLayer:
        """Planes over `pages` (uint8, P x page_bytes, in one piece): views, nothing is copied.

        Raises KassayError for a tensor of another shape or kind, and for fixed scales that are missing.
        """
        if pages.dtype != torch.uint8 or pages.ndim != 2 or pages.shape[1] != self.page_bytes:
            raise KassayError(
                f"a pool is {tuple(pages.shape)} of {pages.dtype}, wanted is uint8 (pages, {self.page_bytes})"
            )
        if not pages.is_contiguous():
            raise KassayError(f"a pool has strides {pages.stride()}: its pages must follow each other")
        shape = PagedShape(
            pages=len(pages), page_tokens=self.page_tokens, kv_heads=self.kv_heads, head_dim=self.head_dim
        )
        made = PagedLayer(self.recipe, shape, "meta", scales)
        at = 0
        for plane, stored in ((made.keys, self.recipe.key_format), (made.values, self.recipe.value_format)):
            found = pages[:, at : at + self._codes(stored)]
            if plane.sixteen_bit:
                found = found.view(DTYPES[self.recipe.sixteen])
            plane.data_PSHW = found.unflatten(1, (self.page_tokens, self.kv_heads, self.head_dim))
            plane.scale = None if plane.rule.scale is None else torch.tensor(plane.rule.scale, device=pages.device)
            at += self._codes(stored)
        for plane, stored in ((made.keys, self.recipe.key_format), (made.values, self.recipe.value_format)):
            if count := self._scales(stored):
                found = pages[:, at : at + count].view(torch.float32)
                plane.scale_PHSG = found.unflatten(1, (self.kv_heads, self.page_tokens, 1))
            at += count
        return made
