"""Faults that an oracle must notice. Each changes what the code under test reads, never the reference.

Axes: B sequences, G KV heads, S keys, D head dim.

A fault is a pure function from the clean Stored to a faulty one; most are real ones of serving engines: a
stale page, a neighbour's scale, the other vendor's FP8. It does not say whether it is caught: a fault
that changes nothing (the neighbour of a single head) is inert, and `inert` finds that.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from kassay.kv import formats
from kassay.kv.oracle import Component, Stored
from kassay.kv.recipe import BITS, Recipe

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
    reaches: Callable[[Stored], bool]  # whether what is stored gives the fault anything to change, by its arithmetic


def always(recipe: Recipe) -> bool:
    """Every recipe."""
    return True


def scaled(recipe: Recipe) -> bool:
    """A recipe with a component of fewer than 16 bits."""
    return recipe.policy != "none"


def neighboured(recipe: Recipe) -> bool:
    """A recipe whose scale has a neighbour that differs: of a whole write two requests may well have the same."""
    return scaled(recipe) and recipe.policy != "tensor"


def scaled_keys(recipe: Recipe) -> bool:
    """A recipe with keys of fewer than 16 bits."""
    return BITS[recipe.key_format] < 16


def scaled_values(recipe: Recipe) -> bool:
    """A recipe with values of fewer than 16 bits."""
    return BITS[recipe.value_format] < 16


def stores(*names: str) -> Callable[[Recipe], bool]:
    """A recipe with a component in one of these formats."""
    return lambda recipe: recipe.key_format in names or recipe.value_format in names


def prebiased(recipe: Recipe) -> bool:
    """A recipe that takes the key bias off."""
    return recipe.prebias


def both(stored: Stored, change: Change) -> Stored:
    """`change` on keys and values."""
    return replace(stored, keys=change(stored.keys), values=change(stored.values))


def over_tokens(component: Component, move: Callable[[np.ndarray], np.ndarray]) -> Component:
    """`move` on everything that is stored per token: data and dynamic scales."""
    scale = component.scale
    moved = move(scale) if scale is not None and scale.ndim == 4 else scale
    data = move(component.data_BGSD)
    offset = component.offset_GSD  # a matter of positions, which do not move; a shorter text has fewer
    kept = None if offset is None else offset[:, : data.shape[2]]
    return replace(component, data_BGSD=data, scale=moved, offset_GSD=kept)


def doubled(component: Component) -> Component:
    """Every scale times 2."""
    assert component.scale is not None, "a bug: a 16-bit component has no scale"
    return replace(component, scale=component.scale * np.float32(2))


def neighbour_scaled(component: Component) -> Component:
    """By token: the scale of the next KV head, of the next request where there is one. Fixed: the other component's."""
    if component.scale is None:
        return component
    if component.scale.ndim == 4:
        return replace(component, scale=np.roll(component.scale, 1, axis=1 if component.scale.shape[1] > 1 else 0))
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
    return replace(component, decoded_as="e4m3fnuz") if component.decoded_as == "e4m3fn" else component


def nibbles_swapped(component: Component) -> Component:
    """The two codes of each byte change places."""
    data = component.data_BGSD
    return replace(component, data_BGSD=data << 4 | data >> 4) if component.decoded_as.startswith("int4") else component


def sign_lost(component: Component) -> Component:
    """Codes of a byte read without their sign: the negative ones become their complement's magnitude."""
    data = component.data_BGSD
    whole = component.decoded_as in ("int8", "int6")
    return replace(component, data_BGSD=data & np.uint8(0x7F)) if whole else component


def anywhere(stored: Stored) -> bool:
    """Every operand."""
    return True


def through_bf16(x: np.ndarray) -> np.ndarray:
    """FP32 values rounded to BF16."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def unlike_bf16(stored: Stored) -> bool:
    """Not if all quotients are BF16 already: BF16 operands over a power of two, the scale of every 128th such amax."""
    for each in (stored.keys, stored.values):
        if each.operand_BGSD is None or each.scale is None:
            continue
        powers = np.frexp(each.scale)[0] == 0.5
        if not (np.all(powers) and np.array_equal(through_bf16(each.operand_BGSD), each.operand_BGSD)):
            return True
    return False


def double_rounded(component: Component) -> Component:
    """Codes of quotients that were rounded to BF16 first."""
    if component.operand_BGSD is None or component.scale is None or component.decoded_as not in ("e4m3fn", "int8"):
        return component
    stored = formats.format_named(component.decoded_as)
    scale = component.scale
    spread = scale if scale.ndim < 4 else np.repeat(scale, component.operand_BGSD.shape[-1] // scale.shape[-1], -1)
    quotient = through_bf16(component.operand_BGSD / spread)
    one = np.ones_like(scale)
    return replace(component, data_BGSD=formats.encode(stored, quotient, one, saturate=True))


def bias_forgotten(component: Component) -> Component:
    """The rotated key bias is not added again."""
    return component if component.offset_GSD is None else replace(component, offset_GSD=0 * component.offset_GSD)


def bias_late(component: Component) -> Component:
    """The key bias of the position before."""
    offset = component.offset_GSD
    return component if offset is None else replace(component, offset_GSD=np.roll(offset, 1, axis=1))


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
        and (one.offset_GSD is None or two.offset_GSD is None or np.array_equal(one.offset_GSD, two.offset_GSD))
        for one, two in ((clean.keys, faulty.keys), (clean.values, faulty.values))
    ) and (clean.causal, clean.first_query) == (faulty.causal, faulty.first_query)


def fault(
    name: str,
    title: str,
    applies: Callable[[Recipe], bool],
    inject: Callable[[Stored], Stored],
    reaches: Callable[[Stored], bool] = anywhere,
) -> Mutation:
    """A Mutation in one line."""
    return Mutation(name=name, title=title, applies=applies, inject=inject, reaches=reaches)


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
        neighboured,
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
    fault("e4m3fnuz_decoding", "codes read as E4M3FNUZ", stores("e4m3fn"), lambda s: both(s, as_fnuz)),
    fault(
        "nibbles_swapped",
        "the two codes of a byte swapped",
        stores("int4", "int4-g32"),
        lambda s: both(s, nibbles_swapped),
    ),
    fault(
        "sign_lost",
        "INT8 and INT6 codes read without their sign",
        stores("int8", "int6"),
        lambda s: both(s, sign_lost),
    ),
    fault(
        "double_rounding",
        "quotients rounded to BF16 first",
        stores("e4m3fn", "int8"),
        lambda s: both(s, double_rounded),
        unlike_bf16,
    ),
    fault("bias_forgotten", "key bias not added again", prebiased, lambda s: replace(s, keys=bias_forgotten(s.keys))),
    fault("bias_late", "key bias of the position before", prebiased, lambda s: replace(s, keys=bias_late(s.keys))),
    fault("key_code_corrupted", "the sign of one key", always, lambda s: replace(s, keys=sign_flipped(s.keys))),
    fault(
        "value_code_corrupted",
        "the sign of one value",
        always,
        lambda s: replace(s, values=sign_flipped(s.values)),
    ),
    fault("values_zeroed", "40 % of V zeroed", always, lambda s: replace(s, values=two_fifths_zeroed(s.values))),
)
