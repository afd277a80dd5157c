"""A server's process: started on a free loopback port, waited for until it is healthy, and always stopped.

It leads a process group of its own, in the session of its stage: so all of it is ended together (TERM, grace, KILL),
and if the stage itself is killed, the driver finds it by its session and its mark. TERM to the stage is turned into an
exception, so that the server is stopped then too.
"""

import http.client
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay.errors import RunError
from kassay.tail import last_lines

HOST = "127.0.0.1"
POLL_S = 0.05
ANSWER_S = 2.0  # within which a health check is answered
REAP_S = 5.0  # after KILL
SETTLE_S = 0.5  # for a server that does not answer to have ended
TAIL_BYTES, TAIL_LINES = 8192, 8


@dataclass(kw_only=True)
class Server:
    """A running server, and how it ended once it has."""

    process: subprocess.Popen[bytes]
    port: int
    ready_s: float
    died: bool = False  # it ended before it was told to
    stopped_by: str = ""  # TERM, KILL or itself


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def words_of(command: str, values: Mapping[str, str]) -> list[str]:
    """The words of a command, `{port}`, `{model}` and the like replaced each within its word; no shell is asked."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RunError(f"the server's command `{command}` cannot be split into words: {error}") from None
    for name, value in values.items():
        words = [word.replace("{" + name + "}", value) for word in words]
    if not words or "{port}" not in command:
        raise RunError(f"the server's command is `{command}`: it must name `{{port}}`")
    return words


@contextmanager
def running(
    argv: Sequence[str], *, port: int, log: Path, ready_timeout_s: float, grace_s: float, environment: dict[str, str]
) -> Iterator[Server]:
    """A healthy server, stopped at the end whatever happens. Raises RunError with its last words if it never is one."""
    with log.open("ab") as stream, terminable():
        started = time.monotonic()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, process_group=0
        )
        server = Server(process=process, port=port, ready_s=0.0)
        try:
            wait_ready(server, log, ready_timeout_s)
            server.ready_s = time.monotonic() - started
            yield server
        finally:
            stop(server, grace_s)


def wait_ready(server: Server, log: Path, timeout_s: float) -> None:
    """Wait until /health answers 200. Raises RunError if the process ends first or the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        if ended(server.process):
            raise RunError("the server ended before it was ready:", *told(log), hint=f"its log is {log}")
        if healthy(server.port):
            return
        if time.monotonic() > deadline:
            raise RunError(f"the server was not healthy within {timeout_s:g} s:", *told(log), hint=f"its log is {log}")
        time.sleep(POLL_S)


def healthy(port: int) -> bool:
    """Whether /health answers 200 now."""
    connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()  # or the server's connection is reset
        return response.status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def told(log: Path) -> list[str]:
    """The last lines of a server's log."""
    return [f"  {line}" for line in last_lines(log, TAIL_BYTES)[-TAIL_LINES:]]


def stop(server: Server, grace_s: float) -> None:
    """End the process group: TERM, grace, KILL; whatever is left of it once its leader has ended is killed."""
    process = server.process
    if not healthy(server.port):  # its sockets are closed before it counts as ended
        wait_ended(process, SETTLE_S)
    if ended(process):
        server.died, server.stopped_by = True, "itself"
    else:
        server.stopped_by = "TERM"
        signal_group(process.pid, signal.SIGTERM)
        if not wait_ended(process, grace_s):
            server.stopped_by = "KILL"
    signal_group(process.pid, signal.SIGKILL)
    process.wait(REAP_S)


def wait_ended(process: subprocess.Popen[bytes], longest_s: float) -> bool:
    """Wait for a process to end; whether it has."""
    deadline = time.monotonic() + longest_s
    while not ended(process) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return ended(process)


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is not reaped, so that its group's number stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def signal_group(group: int, number: signal.Signals) -> None:
    """Signal a process group, which may be gone."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


@contextmanager
def terminable() -> Iterator[None]:
    """Turn TERM into SystemExit meanwhile, so that `finally` is reached; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(received: int, frame: Any) -> None:
        raise SystemExit(128 + received)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
