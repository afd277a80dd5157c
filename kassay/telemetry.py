"""Samplers of memory: a query starts every 20 ms, each is kept with its start and end, and gaps void a window.

    gap = the largest time from the start of one successful query to the end of the next

What a query answers was true at some instant between its start and its end, so memory may have been anything for as
long as a gap, and no longer. Time of the window before the first success and after the last is a gap too. A window
whose gap exceeds 500 ms is no evidence, whatever its samples show (studies.md 2; a study may set another bound). The
largest sample is a sample, never a continuous maximum.

Starts lie on a grid of the period from the first one, on the monotonic clock, which all processes of a host share; a
query that runs over its slot skips the starts that it missed and never bunches them.

The sampler is a process of its own (kassay.sampling). In a thread each query gives the interpreter away and waits for
it beside a busy loop, which starved the sampler and slowed the loop; docs/findings/2026-11-30-sampler.md has both costs
of both. What is queried is kassay.memory_sources' answer.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from kassay.errors import KassayError

PERIOD_NS = 20_000_000
LONGEST_GAP_NS = 500_000_000
FEWEST_SUCCESSES = 2  # one before the work and one after it
FIRST = b"first\n"  # what the sampler's process says after its first query
SAMPLE = ("started_ns", "ended_ns", "used_bytes", "error")  # of a sample as it is told


class QueryFailed(KassayError):
    """One query had no answer; the next may have one."""


class Source(Protocol):
    """What can be asked how many bytes are in use."""

    name: str  # `resident` (one process) or `device` (all processes on it)
    device: str  # `host`, or the GPU's UUID
    words: tuple[str, ...]  # how another process is told which one it is (kassay.memory_sources.told)

    def ask(self) -> object:
        """Ask once; the answer as it comes. Raises QueryFailed."""

    def bytes_of(self, answer: Any) -> int:
        """Bytes in use by an answer. Raises QueryFailed for one that says nothing."""


class Clock(Protocol):
    """Time, as a sampler needs it."""

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""

    def stopped_by(self, due_ns: int) -> bool:
        """Wait until then, or until the sampler is stopped; whether it was."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One query, answered or not."""

    started_ns: int  # monotonic
    ended_ns: int
    used_bytes: int | None  # None exactly where it failed
    error: str  # empty exactly where it was answered


@dataclass(frozen=True, kw_only=True)
class Window:
    """All queries of one source around a piece of work."""

    source: str
    device: str
    opened_ns: int  # when the work could begin
    closed_ns: int  # when it had ended
    samples: tuple[Sample, ...]
    period_ns: int  # between starts, as planned
    longest_gap_ns: int | None  # of a window that is evidence; None: no bound
    sampler_cpu_ns: int  # processor time of the sampler's process from its first query to its last
    sampler_wall_ns: int  # how long that was
    startup_cpu_ns: int  # its processor time before the first query, when no work was measured yet

    @property
    def answered(self) -> tuple[Sample, ...]:
        """The successful queries."""
        return tuple(sample for sample in self.samples if sample.used_bytes is not None)

    @property
    def gap_ns(self) -> int | None:
        """The query-bounded gap, as the module defines it; None with fewer than two successful queries."""
        return query_bounded_gap(self.answered, self.opened_ns, self.closed_ns)

    @property
    def largest_bytes(self) -> int | None:
        """The largest sample, None where there is none."""
        return max((sample.used_bytes for sample in self.answered if sample.used_bytes is not None), default=None)

    @property
    def cpu_share(self) -> float:
        """Processor time of the sampler over the time that it sampled: 1 is one core."""
        return self.sampler_cpu_ns / max(1, self.sampler_wall_ns)

    @property
    def fault(self) -> str:
        """Why the window is no evidence; empty if it is."""
        gap_ns = self.gap_ns
        if gap_ns is None:
            return f"{len(self.answered)} of {len(self.samples)} queries were answered, {FEWEST_SUCCESSES} are needed"
        if self.longest_gap_ns is not None and not gap_ns <= self.longest_gap_ns:
            return f"the gap is {gap_ns / 1e6:.1f} ms, allowed are {self.longest_gap_ns / 1e6:g} ms"
        return ""


