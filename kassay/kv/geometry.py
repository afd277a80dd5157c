"""How many bytes a cache takes: per token, per page, per request. Scale bytes included; no estimate.

A layer stores planes: keys, values, and the FP32 scales that a policy keeps with each token of a component of fewer
than 16 bits.

    plane bytes per token = kv_heads * bytes of one vector, or 4 * its scales per token
    token bytes           = sum over the layers that keep every token, over their planes
    slots                 = floor((budget - fixed scales) / (token bytes * page)) * page

Three kinds of layer (statistics.md 2.8; studies.md 5, 11, 18):

- it keeps every token (GQA, MQA, MHA: they differ in `kv_heads` only);
- it has a sliding window of W tokens and keeps min(T, W) of a request of T. In pages these are at most
  ceil((W - 1) / page) + 1, because the window begins anywhere in a page. Such a layer costs a fixed sum per
  request once T >= W, so it is no part of a slot;
- it has a state of fixed size per request, in a precision of its own that no recipe changes.

A format's vector is packed, rounded up to whole bytes. Not counted: weights, block tables, workspaces, graph
pools, fragmentation between requests; what an allocator adds is in budget.py. Compressed latents have no K and
V to store apart: models.py rejects them.
"""

from dataclasses import dataclass

from kassay.errors import KassayError
from kassay.kv.recipe import BITS, GROUP, Format, Policy, Recipe

SCALE_BYTES = 4  # FP32
NATIVE_BITS = 16  # a component of fewer bits has scales, unless the policy is `none`
POLICIES = ("none", "fixed", "dynamic", "tensor", "group")  # whose size is known: `scales_per_token`


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What the layers of a conventional cache store for each token: all alike, every token kept."""

    layers: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Attention layers that are alike."""

    count: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None  # None: every token is kept


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The cache of any supported model: attention layers by kind, and states of fixed size."""

    attention: tuple[Layers, ...]
    state_layers: int
    state_bytes: int  # of one request, all state layers together

    @property
    def attention_layers(self) -> int:
        """Layers that store keys and values."""
        return sum(layers.count for layers in self.attention)


def layout_of(geometry: Geometry | Layout) -> Layout:
    """The same cache as a layout."""
    if isinstance(geometry, Layout):
        return geometry
    every = Layers(
        count=geometry.layers,
        kv_heads=geometry.kv_heads,
        key_dim=geometry.head_dim,
        value_dim=geometry.head_dim,
        window_tokens=None,
    )
    return Layout(attention=(every,), state_layers=0, state_bytes=0)


def vector_bytes(dim: int, stored: Format) -> int:
    """Bytes of one vector of `dim` elements, packed, rounded up to whole bytes."""
    return -(-dim * BITS[stored] // 8)


def scaled_components(recipe: Recipe) -> int:
    """How many of keys and values have scales: 0 to 2. Raises KassayError for a policy without a size."""
    if recipe.policy not in POLICIES:
        allowed = ", ".join(POLICIES)
        raise KassayError(f"recipe `{recipe.name}`: no size is known for scale policy `{recipe.policy}`: {allowed}")
    if recipe.policy == "none":
        return 0
    return sum(BITS[stored] < NATIVE_BITS for stored in (recipe.key_format, recipe.value_format))


def scales_per_token(policy: Policy, kv_heads: int, dim: int) -> int:
    """FP32 scales that one token of one component keeps in one layer.

    One a head if dynamic, one for all heads of a write if `tensor` (kept with each token, as a slot has no other place
    for it), one for each group of 32 of a head; a fixed one belongs to the layer.
    """
    counts = {"dynamic": kv_heads, "tensor": 1, "group": kv_heads * -(-dim // GROUP)}
    return counts.get(policy, 0)


def planes(layers: Layers, recipe: Recipe) -> dict[str, int]:
    """Bytes per token in one of these layers, by part: `keys`, `values`, `key_scales`, `value_scales`."""
    found = {
        "keys": layers.kv_heads * vector_bytes(layers.key_dim, recipe.key_format),
        "values": layers.kv_heads * vector_bytes(layers.value_dim, recipe.value_format),
    }
    scaled_components(recipe)
    sides = (
        ("key_scales", recipe.key_format, layers.key_dim),
        ("value_scales", recipe.value_format, layers.value_dim),
    )
    for part, stored, dim in sides:
        if BITS[stored] < NATIVE_BITS and (count := scales_per_token(recipe.policy, layers.kv_heads, dim)):
            found[part] = count * SCALE_BYTES
    return found


def token_parts(geometry: Geometry | Layout, recipe: Recipe) -> dict[str, int]:
    """Bytes that one more token takes, by part, in all layers that keep every token."""
    found: dict[str, int] = {}
    for layers in layout_of(geometry).attention:
        if layers.window_tokens is None:
            for part, size in planes(layers, recipe).items():
                found[part] = found.get(part, 0) + layers.count * size
    return found


def token_bytes(geometry: Geometry | Layout, recipe: Recipe) -> int:
    """Bytes that one more token takes in all layers that keep every token."""
    return sum(token_parts(geometry, recipe).values())


def scale_overhead(geometry: Geometry | Layout, recipe: Recipe) -> float:
    """Scale bytes per byte of codes of one token: 0.03125 is 4 bytes for 128 codes of 8 bits."""
    parts = token_parts(geometry, recipe)
    scales = sum(size for part, size in parts.items() if part.endswith("_scales"))
    return scales / max(1, sum(parts.values()) - scales)


def fixed_scales(geometry: Geometry | Layout, recipe: Recipe) -> int:
    """How many FP32 scalars a fixed policy keeps: one per attention layer and component of fewer than 16 bits."""
    scaled = scaled_components(recipe)
    return layout_of(geometry).attention_layers * scaled if recipe.policy == "fixed" else 0


def kept_pages(layers: Layers, tokens: int, page_tokens: int) -> int:
    """Pages that one of these layers needs for a request of that length, wherever its window begins."""
    pages = -(-tokens // page_tokens)
    if layers.window_tokens is None or tokens <= layers.window_tokens:
        return pages
    return min(pages, -(-(layers.window_tokens - 1) // page_tokens) + 1)


def request_bytes(geometry: Geometry | Layout, recipe: Recipe, tokens: int) -> int:
    """Bytes of keys, values and their scales that a request of that length keeps; no page rounding, no state."""
    total = 0
    for layers in layout_of(geometry).attention:
        kept = tokens if layers.window_tokens is None else min(tokens, layers.window_tokens)
        total += layers.count * kept * sum(planes(layers, recipe).values())
    return total


def slots(geometry: Geometry | Layout, recipe: Recipe, *, budget_bytes: int, page_tokens: int) -> int:
    """Token slots that fit a budget of keys, values and scales, whole pages only, without allocator tails."""
    rest = budget_bytes - SCALE_BYTES * fixed_scales(geometry, recipe)
    return max(0, rest) // (token_bytes(geometry, recipe) * page_tokens) * page_tokens
