"""Faults that an oracle must notice. Each changes what the code under test reads, never the reference.

Axes: B sequences, G KV heads, S keys, D head dim.

A fault is a pure function from the clean Stored to a faulty one; most are real ones of serving engines: a
stale page, a neighbour's scale, the other vendor's FP8. It does not say whether it is caught: a fault
that changes nothing (the neighbour of a single head) is inert, and `inert` finds that.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from kassay.kv.oracle import Component, Stored
from kassay.kv.recipe import Recipe

PAGE_TOKENS = 16
PAGE = slice(PAGE_TOKENS, 2 * PAGE_TOKENS)  # the second: the first may be the same text in all requests

Change = Callable[[Component], Component]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One fault."""

    name: str
    title: str  # what goes wrong, in words
    applies: Callable[[Recipe], bool]
    inject: Callable[[Stored], Stored]


def always(recipe: Recipe) -> bool:
    """Every recipe."""
    return True


def scaled(recipe: Recipe) -> bool:
    """A recipe with an 8-bit component."""
    return recipe.policy != "none"


def scaled_keys(recipe: Recipe) -> bool:
    """A recipe with 8-bit keys."""
    return recipe.key_format == "e4m3fn"


def scaled_values(recipe: Recipe) -> bool:
    """A recipe with 8-bit values."""
    return recipe.value_format == "e4m3fn"


def both(stored: Stored, change: Change) -> Stored:
    """`change` on keys and values."""
    return replace(stored, keys=change(stored.keys), values=change(stored.values))


def over_tokens(component: Component, move: Callable[[np.ndarray], np.ndarray]) -> Component:
    """`move` on everything that is stored per token: data and dynamic scales."""
    scale = component.scale
    moved = move(scale) if scale is not None and scale.ndim == 4 else scale
    return replace(component, data_BGSD=move(component.data_BGSD), scale=moved)


def doubled(component: Component) -> Component:
    """Every scale times 2."""
    assert component.scale is not None, "a bug: a 16-bit component has no scale"
    return replace(component, scale=component.scale * np.float32(2))


def neighbour_scaled(component: Component) -> Component:
    """Dynamic: the scale of the next KV head. Fixed: the calibrated scale of the other component."""
    if component.scale is None:
        return component
    if component.scale.ndim == 4:
        return replace(component, scale=np.roll(component.scale, 1, axis=1))
    return replace(component, scale=component.other_scale)


def from_next_request(stored_BGSX: np.ndarray) -> np.ndarray:
    """One page of every request taken from the next request."""
    faulty = stored_BGSX.copy()
    faulty[:, :, PAGE] = np.roll(stored_BGSX, 1, axis=0)[:, :, PAGE]
    return faulty


def page_zeroed(component: Component) -> Component:
    """One page that was never written."""
    data = component.data_BGSD.copy()
    data[:, :, PAGE] = 0
    return replace(component, data_BGSD=data)


def tail_cut(stored_BGSX: np.ndarray) -> np.ndarray:
    """Without the last page, whole or not."""
    return stored_BGSX[:, :, : (stored_BGSX.shape[2] - 1) // PAGE_TOKENS * PAGE_TOKENS]


def two_fifths_zeroed(component: Component) -> Component:
    """Two of every five tokens are zero."""
    data = component.data_BGSD.copy()
    data[:, :, np.arange(data.shape[2]) % 5 < 2] = 0
    return replace(component, data_BGSD=data)


def as_fnuz(component: Component) -> Component:
    """Codes read as E4M3FNUZ: half of each value, and negative zero becomes NaN."""
    return component if component.scale is None else replace(component, decoded_as="e4m3fnuz")


def sign_flipped(component: Component) -> Component:
    """The sign bit of one element, the largest one."""
    data = component.data_BGSD.copy()
    bits = data.reshape(-1).view(f"u{data.dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * data.dtype.itemsize - 1))
    bits[int(np.argmax(bits & ~sign))] ^= sign
    return replace(component, data_BGSD=data)


def inert(clean: Stored, faulty: Stored) -> bool:
    """Whether the fault changed nothing that is read."""
    return all(
        one.decoded_as == two.decoded_as
        and np.array_equal(one.data_BGSD, two.data_BGSD)
        and (one.scale is None) == (two.scale is None)
        and (one.scale is None or two.scale is None or np.array_equal(one.scale, two.scale))
        for one, two in ((clean.keys, faulty.keys), (clean.values, faulty.values))
    ) and (clean.causal, clean.first_query) == (faulty.causal, faulty.first_query)


def fault(name: str, title: str, applies: Callable[[Recipe], bool], inject: Callable[[Stored], Stored]) -> Mutation:
    """A Mutation in one line."""
    return Mutation(name=name, title=title, applies=applies, inject=inject)


MUTATIONS: tuple[Mutation, ...] = (
    fault("key_scale_doubled", "key scales times 2", scaled_keys, lambda s: replace(s, keys=doubled(s.keys))),
    fault(
        "value_scale_doubled",
        "value scales times 2",
        scaled_values,
        lambda s: replace(s, values=doubled(s.values)),
    ),
    fault(
        "neighbour_scale",
        "scale of the neighbour head (dynamic) or of the other component (fixed)",
        scaled,
        lambda s: both(s, neighbour_scaled),
    ),
    fault(
        "keys_and_values_swapped",
        "K and V swapped",
        always,
        lambda s: replace(s, keys=s.values, values=s.keys),
    ),
    fault(
        "stale_page",
        "one page of 16 tokens of another request",
        always,
        lambda s: both(s, lambda c: over_tokens(c, from_next_request)),
    ),
    fault("zeroed_page", "one page of 16 tokens never written", always, lambda s: both(s, page_zeroed)),
    fault(
        "slot_off_by_one",
        "every token one slot too far",
        always,
        lambda s: both(s, lambda c: over_tokens(c, lambda stored_BGSX: np.roll(stored_BGSX, 1, axis=2))),
    ),
    fault(
        "tail_truncated",
        "the last page not read",
        always,
        lambda s: both(s, lambda c: over_tokens(c, tail_cut)),
    ),
    fault("causal_mask_missing", "queries see later tokens", always, lambda s: replace(s, causal=False)),
    fault("e4m3fnuz_decoding", "codes read as E4M3FNUZ", scaled, lambda s: both(s, as_fnuz)),
    fault("key_code_corrupted", "the sign of one key", always, lambda s: replace(s, keys=sign_flipped(s.keys))),
    fault(
        "value_code_corrupted",
        "the sign of one value",
        always,
        lambda s: replace(s, values=sign_flipped(s.values)),
    ),
    fault("values_zeroed", "40 % of V zeroed", always, lambda s: replace(s, values=two_fifths_zeroed(s.values))),
)