def query_bounded_gap(answered: Sequence[Sample], opened_ns: int, closed_ns: int) -> int | None:
    """The largest time in nanoseconds that the answered queries of a window leave open."""
    if len(answered) < FEWEST_SUCCESSES:
        return None
    between = [after.ended_ns - before.started_ns for before, after in pairwise(answered)]
    return max(answered[0].ended_ns - opened_ns, *between, closed_ns - answered[-1].started_ns)


Asked = tuple[int, int, object, str]  # start, end, the answer as it came, why there is none


def take(
    source: Source, clock: Clock, asked: list[Asked], first: Callable[[], None], period_ns: int = PERIOD_NS
) -> None:
    """Ask on the grid until the clock says that it is over, and once more after that; tell of the first answer.

    Every 20 ms this loop wakes up in cold caches, where each line of Python costs several times what it does when it is
    warm: that is most of what a sampler takes. So answers are kept as they come, and made samples of when all is over.
    """
    ask, now_ns, stopped_by, keep = source.ask, clock.now_ns, clock.stopped_by, asked.append
    over, due_ns = False, 0
    while True:
        started_ns = now_ns()
        try:
            answer, error = ask(), ""
        except QueryFailed as failed:
            answer, error = None, str(failed)
        ended_ns = now_ns()
        keep((started_ns, ended_ns, answer, error))
        if over:
            return
        if not due_ns:
            due_ns = started_ns  # where the grid begins
            first()
        due_ns += period_ns
        if due_ns < ended_ns:
            due_ns -= (due_ns - ended_ns) // period_ns * period_ns
        over = stopped_by(due_ns)


def samples_of(source: Source, asked: Sequence[Asked]) -> list[Sample]:
    """What was asked, as samples."""
    made = []
    for started_ns, ended_ns, answer, error in asked:
        used_bytes = None
        if not error:
            try:
                used_bytes = source.bytes_of(answer)
            except QueryFailed as failed:
                error = str(failed)
        made.append(Sample(started_ns=started_ns, ended_ns=ended_ns, used_bytes=used_bytes, error=error))
    return made


class Sampler:
    """Samples one source from a process of its own while its `with` block runs; `window` is there afterwards.

    The block begins after the first query and the last query begins after the block, so that both ends are covered.
    The process ends with the block, and with this process however that ends: its standard input is then closed.
    """

    def __init__(self, source: Source, period_ns: int = PERIOD_NS, longest_gap_ns: int | None = LONGEST_GAP_NS) -> None:
        self.source = source
        self.period_ns, self.longest_gap_ns = period_ns, longest_gap_ns
        self.window: Window | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._opened_ns = 0

    def __enter__(self) -> "Sampler":
        from kassay import sampling  # here, so that its code is among what a stage loaded; it needs this module

        argv = [sys.executable, "-m", sampling.__name__, str(self.period_ns), *self.source.words]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=with_kassay(os.environ)
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != FIRST:
            self._end()
            raise KassayError(f"{self._name} died before its first query; its traceback is on stderr")
        self._opened_ns = time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closed_ns = time.monotonic_ns()
        told = self._end()
        if error is not None:
            return
        if told is None:
            raise KassayError(f"{self._name} died; its traceback is on stderr")
        self.window = Window(
            source=self.source.name,
            device=self.source.device,
            opened_ns=self._opened_ns,
            closed_ns=closed_ns,
            period_ns=self.period_ns,
            longest_gap_ns=self.longest_gap_ns,
            samples=tuple(Sample(**dict(zip(SAMPLE, one, strict=True))) for one in told["samples"]),
            **told["cost"],
        )

    @property
    def _name(self) -> str:
        return f"the sampler of {self.source.name} memory"

    def _end(self) -> dict[str, Any] | None:
        """What the process told at its end; None if it told nothing whole."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        with self._process.stdout as stdout:
            written = stdout.read()
        code = self._process.wait()
        return json.loads(written or b"null") if code == 0 else None

    def finished(self) -> Window:
        """The window of a block that has ended."""
        if self.window is None:
            raise KassayError("the sampler's block has not ended: this is a bug")
        return self.window


def with_kassay(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which this project is found as this process found it."""
    known = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, known))}
