"""A process that outlives the driver for a moment: it kills the process groups that the driver left.

Linux ends a stage itself when its driver dies (kassay.stage.die_with_parent), but only once the stage has come that
far, and not what the stage has started. The reaper holds the other end of a pipe. When the driver is gone, however it
went, the pipe closes and every group that is still on the list gets KILL. It lives in a session of its own, so that a
Ctrl-C in the terminal does not reach it.
"""

import subprocess
import sys

LOOP = """
import os, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, 9)
    except ProcessLookupError:
        pass
"""


class Reaper:
    """Knows the process groups that run; its process lives while there is one."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: subprocess.Popen[str] | None = None

    def watch(self, group: int) -> None:
        """Put a group on the list."""
        if self._process is None:
            argv = [sys.executable, "-I", "-S", "-c", LOOP]
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._groups.add(group)
        self._tell(f"+{group}\n")

    def forget(self, group: int) -> None:
        """Take a group that was ended off the list."""
        self._groups.discard(group)
        self._tell(f"-{group}\n")
        if not self._groups and self._process is not None:
            self._process.communicate()
            self._process = None

    def _tell(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None, "a bug: a group nobody watches"
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # somebody killed the reaper; stages still die with their parent
