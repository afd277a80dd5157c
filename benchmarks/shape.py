"""The DAGs that every tool runs, and their floor: the bare spawn of the same commands.

Each node is `sh -c 'echo x > out_<name>'`. A node of the first layer declares a leaf file that it does not read, so an
appended leaf makes the tool run that node again with the same output: what runs beyond it tells of early cut-off.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

WORKERS = 2
FILES = 100


@dataclass(frozen=True, kw_only=True)
class Node:
    """One trivial stage."""

    name: str  # lower-case letters and digits
    needs: tuple[str, ...]  # names of the nodes whose outputs it declares as inputs
    leaf: str  # name of the leaf file that it declares, empty for none


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A DAG in layers: all of a layer may run side by side once the layer before it has ended."""

    name: str
    layers: tuple[tuple[Node, ...], ...]

    def nodes(self) -> Iterator[Node]:
        """All nodes, in an order in which each comes after those that it needs."""
        for layer in self.layers:
            yield from layer

    def count(self) -> int:
        """How many stages there are."""
        return sum(map(len, self.layers))

    def leaves(self) -> list[str]:
        """Names of the leaf files."""
        return sorted({node.leaf for node in self.nodes() if node.leaf})


def fan(count: int) -> Shape:
    """Independent stages, a leaf each."""
    layer = tuple(Node(name=f"s{n}", needs=(), leaf=f"s{n}") for n in range(count))
    return Shape(name=f"fan-{count}", layers=(layer,))


def chain(count: int) -> Shape:
    """Each stage after the one before it; the first has the leaf."""
    nodes = [Node(name=f"c{n}", needs=(f"c{n - 1}",) if n else (), leaf="" if n else "c0") for n in range(count)]
    return Shape(name=f"chain-{count}", layers=tuple((node,) for node in nodes))


def diamonds(count: int, width: int) -> Shape:
    """`count` times: `width` stages after the join before (or the leaf), and their join. 2 x count x width edges."""
    layers = []
    for n in range(count):
        before = (f"j{n - 1}",) if n else ()
        wide = tuple(Node(name=f"d{n}x{m}", needs=before, leaf="" if n else "top") for m in range(width))
        layers += [wide, (Node(name=f"j{n}", needs=tuple(node.name for node in wide), leaf=""),)]
    return Shape(name=f"diamonds-{count}x{width}", layers=tuple(layers))


SHAPES: dict[str, Callable[[], Shape]] = {
    "fan-100": lambda: fan(100),
    "fan-1000": lambda: fan(1000),
    "chain-100": lambda: chain(100),
    "diamonds-10x100": lambda: diamonds(10, 100),
}


def floor(shape: Shape, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of spawning the commands of a shape, WORKERS at a time, with nothing kept of any."""
    commands = [[f"echo x > {folder}/out_{node.name}" for node in layer] for layer in shape.layers]
    started, cpu_s = time.monotonic(), 0.0
    for layer in commands:
        running: set[int] = set()
        for command in layer:
            if len(running) == WORKERS:
                cpu_s += wait_for_one(running)
            running.add(os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ))
        while running:
            cpu_s += wait_for_one(running)
    return time.monotonic() - started, cpu_s


def file_cost_ms(folder: Path) -> float:
    """Milliseconds that it takes to make an empty file in a new folder.

    Tools differ in the files that they make a stage, and ext4 looks for a free inode among all that were freed in the
    last minutes: 0.02 ms otherwise, 0.5 ms after some 10,000 files were removed nearby. Both were measured here.
    """
    folder.mkdir()
    started = time.monotonic()
    for number in range(FILES):
        (folder / str(number)).touch()
    return (time.monotonic() - started) / FILES * 1e3


def wait_for_one(running: set[int]) -> float:
    """CPU seconds of one of these that ended. Raises RuntimeError if it failed: its time is no floor."""
    pid = 0
    while pid not in running:  # a process that is a child subreaper has children that are not its own
        pid, status, usage = os.wait4(-1, 0)
    running.remove(pid)
    if status:
        raise RuntimeError(f"a bare command ended with status {status}")
    return usage.ru_utime + usage.ru_stime
