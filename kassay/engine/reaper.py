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
from kassay.engine.stragglers import NOTHING_LEFT, end_stragglers

PROGRAM = Path(__file__).with_name("stragglers.py")
CONCLUDE_S = 5.0  # it has nothing to do then but to read a word


class Reaper:
    """Knows the process groups that run."""

    def __init__(self, token: str) -> None:
        self._groups: set[int] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM), token],
            cwd="/",
            env={**os.environ, KASSAY_JOB: f"{token}/reaper"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None, "a bug: a reaper without its pipe"
        self.pid = self._process.pid
        os.set_blocking(self._process.stdin.fileno(), False)  # a reaper that was stopped must not stop the driver
        weakref.finalize(self, conclude, self._process, self._groups)

    def watch(self, group: int) -> None:
        """Put a group on the list."""
        self._groups.add(group)
        tell(self._process, b"+%d\n" % group)

    def forget(self, group: int) -> None:
        """Take a group that was ended off the list."""
        self._groups.discard(group)
        tell(self._process, b"-%d\n" % group)


def stragglers(token: str) -> list[int]:
    """KILL every process that still carries a dead driver's token; what the kernel has not ended is returned."""
    return end_stragglers(token) if token else []


def tell(process: subprocess.Popen[bytes], line: bytes) -> None:
    """Write to the reaper. One that somebody has killed or stopped hears nothing, and what it misses has a token."""
    assert process.stdin is not None, "a bug: a reaper without its pipe"
    try:
        os.write(process.stdin.fileno(), line)
    except (BrokenPipeError, BlockingIOError):
        pass


def conclude(process: subprocess.Popen[bytes], groups: set[int]) -> None:
    """Let the reaper go, with nothing to do if nothing is left."""
    assert process.stdin is not None, "a bug: a reaper without its pipe"
    if not groups:
        tell(process, NOTHING_LEFT + b"\n")
    process.stdin.close()
    try:
        process.wait(CONCLUDE_S)
    except subprocess.TimeoutExpired:
        pass  # it has much to end, or was stopped; it is on its own
