"""The batches of a sweep: the powers of two up to the largest, or those that are listed, as far as a cache holds."""

from typing import Any


def planned_batches(params: dict[str, Any], context_tokens: int) -> list[int]:
    """The batches of a context; at least one."""
    grid = params.get("batches") or powers(params["largest_batch"])
    most = params.get("most_cached_tokens") or max(grid) * context_tokens
    return [batch for batch in grid if batch * context_tokens <= most] or grid[:1]


def powers(largest: int) -> list[int]:
    """1, 2, 4, … up to `largest`, which is always the last one."""
    grid = [1 << exponent for exponent in range(largest.bit_length()) if 1 << exponent < largest]
    return [*grid, largest]
