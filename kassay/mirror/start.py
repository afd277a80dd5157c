"""The driver's side: starting the mirrors of a run, ending them within bounded time, and sending again later.

Whatever happens to a mirror, `start` and `finish` return and the run goes on: an error of the disk or of a process
becomes a health record, or silence if not even that can be written.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import kassay
from kassay import paths
from kassay.engine import KASSAY_JOB
from kassay.engine.ends import exited
from kassay.engine.local import signal_group
from kassay.errors import ConfigError, RecordError, RunError
from kassay.kinds.mirror import MirrorRecord, State
from kassay.mirror import cursor, request
from kassay.mirror.request import EXIT_SENT, EXIT_TOLD, Request, append_health
from kassay.record import read_kind, set_aside_torn_tail

if TYPE_CHECKING:
    from kassay.config.setting import Setting

FINISH_S = 10.0  # W&B's client needs one second for a copy on disk, a few to see the last rows uploaded
POLL_PERIOD_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Follower:
    """One mirror's process."""

    request: Request
    process: subprocess.Popen[bytes]

    def conclude(self) -> None:
        """End the process and all that it started; record how it went unless it did so itself."""
        hung = not exited(self.process)
        signal_group(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        if hung:
            record(self.request, "hung", f"not finished {FINISH_S:g} s after the run; it was ended")
        elif status == -signal.SIGALRM:
            record(self.request, "hung", "a call of the service did not return; it was ended")
        elif status not in (EXIT_SENT, EXIT_TOLD):
            record(self.request, "failed", f"ended with exit status {status} without a word")


class Mirror:
    """The mirrors of a run that goes on."""

    def __init__(self, followers: list[Follower]) -> None:
        self.followers = followers

    def finish(self) -> None:
        """Say that the run is over, give the mirrors FINISH_S together, end what is left."""
        deadline = time.monotonic() + FINISH_S
        for follower in self.followers:
            assert follower.process.stdin is not None, "a bug: a mirror without its pipe"
            follower.process.stdin.close()
        try:
            while time.monotonic() < deadline and not all(exited(one.process) for one in self.followers):
                time.sleep(POLL_PERIOD_S)
        finally:
            for follower in self.followers:
                follower.conclude()


def start(run_dir: Path, settings: "dict[str, Setting]") -> Mirror | None:
    """Start the mirrors that the settings ask for, each in a session of its own; None if there is none."""
    followers = []
    for asked in request.asked(run_dir, settings):
        try:
            set_aside_torn_tail(run_dir / request.RECORDS)
            record(asked, "started", "")
            process = launched(asked, subprocess.PIPE, subprocess.DEVNULL)
        except OSError as error:
            record(asked, "failed", f"could not be started: {type(error).__name__}")
            continue
        followers.append(Follower(request=asked, process=process))
    return Mirror(followers) if followers else None


def resend(run_dir: Path, settings: "dict[str, Setting]") -> list[MirrorRecord]:
    """Send what has not arrived yet and wait for it; each mirror's last record. Raises ConfigError, RunError."""
    if not (run_dir / paths.EVENTS).is_file():
        raise RunError(f"{paths.shown(run_dir)}: no run with events to send", hint="make runs it")
    requests = request.asked(run_dir, settings)
    if not requests:
        raise ConfigError("no mirror is switched on", hint="make WANDB=y, or TRACKIO=y")
    set_aside_torn_tail(run_dir / request.RECORDS)
    for asked in requests:
        record(asked, "started", "")
        process = launched(asked, subprocess.DEVNULL, None)
        try:
            while not exited(process):  # the program itself ends what does not return
                time.sleep(POLL_PERIOD_S)
        finally:
            Follower(request=asked, process=process).conclude()
    told = {one.mirror: one for one in read_kind(run_dir / request.RECORDS, MirrorRecord)}
    return [told[asked.mirror] for asked in requests]


def launched(asked: Request, stdin: int, stderr: int | IO[bytes] | None) -> subprocess.Popen[bytes]:
    """The process of one mirror, out of reach of the terminal's Ctrl-C."""
    home = str(Path(kassay.__file__).resolve().parent.parent)
    launch = Path(__file__).with_name("launch.py")
    return subprocess.Popen(
        [sys.executable, "-P", str(launch), str(asked.save())],
        cwd=asked.folder,
        env={**os.environ, "PYTHONPATH": home, KASSAY_JOB: "mirror"},  # what it starts is no stage's
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
    )


def record(asked: Request, state: State, reason: str) -> None:
    """Append a health record from the driver's side."""
    with suppress(OSError, RecordError, ValueError):  # a full disk under a mirror's files must not end a run
        append_health(asked, state, cursor.load(asked).events, reason)
