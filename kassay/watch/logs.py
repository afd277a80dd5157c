"""The logs of one stage as they are written, to standard output: `tail -F` over stdout.log and stderr.log.

A line `==> <path> <==` says which of the two follows. A new attempt has a new directory under the same name: what is
left of the old files is read first, then the new ones from their beginning.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kassay import paths
from kassay.config.tree import nearest
from kassay.configure import say
from kassay.errors import RunError
from kassay.watch.view import View

PERIOD_S = 0.2
CHUNK_BYTES = 1 << 16


class Tail:
    """One log, read on from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stream: BinaryIO | None = None

    def added(self) -> Iterator[bytes]:
        """What was written since the last look, to the old file and then to the one that has taken its place."""
        yield from self.rest()
        if self.replaced():
            yield from self.rest()  # what the old one got between the two looks; it gets no more
            self.close()
            self.stream = self.path.open("rb")
            yield from self.rest()

    def rest(self) -> Iterator[bytes]:
        """The unread part of the open file."""
        while self.stream is not None and (chunk := self.stream.read(CHUNK_BYTES)):
            yield chunk

    def replaced(self) -> bool:
        """Whether the path leads to another file than the open one; between two attempts it leads nowhere."""
        try:
            there = os.stat(self.path)
        except OSError:
            return False
        return self.stream is None or not os.path.samestat(there, os.fstat(self.stream.fileno()))

    def close(self) -> None:
        """Close the open file, if there is one."""
        if self.stream is not None:
            self.stream.close()


class Printer:
    """Writes the bytes of both logs, and before each part from which of them it is."""

    def __init__(self, directory: Path, out: BinaryIO) -> None:
        self.tails = [Tail(directory / name) for name in (paths.STDOUT, paths.STDERR)]
        self.out = out
        self.said: Tail | None = None
        self.line_begun = False

    @property
    def opened(self) -> bool:
        """Whether a log was found."""
        return any(tail.stream is not None for tail in self.tails)

    def print_added(self) -> None:
        """Print what both logs have gained."""
        for tail in self.tails:
            for chunk in tail.added():
                if self.said is not tail:
                    self.head(tail)
                self.out.write(chunk)
                self.line_begun = not chunk.endswith(b"\n")
        self.out.flush()

    def head(self, tail: Tail) -> None:
        """Say whose lines follow, on a line of its own."""
        before = ("\n" if self.line_begun else "") + ("\n" if self.said is not None else "")
        self.out.write(f"{before}==> {paths.shown(tail.path)} <==\n".encode())
        self.said = tail

    def close(self) -> None:
        """Close both logs."""
        for tail in self.tails:
            tail.close()


def follow(run_dir: Path, stage: str, out: BinaryIO) -> None:
    """Print a stage's logs until it has ended. Raises RunError if there is no such stage, or it did not run."""
    view = View(run_dir)
    if stage not in view.planned:
        close = nearest(stage, list(view.planned))
        raise RunError(f"no stage `{stage}` in run {view.run_dir.name}{close}", hint="make status names them")
    printer = Printer(view.directory(stage), out)
    told = ""
    try:
        while True:
            view.refresh()
            state = view.stage_state(stage)
            going = view.live and state in ("waiting", "running")
            if state != "waiting" or printer.opened or not view.live:
                printer.print_added()
            elif (waits := view.waits(stage)) != told:
                say(f"stage `{stage}` has not started: {waits}")
                told = waits
            if not going:
                break
            time.sleep(PERIOD_S)
    finally:
        printer.close()
    conclude(view, stage, printer.opened)


def conclude(view: View, stage: str, opened: bool) -> None:
    """Say how the stage ended. Raises RunError if it left no log as it did not run."""
    row = view.row(stage)
    how = f"stage `{stage}`: {row.state}{f' ({row.why})' if row.why else ''}"
    if not opened:
        raise RunError(f"{how}; it left no log", hint="make status")
    sys.stdout.flush()
    say(how)
