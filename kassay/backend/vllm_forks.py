"""Cells as forks of one process that has imported vLLM and not touched the GPU: for trials, where GPU minutes count.

An import of vLLM takes 10 to 30 s, which each fresh process of a study pays; a fork does not. Each cell has a process
group, a log and an end by which it is killed. `pair` hands one GPU to and fro between two living engines, so that a
ratio is one of neighbours in time. Studies do not use this: their cells are processes from the start (kassay.cell).
"""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

READY, TURN, LOAD, GO = b"r", b"t", b"l", b"g"  # words between a cell and its parent

Work = Callable[[], None]
Fail = Callable[[str, BaseException], None]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A cell's end of its pipes, seen from the parent."""

    process: int
    mouth: int
    ear: int


class Voice:
    """A cell's own end: it says where it is, and waits to be told to go on."""

    def __init__(self, ear: int, mouth: int) -> None:
        self._ear, self._mouth = ear, mouth

    def say(self, word: bytes) -> None:
        """Tell the parent."""
        os.write(self._mouth, word)

    def wait(self) -> None:
        """Until the parent says GO; raises EOFError if it is gone."""
        if os.read(self._ear, 1) != GO:
            raise EOFError("the parent is gone")


class Forks:
    """Starts cells under a folder for logs, and ends those that take too long."""

    def __init__(self, folder: Path, seconds: float, fail: Fail) -> None:
        self.folder, self.fail = folder, fail
        self.deadline = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds until no cell may run."""
        return self.deadline - time.monotonic()

    def run(self, name: str, work: Work, seconds: float) -> bool:
        """One cell from its begin to its end; whether it ended by itself, well."""
        return self.wait([self.start(name, work)], min(seconds, self.left_s()))

    def start(self, name: str, work: Work) -> int:
        """The process id of a cell, whose output goes to a log."""
        process = os.fork()
        os.setpgid(process, process)  # in both: whoever comes first, the group is there before it may be killed
        if process:
            return process
        log = os.open(self.folder / f"{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            traceback.print_exc()
            self.fail(name, error)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def wait(self, processes: Sequence[int], seconds: float) -> bool:
        """Wait for cells, and end their groups when time is up; whether all ended well."""
        until, well, left = time.monotonic() + seconds, True, list(processes)
        while left and time.monotonic() < until:
            for process in list(left):
                done, status = os.waitpid(process, os.WNOHANG)
                if done:
                    left.remove(process)
                    well = well and status == 0
            time.sleep(0.02)
        for process in left:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
        return well and not left

    def pair(self, works: Sequence[tuple[str, Callable[[Voice], None]]], loads: int) -> bool:
        """Two cells in turns: READY from both, then of each load one TURN each for its prefill, then turns to its LOAD.

        The second starts when the first is ready: an engine that measures free memory must be alone in changing it. The
        order changes with each load. False where a cell said something else, or nothing in time.
        """
        sides: list[Side] = []
        try:
            for name, work in works:
                sides.append(self._side(name, work))
                self._hear(sides[-1], READY)
            for load in range(loads):
                order = sides if load % 2 == 0 else sides[::-1]
                for side in order:
                    os.write(side.mouth, GO)
                    self._hear(side, TURN)
                left = list(order)
                while left:
                    for side in list(left):
                        os.write(side.mouth, GO)
                        if self._hear(side, TURN + LOAD) == LOAD:
                            left.remove(side)
            said = True
        except (OSError, EOFError, TimeoutError):
            said = False
        return self.wait([side.process for side in sides], 10 if said else 0) and said

    def _side(self, name: str, work: Callable[[Voice], None]) -> Side:
        to_cell, from_parent = os.pipe()
        to_parent, from_cell = os.pipe()
        process = self.start(name, lambda: work(Voice(to_cell, from_cell)))
        os.close(to_cell)
        os.close(from_cell)
        return Side(process=process, mouth=from_parent, ear=to_parent)

    def _hear(self, side: Side, words: bytes) -> bytes:
        if not select.select([side.ear], [], [], max(0.5, self.left_s()))[0]:
            raise TimeoutError
        word = os.read(side.ear, 1)
        if not word or word not in words:
            raise EOFError
        return word
