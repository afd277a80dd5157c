"""Time of kernels that cannot be had from one call: captured graphs of many calls, replayed in turns.

A graph holds many calls, so that its launch costs nothing, and what a call reads is not in the cache of the one
before. Arms that are compared are replayed once each in every round, in an order that rotates:
large shapes reach a card's power limit, and a second arm alone would meet another clock. CUDA events, microseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Captured:
    """A graph, and what it reads and writes: torch unmaps freed memory before it captures the next one."""

    graph: torch.cuda.CUDAGraph
    call: Callable[[int], object]  # holds the operands and workspaces

    def replay(self) -> None:
        """Run it once."""
        self.graph.replay()


def captured(call: Callable[[int], object], calls: int) -> Captured:
    """A graph of call(0) … call(calls - 1), which allocate nothing; call(0) runs once before."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(calls):
            call(number)
    return Captured(graph, call)


def microseconds(graph: Captured, calls: int, replays: int) -> list[float]:
    """Time of a call in each replay, the first included."""
    marks = [mark() for _ in range(replays + 1)]
    marks[0].record()
    for each in marks[1:]:
        graph.replay()
        each.record()
    torch.cuda.synchronize()
    return [1e3 * one.elapsed_time(other) / calls for one, other in pairwise(marks)]


def interleaved(graphs: Mapping[str, Captured], calls: int, rounds: int) -> dict[str, list[float]]:
    """Time of a call of each arm in each round; one round before them is thrown away."""
    names = list(graphs)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            began, ended = mark(), mark()
            began.record()
            graphs[name].replay()
            ended.record()
            ended.synchronize()
            if number:
                found[name].append(1e3 * began.elapsed_time(ended) / calls)
    return found


def mark() -> torch.cuda.Event:
    """A place in the stream whose time is kept."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
