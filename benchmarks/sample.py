"""One command measured from outside: wall, CPU, peak memory of the tool itself and of the largest process below it.

wall: monotonic clock around the whole process. CPU: user + system of the process and of all that it waited for (wait4).
largest: ru_maxrss of the same; it cannot read below this process's own size, as exec keeps the mark of what forked.
driver: VmHWM of the tool's own process, read every SAMPLE_MS while it runs; exact but for its very end.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLE_MS = 20  # 30 us of reading each: below 0.2 % of one core
LIMIT_S = 300.0  # ten times the slowest tool that is measured here
GRACE_S = 10.0  # between TERM and KILL of a tool that ran past it
KIB = 1024


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is started, and where."""

    argv: tuple[str, ...]
    cwd: Path
    environment: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one run of a command took."""

    wall_s: float
    cpu_s: float
    largest_bytes: int
    driver_bytes: int
    exit_code: int  # negative: the signal that ended it
    load: float  # runnable processes of the host over the last minute, when it began


def measure(command: Command, log: Path) -> Sample:
    """Run a command with no terminal, its words appended to `log`."""
    load = os.getloadavg()[0]
    with log.open("ab") as out:
        started = time.monotonic()
        process = subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=command.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
        with ended_on_error(process):
            driver_bytes = watch(process.pid, started + LIMIT_S)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - started
    return Sample(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        largest_bytes=usage.ru_maxrss * KIB,
        driver_bytes=driver_bytes,
        exit_code=process.returncode,
        load=load,
    )


@contextmanager
def ended_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ctrl-C and faults of ours end the tool too; it ends its stages as it can."""
    try:
        yield
    except BaseException:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def watch(pid: int, deadline: float) -> int:
    """The highest VmHWM of a process in bytes, until it ends; past the deadline it gets TERM, then KILL."""
    highest = high_water_mark(pid)
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        signals = [(deadline, signal.SIGTERM), (deadline + GRACE_S, signal.SIGKILL)]
        while not poll.poll(SAMPLE_MS):
            highest = max(highest, high_water_mark(pid))
            if signals and time.monotonic() > signals[0][0]:
                signal.pidfd_send_signal(descriptor, signals.pop(0)[1])
    finally:
        os.close(descriptor)
    return highest


def high_water_mark(pid: int) -> int:
    """VmHWM of a process in bytes, 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * KIB for line in status.splitlines() if line.startswith("VmHWM")), 0)


def environment(**more: str) -> dict[str, str]:
    """Our environment without words of a make, a kassay or a Python around us."""
    dropped = ("MAKE", "MFLAGS", "KASSAY", "SET", "PYTHON", "VIRTUAL_ENV", "NINJA", "SNAKEMAKE")
    return {name: text for name, text in os.environ.items() if not name.startswith(dropped)} | more
