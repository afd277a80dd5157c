"""What stages leave behind: processes whose own parents have ended, adopted by the driver, told apart and ended.

The driver is a child subreaper (prctl(2)): a process that daemonizes below a stage becomes the driver's child when its
parent ends, whatever session it made, so nothing of a stage can be above or beside the driver. A child that is not the
driver's own belongs to the stage

- in whose session it is, or
- whose mark (KASSAY_JOB, inherited by all that a stage starts) is in /proc/<pid>/environ.

One that has neither, as it cleared its environment *and* made a session of its own, is ended when nothing runs any
more: only then it cannot be some running stage's. The price is that such a process outlives its own stage while others
run. Never ended are: children that the driver had before its first stage (a mirror), what is in the driver's own
session (a git command), and what carries a KASSAY_JOB that is not this driver's. A process that the driver starts
later, in a session of its own, and that lives on while stages run, has to carry such a KASSAY_JOB.

Linux only. What a stage has asked somebody else to start (a container service, systemd, at) is nobody's here.
"""

import ctypes
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from kassay.engine.stragglers import VARIABLE, environment, kill

PR_SET_CHILD_SUBREAPER = 36
EXEC_S = 0.2  # a process without an environment is between two images; one that has none stays without
NEW_S = 1.0  # in less no host counts once around all process numbers
FEW = 20  # so many numbers are asked for (4 us each) sooner than /proc is listed (40 us here, 1 ms where much runs)
STAT_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Process:
    """A line of /proc/<pid>/stat."""

    pid: int
    parent: int
    session: int
    zombie: bool


class Orphans:
    """The children of this driver that are not its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._session = os.getsid(0)
        self._bare_since: dict[int, float] = {}
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.own = {process.pid for process in table(0) if process.parent == self._pid}

    def sweep(self, mark: str, sessions: Iterable[int], bare: bool, above: int) -> list[int]:
        """KILL what belongs to a mark or a session, with all below it, and take in what has ended.

        Returns what was there; empty means that none is left. `bare` takes what has no mark along. Processes with
        numbers up to `above` are not looked at.
        """
        seen = table(above)
        found, doomed = [], []
        for process in seen:
            if process.parent != self._pid or process.pid in self.own or is_thread(process.pid):
                continue
            if process.zombie:
                found += self._take_in(process)
            elif process.session in sessions or self._belongs(process, mark, bare):
                doomed.append(process.pid)
            elif self._bare_since.get(process.pid, 0.0) + EXEC_S > time.monotonic():
                found.append(process.pid)  # not known yet
        below: dict[int, list[int]] = {}
        for process in seen:
            below.setdefault(process.parent, []).append(process.pid)
        for pid in doomed:
            doomed += below.get(pid, [])
            kill(os.kill, pid)
        return found + doomed

    def take_in(self) -> None:
        """Take in adopted processes that have ended while their stages run, as long as they come first."""
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                process = look(ended.si_pid)
                if ended.si_pid in self.own or process is None or not self._take_in(process):
                    return

    def _take_in(self, process: Process) -> list[int]:
        """Wait for an adopted process that has ended, if it is not a child that some code of the driver waits for."""
        if process.session == self._session:
            return []
        self._bare_since.pop(process.pid, None)
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
        return [process.pid]

    def _belongs(self, process: Process, mark: str, bare: bool) -> bool:
        """Whether a process that lives carries the mark, or none while those are asked for."""
        told = environment(process.pid)
        if not told:
            since = self._bare_since.setdefault(process.pid, time.monotonic())
            return bare and time.monotonic() - since > EXEC_S and process.session != self._session
        self._bare_since.pop(process.pid, None)
        carried = (b"\0" + told).partition(VARIABLE)[2].partition(b"\0")[0].decode(errors="replace")
        if not carried:
            return bare and process.session != self._session
        return carried == mark or carried.startswith((f"{mark}.", f"{mark}/"))


def table(above: int) -> list[Process]:
    """All processes with numbers greater than `above`; threads may be among them, with their process's parent."""
    last = newest() if above else 0
    if 0 < above <= last <= above + FEW:
        numbers: Iterable[int] = range(above + 1, last + 1)
    else:
        numbers = (number for entry in os.listdir("/proc") if entry.isdigit() and (number := int(entry)) > above)
    return [process for process in map(look, numbers) if process is not None]


def is_thread(pid: int) -> bool:
    """Whether a number is that of a thread, which /proc shows to who asks for it."""
    try:
        return b"\nTgid:\t%d\n" % pid not in read(f"/proc/{pid}/status")
    except OSError:
        return True  # it has ended meanwhile, and an adopted process does not


def since(pid: int, lasted_s: float) -> int:
    """The number above which all are that were started after `pid`; 0 if the numbers may have gone around."""
    return pid if lasted_s < NEW_S and newest() >= pid else 0


def newest() -> int:
    """The number that was given last."""
    return int(read("/proc/loadavg").split()[4])


def look(pid: int) -> Process | None:
    """A process as it is now; its name, the second field, may hold any character."""
    try:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 4)
    except OSError:
        return None  # it has ended meanwhile
    return Process(pid=pid, parent=int(fields[1]), session=int(fields[3]), zombie=fields[0] in b"ZX")


def read(path: str) -> bytes:
    """A small file of /proc, with the fewest system calls."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, STAT_BYTES)
    finally:
        os.close(descriptor)
