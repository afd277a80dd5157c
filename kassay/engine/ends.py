"""Which of some child processes have ended: told at once by their pidfds, or, before Linux 5.3, by asking.

A child that has ended is left unwaited for, so that its number stays its own.
"""

import errno
import os
import select
import subprocess

ASK_S = 0.01  # between two looks where the kernel has no pidfd


class Ends:
    """Processes whose end is awaited."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._descriptors: dict[int, int] = {}  # pid -> pidfd
        self._pids: dict[int, int] = {}  # pidfd -> pid
        self._asked: set[int] = set()  # pids that have no pidfd

    def add(self, pid: int) -> None:
        """Await the end of a child. Raises OSError if there is no descriptor left."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            self._asked.add(pid)
            return
        self._descriptors[pid], self._pids[descriptor] = descriptor, pid
        self._poll.register(descriptor, select.POLLIN)

    def forget(self, pid: int) -> None:
        """Await it no more; once is enough."""
        self._asked.discard(pid)
        if (descriptor := self._descriptors.pop(pid, None)) is not None:
            del self._pids[descriptor]
            self._poll.unregister(descriptor)
            os.close(descriptor)

    def wait(self, longest_s: float) -> set[int]:
        """The pids that have ended, after waiting for one so long at most."""
        if self._asked and longest_s > 0:
            longest_s = min(longest_s, ASK_S)
        found = {self._pids[descriptor] for descriptor, _ in self._poll.poll(max(longest_s, 0.0) * 1000)}
        return found | {pid for pid in self._asked if has_ended(pid)}


def has_ended(pid: int) -> bool:
    """Whether a child that nobody has waited for has ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is left unwaited for."""
    return process.returncode is not None or has_ended(process.pid)
