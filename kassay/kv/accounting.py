"""Which bytes does each part of a run hold, if every storage is counted once?

    storage   one allocation, known by (device, pointer); tensors are views of it
    payload   what the stored tokens need of a tensor
    backing   the bytes of the storage behind it, whatever of it is in use

A storage is booked once, however many tensors view it. Where tensors of several parts share one, it is booked under
their joined name (`keys+values`) and under neither of them. The same view given twice counts once. More payload than
storage means that something was added twice, and raises. Sums over parts are therefore sums over allocations.

An allocator's own numbers (allocated, reserved, graph pools) contain these storages: they stand beside them, in records
of another kind, and are never added to them. Nothing here knows torch: kassay.backend.holdings asks it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kassay.errors import KassayError

KEYS, VALUES, KEY_SCALES, VALUE_SCALES = "keys", "values", "key_scales", "value_scales"
TABLES, WEIGHTS, STAGING, SCRATCH = "block_tables", "weights", "staging", "scratch"
CACHE = (KEYS, VALUES, KEY_SCALES, VALUE_SCALES)  # what persists of the tokens
PARTS = (*CACHE, TABLES, WEIGHTS, STAGING, SCRATCH)
JOINT = "+"


@dataclass(frozen=True, kw_only=True)
class Held:
    """One tensor as a view of its storage."""

    part: str  # one of PARTS
    device: str
    pointer: int  # where the storage begins
    storage_bytes: int
    offset_bytes: int  # of the view in the storage
    view_bytes: int  # of the whole view, capacity included
    payload_bytes: int  # of it in use


@dataclass(frozen=True, kw_only=True)
class PartBytes:
    """What one part holds."""

    part: str  # one of PARTS, or several joined by `+`
    payload_bytes: int
    backing_bytes: int
    storages: int


def accounted(held: Iterable[Held]) -> tuple[PartBytes, ...]:
    """The parts, in the order of PARTS and joined ones last.

    Raises KassayError for an unknown part, a storage without an address, storages that disagree on their size, and for
    more payload than storage.
    """
    storages: dict[tuple[str, int], dict[tuple[int, int], Held]] = defaultdict(dict)
    for one in held:
        check(one)
        if one.storage_bytes == 0:
            continue  # nothing is allocated; such storages share the pointer 0
        views = storages[one.device, one.pointer]
        same = views.setdefault((one.offset_bytes, one.view_bytes), one)
        if (same.part, same.payload_bytes, same.storage_bytes) != (one.part, one.payload_bytes, one.storage_bytes):
            raise KassayError(f"one view is {same} and {one}: it would be counted twice")
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (device, pointer), views in storages.items():
        name, payload, backing = booked(device, pointer, list(views.values()))
        row = sums[name]
        row[0], row[1], row[2] = row[0] + payload, row[1] + backing, row[2] + 1
    order = {part: rank for rank, part in enumerate(PARTS)}
    return tuple(
        PartBytes(part=name, payload_bytes=row[0], backing_bytes=row[1], storages=row[2])
        for name, row in sorted(sums.items(), key=lambda item: (order.get(item[0], len(PARTS)), item[0]))
    )


def check(one: Held) -> None:
    """Raise KassayError for a view that cannot be."""
    if one.part not in PARTS:
        raise KassayError(f"`{one.part}` is no part of memory, allowed: {', '.join(PARTS)}")
    if one.storage_bytes and not one.pointer:
        raise KassayError(f"a storage of {one.storage_bytes} bytes on {one.device} has no address: is it allocated?")
    inside = one.offset_bytes >= 0 and one.offset_bytes + one.view_bytes <= one.storage_bytes
    if not (inside and 0 <= one.payload_bytes <= one.view_bytes):
        raise KassayError(f"a view does not lie in its storage or holds more than itself: {one}")


def booked(device: str, pointer: int, views: list[Held]) -> tuple[str, int, int]:
    """Name, payload and backing of one storage with all its views."""
    sizes = {view.storage_bytes for view in views}
    if len(sizes) > 1:
        raise KassayError(f"the storage at {pointer} on {device} has sizes {sorted(sizes)}: it changed between views")
    payload, backing = sum(view.payload_bytes for view in views), sizes.pop()
    if payload > backing:
        raise KassayError(f"views of a storage of {backing} bytes on {device} hold {payload}: something counts twice")
    order = {part: rank for rank, part in enumerate(PARTS)}
    return JOINT.join(sorted({view.part for view in views}, key=order.__getitem__)), payload, backing


def cache_parts(parts: Iterable[PartBytes]) -> tuple[PartBytes, ...]:
    """Keys, values and their scales, joined ones included: what a budget of persistent bytes is about."""
    return tuple(part for part in parts if of_cache(part.part))


def of_cache(part: str) -> bool:
    """Whether a part, or all that a joined one is made of, persists of the tokens."""
    return set(part.split(JOINT)) <= set(CACHE)
