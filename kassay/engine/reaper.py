"""A process that outlives the driver for a moment and ends what the driver left.

Linux ends a stage itself when its driver dies (kassay.stage.die_with_parent), but only once the stage has come that
far, not what the stage has started, and not a stage that is a plain executable. The reaper holds the other end of a
pipe. When the driver is gone, however it went, the pipe closes; every group that is still on the list gets KILL, and
then every process that carries the driver's token (kassay.engine.stragglers). It lives in a session of its own, so that
a Ctrl-C in the terminal does not reach it, and as long as the driver: a start takes 10 ms, and stages may take less.
"""

import os
import subprocess
import sys
import weakref
from pathlib import Path

from kassay.engine import KASSAY_JOB
from kassay.engine.stragglers import NOTHING_LEFT, NUMBER_BYTES, end_stragglers

PROGRAM = Path(__file__).with_name("stragglers.py")
CONCLUDE_S = 5.0  # it has nothing to do then but to read a word


class Reaper:
    """Knows the process groups that run: numbers in a file of memory, so that telling it wakes nobody."""

    def __init__(self, token: str) -> None:
        self._list = os.memfd_create("kassay-groups")
        self._places: dict[int, int] = {}  # group -> its place in the list
        self._free: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), token, str(self._list)],
            cwd="/",
            pass_fds=[self._list],
            env={**os.environ, KASSAY_JOB: f"{token}/reaper"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "a bug: a reaper without its pipe"
        self.pid = self._process.pid
        weakref.finalize(self, conclude, self._process, self._places, self._list)

    def watch(self, group: int) -> None:
        """Put a group on the list."""
        self._places[group] = place = self._free.pop() if self._free else len(self._places)
        os.pwrite(self._list, group.to_bytes(NUMBER_BYTES, sys.byteorder), place * NUMBER_BYTES)

    def forget(self, group: int) -> None:
        """Take a group that was ended off the list."""
        if (place := self._places.pop(group, None)) is not None:
            os.pwrite(self._list, bytes(NUMBER_BYTES), place * NUMBER_BYTES)
            self._free.append(place)


def stragglers(token: str) -> list[int]:
    """KILL every process that still carries a dead driver's token; what the kernel has not ended is returned."""
    return end_stragglers(token) if token else []


def conclude(process: subprocess.Popen[bytes], places: dict[int, int], listed: int) -> None:
    """Let the reaper go, with nothing to do if nothing is left."""
    assert process.stdin is not None, "a bug: a reaper without its pipe"
    os.close(listed)
    try:
        if not places:
            process.stdin.write(NOTHING_LEFT)
        process.stdin.close()
    except BrokenPipeError:
        pass  # somebody has killed it
    try:
        process.wait(CONCLUDE_S)
    except subprocess.TimeoutExpired:
        pass  # it has much to end, or was stopped; it is on its own
