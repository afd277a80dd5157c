"""Stages that are ready and wait for cores, memory, GPUs or disk, sorted by what they ask for.

Where one is refused, all that ask for the same would be: a round over a thousand equal stages asks once.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Kind = tuple[object, ...]  # what a stage asks for


class Waiting(Generic[T]):
    """Queues by kind; in each the first of the plan comes first."""

    def __init__(self) -> None:
        self._queues: dict[Kind, list[tuple[int, T]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def has(self, kind: Kind) -> bool:
        """Whether one that asks for the same waits."""
        return kind in self._queues

    def add(self, kind: Kind, position: int, item: T) -> None:
        """Let one wait; `position` is its place in the plan."""
        heapq.heappush(self._queues.setdefault(kind, []), (position, item))

    def start(self, starts: Callable[[T], bool]) -> None:
        """Offer what waits to `starts` until it refuses, kind by kind, the kind with the first of the plan first."""
        for kind, queue in sorted(self._queues.items(), key=lambda pair: pair[1][0][0]):
            while queue and starts(queue[0][1]):
                heapq.heappop(queue)
            if not queue:
                del self._queues[kind]

    def of(self, position: int) -> T | None:
        """The one of that place in the plan, if it waits here."""
        return next((item for queue in self._queues.values() for at, item in queue if at == position), None)
