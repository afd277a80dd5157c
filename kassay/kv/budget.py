"""What fits a budget of bytes: pages (blocks in vLLM), slots, requests; what the allocator adds; what is left.

    payload  bytes of planes, cartridge, states and fixed scales, at their own size
    tails    what the allocator takes beyond that
    left     budget - payload - tails, never negative

Every plane of every layer is a tensor of its own, K and V apart. A cartridge is a prefix that all requests share:
stored once, densely, in a recipe of its own; the requests' own tokens are paged behind it (studies.md 11).
Three allocators, none of them an estimate of fragmentation:

- `payload`: no tails. The published slots of 40 GiB (statistics.md 2.8);
- `torch`: each tensor rounded up to 2 MiB, which is what PyTorch's caching allocator reserves for one of 10 MiB
  or more (kRoundLarge of CUDACachingAllocator); scalars take its smallest block, 512 bytes. Tensors below
  10 MiB share segments of 20 MiB, which this does not model;
- `worker`: the published worker study asks for budget - 36 MiB - 55,296 bytes: 1 MiB per layer, half of the
  rounding, and three scalars of 512 bytes per layer. Both factors are inferred, only the sums are printed.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from kassay.errors import KassayError
from kassay.kv.geometry import SCALE_BYTES, Layers, Layout, fixed_scales, kept_pages, planes, token_bytes
from kassay.kv.recipe import Recipe

MIB = 2**20
SMALLEST_BLOCK_BYTES = 512  # kMinBlockSize of CUDACachingAllocator


@dataclass(frozen=True, kw_only=True)
class Allocator:
    """What is taken beyond the payload."""

    name: str
    granule_bytes: int  # each tensor is rounded up to it
    layer_tail_bytes: int  # kept free for each attention layer
    scalar_bytes: int  # that one FP32 scalar takes
    layer_scalars: int  # at least so many per attention layer, whatever the recipe needs


ALLOCATORS = (
    Allocator(name="payload", granule_bytes=1, layer_tail_bytes=0, scalar_bytes=SCALE_BYTES, layer_scalars=0),
    Allocator(
        name="torch", granule_bytes=2 * MIB, layer_tail_bytes=0, scalar_bytes=SMALLEST_BLOCK_BYTES, layer_scalars=0
    ),
    Allocator(name="worker", granule_bytes=1, layer_tail_bytes=MIB, scalar_bytes=SMALLEST_BLOCK_BYTES, layer_scalars=3),
)


@dataclass(frozen=True, kw_only=True)
class Cartridge:
    """A frozen prefix that all requests share."""

    positions: int
    recipe: Recipe


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What a cache is asked to hold."""

    layout: Layout
    recipe: Recipe
    page_tokens: int
    cartridge: Cartridge | None
    allocator: Allocator


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What of it fits a budget; payload, tails and left add up to the budget."""

    count: int  # pages, in every layer that keeps all tokens; or requests, if these were asked for
    payload_bytes: int
    tail_bytes: int
    left_bytes: int


def check_cartridge(pool: Pool) -> None:
    """Raise KassayError for a cartridge that does not end on a page, or for layers that cannot share one."""
    if pool.cartridge is None:
        return
    positions, page = pool.cartridge.positions, pool.page_tokens
    if positions % page:
        fitting = [size for size in (8, 16, 32, 64) if positions % size == 0]
        hint = f"PAGE={fitting[-1]}" if fitting else "pad the cartridge"
        raise KassayError(f"a cartridge of {positions} positions does not end on a page of {page} tokens", hint=hint)
    if pool.layout.state_layers or any(layers.window_tokens for layers in pool.layout.attention):
        raise KassayError("a cartridge needs layers that keep every token; this model has windows or states")


def tensors(pool: Pool, pages: Callable[[Layers], int], requests: int) -> list[tuple[int, int]]:
    """(how many, bytes) of all tensors alike: planes of `pages` pages, cartridge, states of the requests."""
    found = []
    for layers in pool.layout.attention:
        stored = planes(layers, pool.recipe).values()
        found += [(layers.count, pages(layers) * pool.page_tokens * size) for size in stored]
        if pool.cartridge is not None:
            shared = planes(layers, pool.cartridge.recipe).values()
            found += [(layers.count, pool.cartridge.positions * size) for size in shared]
    if pool.layout.state_layers:
        found.append((pool.layout.state_layers, requests * pool.layout.state_bytes // pool.layout.state_layers))
    return found


def sizes(pool: Pool, pages: Callable[[Layers], int], requests: int) -> tuple[int, int]:
    """(payload bytes, tail bytes) of a pool whose layers have so many pages."""
    allocator, attention_layers = pool.allocator, pool.layout.attention_layers
    stored = [pool.recipe] + ([pool.cartridge.recipe] if pool.cartridge else [])
    scalars = sum(fixed_scales(pool.layout, recipe) for recipe in stored)
    held = tensors(pool, pages, requests)
    payload = sum(count * size for count, size in held) + scalars * SCALE_BYTES
    rounded = sum(count * -(-size // allocator.granule_bytes) * allocator.granule_bytes for count, size in held)
    reserved = max(scalars, allocator.layer_scalars * attention_layers) * allocator.scalar_bytes
    return payload, rounded + reserved + attention_layers * allocator.layer_tail_bytes - payload


def most(budget_bytes: int, bound: int, taken: Callable[[int], tuple[int, int]]) -> Fit:
    """The largest count, at most `bound`, whose payload and tails fit. Raises KassayError if not even none does."""
    count = bisect_right(range(bound + 1), budget_bytes, key=lambda number: sum(taken(number))) - 1
    if count < 0:
        raise KassayError(
            f"the budget is {budget_bytes} bytes, and {sum(taken(0))} are taken before any token",
            hint="a larger BUDGET, fewer REQUESTS or a smaller CARTRIDGE",
        )
    payload, tails = taken(count)
    return Fit(count=count, payload_bytes=payload, tail_bytes=tails, left_bytes=budget_bytes - payload - tails)


def pages_in(pool: Pool, budget_bytes: int, requests: int) -> Fit:
    """Pages that fit beside the full windows and the states of so many requests.

    Raises KassayError if the budget is too small for these, or if no layer keeps every token.
    """
    check_cartridge(pool)
    page_bytes = token_bytes(pool.layout, pool.recipe) * pool.page_tokens
    if not page_bytes:
        raise KassayError(
            "no layer of this model keeps every token, so there are no slots to count",
            hint="TOKENS=<length> counts requests of that length",
        )

    def pages(layers: Layers, count: int) -> int:
        if layers.window_tokens is None:
            return count
        return requests * kept_pages(layers, layers.window_tokens + pool.page_tokens, pool.page_tokens)

    return most(
        budget_bytes,
        budget_bytes // page_bytes,
        lambda count: sizes(pool, lambda layers: pages(layers, count), requests),
    )


def requests_in(pool: Pool, budget_bytes: int, tokens: int) -> Fit:
    """Requests of that length, beside the cartridge, that fit; each in whole pages of its own."""
    check_cartridge(pool)
    if tokens < 1:
        raise KassayError(f"a request has at least 1 token, not {tokens}")
    return most(
        budget_bytes,
        budget_bytes // request_payload(pool, tokens),
        lambda requests: sizes(pool, lambda layers: requests * kept_pages(layers, tokens, pool.page_tokens), requests),
    )


def request_payload(pool: Pool, tokens: int) -> int:
    """Bytes of one request in whole pages, its state included: none takes less."""
    held = tensors(pool, lambda layers: kept_pages(layers, tokens, pool.page_tokens), 1)
    shared = tensors(pool, lambda layers: 0, 0)
    return sum(count * size for count, size in held) - sum(count * size for count, size in shared)
