"""What torch holds: tensors as views of their storages for kassay.kv.accounting, and the allocator's own numbers.

    weights   parameters and buffers of the model
    staging   operands of the native prefill, from which caches are filled
    scratch   what reading one layer of a cache rebuilds beside it: one layer's reconstruction exists at a time

Pools come from the allocator's segments: those of the default pool, and those of private pools, which graphs have.
The processor has no caching allocator, which is said and is no zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kassay.errors import KassayError
from kassay.kv.accounting import SCRATCH, STAGING, WEIGHTS, Held
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.memory_records import append_allocator
from kassay.stage import Stage

DEFAULT_POOL = (0, 0)


@dataclass(frozen=True, kw_only=True)
class AllocatorState:
    """The caching allocator of one device at one moment; see kassay.kinds.memory.AllocatorRecord."""

    allocated_bytes: int
    allocated_peak_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    pool_active_bytes: int
    pool_inactive_bytes: int
    graph_active_bytes: int
    graph_inactive_bytes: int


def held(part: str, tensor: torch.Tensor, payload_bytes: int | None = None) -> Held:
    """One tensor as a view of its storage; all of it is payload unless told otherwise."""
    storage = tensor.untyped_storage()
    spans = (stride * (size - 1) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    view_bytes = (sum(spans) + 1) * tensor.element_size() if tensor.numel() else 0
    return Held(
        part=part,
        device=str(tensor.device),
        pointer=storage.data_ptr(),
        storage_bytes=storage.nbytes(),
        offset_bytes=int(tensor.storage_offset()) * tensor.element_size(),
        view_bytes=view_bytes,
        payload_bytes=min(tensor.nbytes, view_bytes) if payload_bytes is None else payload_bytes,
    )


def cache_held(cache: RecipeCache) -> list[Held]:
    """Every persisted tensor of a cache; its tokens are its payload."""
    return [
        held(one.part, one.tensor, one.tensor.nbytes * one.tokens // max(1, capacity(one.tensor)))
        for one in cache.storages()
    ]


def capacity(tensor: torch.Tensor) -> int:
    """Token capacity of a stored tensor (axis T of BHTD); 1 for the scalar of a fixed scale."""
    return tensor.shape[2] if tensor.dim() else 1


def weights_held(model: Any) -> list[Held]:
    """Parameters and buffers, tied ones once."""
    seen = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return [held(WEIGHTS, tensor) for tensor in seen.values()]


def staging_held(context: Prefilled) -> list[Held]:
    """The operands of a native prefill."""
    return [held(STAGING, tensor) for pair in context.operands for tensor in pair]


def scratch_held(cache: RecipeCache, dtype: torch.dtype) -> list[Held]:
    """What reading the first layer rebuilds beside the cache; a 16-bit plane that is read in place rebuilds nothing."""
    first = cache.stored[0]
    own = {(one.device, one.pointer) for one in cache_held(cache)}
    rebuilt = [plane.rebuilt(dtype) for plane in (first.key_plane, first.value_plane)]
    kept = [x for x in rebuilt if (str(x.device), x.untyped_storage().data_ptr()) not in own]
    return [held(SCRATCH, tensor) for tensor in kept]


def absent_allocator(device: torch.device) -> str:
    """Why a device has no allocator's numbers; empty if it has."""
    return "" if device.type == "cuda" else f"torch has no caching allocator on {device.type}"


def reset_peaks(device: torch.device) -> None:
    """Let the allocator's peaks begin anew."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # before it the allocator knows no device
        torch.cuda.reset_peak_memory_stats(device)


def allocator_state(device: torch.device) -> AllocatorState:
    """The allocator's numbers now, after all work that was asked for. For CUDA devices."""
    torch.cuda.synchronize(device)
    snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return state_of(torch.cuda.memory_stats(device), snapshot, device.index or 0)


def state_of(stats: dict[str, Any], segments: Iterable[dict[str, Any]], index: int) -> AllocatorState:
    """The state from torch's statistics and segments. Raises KassayError if these disagree on what is reserved."""
    own = [segment for segment in segments if segment["device"] == index]
    graph = [segment for segment in own if tuple(segment["segment_pool_id"]) != DEFAULT_POOL]
    default = [segment for segment in own if tuple(segment["segment_pool_id"]) == DEFAULT_POOL]
    reserved = int(stats["reserved_bytes.all.current"])
    if (total := sum(segment["total_size"] for segment in own)) != reserved:
        raise KassayError(f"the allocator's segments hold {total} bytes and its statistics say {reserved}")
    return AllocatorState(
        allocated_bytes=int(stats["allocated_bytes.all.current"]),
        allocated_peak_bytes=int(stats["allocated_bytes.all.peak"]),
        reserved_bytes=reserved,
        reserved_peak_bytes=int(stats["reserved_bytes.all.peak"]),
        pool_active_bytes=active(default),
        pool_inactive_bytes=inactive(default),
        graph_active_bytes=active(graph),
        graph_inactive_bytes=inactive(graph),
    )


def active(segments: Sequence[dict[str, Any]]) -> int:
    """Bytes of segments that are in use, or will be until a stream has passed."""
    return sum(int(segment["active_size"]) for segment in segments)


def inactive(segments: Sequence[dict[str, Any]]) -> int:
    """Bytes of segments that are held and free."""
    return sum(int(segment["total_size"]) - int(segment["active_size"]) for segment in segments)


def reserved_peaks(stage: Stage, recipe: str, phase: str, device: torch.device) -> list[int]:
    """The allocator's numbers of a phase as a record; its reserved peak in bytes, if it has one."""
    absent = absent_allocator(device)
    numbers = None if absent else asdict(allocator_state(device))
    append_allocator(stage, recipe, phase, str(device), absent, numbers)
    return [] if numbers is None else [numbers["reserved_peak_bytes"]]
