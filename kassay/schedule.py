"""In which order stages may start: each when all that it needs has ended, what comes after all others last, one by one.

Nothing here grows with the number of stages: an end costs as many steps as stages read from it.
"""

import heapq
from collections.abc import Container, Iterable

from kassay.entry import Stage


class Schedule:
    """The stages that have not ended yet; among those that are ready the first of the plan comes first."""

    def __init__(self, stages: Iterable[Stage]) -> None:
        self._stages = list(stages)
        self.index = {stage.name: position for position, stage in enumerate(self._stages)}
        self._readers: dict[str, list[int]] = {name: [] for name in self.index}
        self._lacks = [0] * len(self._stages)
        self._others = 0  # those that have not ended and come before what comes after all
        self._last = [position for position, stage in enumerate(self._stages) if stage.after_all][::-1]
        for position, stage in enumerate(self._stages):
            if stage.after_all:
                continue
            self._others += 1
            for name in stage.needs():
                self._readers[name].append(position)
                self._lacks[position] += 1
        self._ready = [
            position for position, stage in enumerate(self._stages) if not stage.after_all and not self._lacks[position]
        ]
        self.left = len(self._stages)
        self._release_last()

    def pop(self) -> Stage | None:
        """The next stage that is ready, once each; None if none is."""
        return self._stages[heapq.heappop(self._ready)] if self._ready else None

    def ended(self, name: str) -> None:
        """A stage has ended, however: those that waited for it alone are ready now."""
        self.left -= 1
        position = self.index[name]
        if not self._stages[position].after_all:
            self._others -= 1
        for reader in self._readers[name]:
            self._lacks[reader] -= 1
            if not self._lacks[reader]:
                heapq.heappush(self._ready, reader)
        self._release_last()

    def lacking(self, name: str, ended: Container[str]) -> list[str]:
        """The stages that have not ended and that this one needs."""
        stage = self._stages[self.index[name]]
        if stage.after_all:
            return [other.name for other in self._stages if not other.after_all and other.name not in ended]
        return [needed for needed in stage.needs() if needed not in ended]

    def _release_last(self) -> None:
        """Let the next of those that come after all others be ready, if nothing else is left."""
        if self._others == 0 and self._last and self.left == len(self._last):
            heapq.heappush(self._ready, self._last.pop())


def closure(stages: Iterable[Stage], names: Iterable[str]) -> list[Stage]:
    """The stages of these names and all that they need, in the plan's order."""
    ordered = list(stages)
    wanted = set(names)
    for stage in reversed(ordered):
        if stage.name in wanted:
            wanted |= (
                {other.name for other in ordered if not other.after_all} if stage.after_all else set(stage.needs())
            )
    return [stage for stage in ordered if stage.name in wanted]
