"""What ends the processes of a driver that is gone: all that still carry its token in their environment.

As a module it gives `end_stragglers`, for a driver that takes over a run from a dead one. As a program,
`python -I -S stragglers.py <token> <descriptor>`, it is the reaper (kassay.engine.reaper): when its input closes, it
kills the process groups that the file of memory behind the descriptor lists, and then all stragglers. Standard library
only.

A process that cleared its environment and made a session of its own is not found here.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

VARIABLE = b"\0KASSAY_JOB="
PERIOD_S = 0.02
QUIET = 2  # looks in a row that find none: between two images of a process there is a moment without an environment
GIVE_UP_S = 30.0  # the kernel takes seconds to take down a process that has tens of GiB pinned
NOTHING_LEFT = b"."
NUMBER_BYTES = 8  # of a group in the list; 0 is none


def end_stragglers(token: str) -> list[int]:
    """KILL all processes of a dead driver until there are none; those that are still there after `GIVE_UP_S`."""
    deadline, quiet = time.monotonic() + GIVE_UP_S, 0
    while True:
        found = carrying(token)
        quiet = 0 if found else quiet + 1
        if quiet == QUIET or time.monotonic() > deadline:
            return found
        for pid in found:
            kill(os.kill, pid)
        time.sleep(PERIOD_S)


def carrying(token: str) -> list[int]:
    """The processes, but for this one, whose KASSAY_JOB begins with the token and a dot; a zombie has none."""
    wanted = VARIABLE + token.encode() + b"."
    others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in others if pid != os.getpid() and wanted in b"\0" + environment(pid)]


def environment(pid: int) -> bytes:
    """The environment with which a process was started; empty if it is gone or may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as stream:
            return stream.readall()
    except OSError:
        return b""


def kill(how: Callable[[int, int], None], number: int) -> None:
    """KILL a process or a group that may be gone or not ours to end."""
    try:
        how(number, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone by itself, or another user's


def main() -> None:
    """Follow the driver's pipe to its end. What asks other processes to end does not concern this one."""
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    token, listed = sys.argv[1], int(sys.argv[2])
    if sys.stdin.buffer.read() == NOTHING_LEFT:
        return
    told = os.pread(listed, os.fstat(listed).st_size, 0)
    for place in range(0, len(told), NUMBER_BYTES):
        if group := int.from_bytes(told[place : place + NUMBER_BYTES], sys.byteorder):
            kill(os.killpg, group)
    end_stragglers(token)


if __name__ == "__main__":
    main()
