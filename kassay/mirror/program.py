"""The mirror's own program: `python program.py <request file>`, with the interpreter of its environment.

It follows events.jsonl until standard input ends, sends what the service does not hold yet, confirms, moves the cursor
and records its health. It loads wandb or trackio and of kassay only what needs no package. An alarm of the kernel ends
it if a call does not return, whatever that call does.
"""

import fcntl
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kassay.errors import KassayError
from kassay.mirror import cursor, request
from kassay.mirror.request import EXIT_SENT, EXIT_TOLD, Request, append_health
from kassay.mirror.rows import Row, Rows
from kassay.mirror.service import Service, service_of

PERIOD_S = 0.2  # how often the events are looked at
LIMIT_S = 300  # longest time in one round of calls to the service: W&B's own limit for opening a run is 90 s
LOCK_WAIT_S = 10.0  # a mirror whose driver died may still be finishing
PACKAGES = "site-packages/"


class Busy(KassayError):
    """Another process mirrors this run."""


def main() -> None:
    """Mirror the run; the exit status says whether a record tells how it went. Left at once: services hang at exit."""
    asked = request.load(Path(sys.argv[1]))
    try:
        with held(asked):
            mirror(asked)
    except BaseException as error:  # the one place where whatever ends a mirror becomes a record
        traceback.print_exception(error)
        append_health(asked, "failed", cursor.load(asked).events, described(error))
        os._exit(EXIT_TOLD)
    append_health(asked, "sent", cursor.load(asked).events, "")
    os._exit(EXIT_SENT)


@contextmanager
def held(asked: Request) -> Iterator[None]:
    """One process at a time mirrors a run to a service. Raises Busy."""
    with (asked.folder / f"{asked.mirror}.lock").open("wb") as lock:
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Busy("another process mirrors this run") from None
                time.sleep(PERIOD_S)
        yield


def mirror(asked: Request) -> None:
    """Follow the events and send them until the run is over, then have all confirmed and move the cursor."""
    known = cursor.load(asked)
    rows = Rows(Path(asked.run_dir))
    waiting: list[Row] = []
    service: Service | None = None
    over = False
    while not over:
        over = ended(PERIOD_S)  # asked before the events are read: what was written before the end is seen
        signal.alarm(LIMIT_S)
        waiting += rows.fresh()
        # A copy on this disk is as the cursor says; what a service on the network holds only it knows.
        if service is None and (rows.count > known.events or asked.online):
            service = service_of(asked, known)
        if service is not None:
            for row in waiting:
                if row.number >= service.held:
                    service.send(row)
            waiting = []
    signal.alarm(LIMIT_S)
    if service is not None:
        cursor.save(asked, rows.count, service.close(bool(rows.crashed)))
    signal.alarm(0)


def ended(period_s: float) -> bool:
    """Whether standard input has ended, after waiting a period for it: nothing is ever written to it."""
    return bool(select.select([sys.stdin], [], [], period_s)[0])


def described(error: BaseException) -> str:
    """Class and place of an error without its message, which may quote an address or a key."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    file = last.filename.rpartition(PACKAGES)[2] if PACKAGES in last.filename else Path(last.filename).name
    return f"{type(error).__name__} in `{last.name}` ({file}:{last.lineno})"


if __name__ == "__main__":
    main()
