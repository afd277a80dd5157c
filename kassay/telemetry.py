"""Samplers of memory: a query starts every 20 ms, each is kept with its start and end, and gaps void a window.

    gap = the largest time from the start of one successful query to the end of the next

What a query answers was true at some instant between its start and its end, so memory may have been anything for as
long as a gap, and no longer. Time of the window before the first success and after the last is a gap too. A window
whose gap exceeds 500 ms is no evidence (studies.md 2), whatever its samples show. The largest sample is a sample,
never a continuous maximum.

Starts lie on a grid of the period from the first one, on the monotonic clock; a query that runs over its slot skips
the starts that it missed and never bunches them. The CPU time is that of the sampler's own thread. What is queried is
kassay.memory_sources' answer.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Protocol

from kassay.errors import KassayError

PERIOD_NS = 20_000_000
LONGEST_GAP_NS = 500_000_000
FEWEST_SUCCESSES = 2  # one before the work and one after it


class QueryFailed(KassayError):
    """One query had no answer; the next may have one."""


class Source(Protocol):
    """What can be asked how many bytes are in use."""

    name: str  # `resident` (this process) or `device` (all processes on it)
    device: str  # `host`, or the GPU's UUID

    def read(self) -> int:
        """Bytes in use now. Raises QueryFailed."""


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
    thread_cpu_ns: int  # processor time of the sampler's thread
    thread_wall_ns: int  # how long that thread was there

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
        """Processor time of the sampler's thread over its life: 1 is one core."""
        return self.thread_cpu_ns / max(1, self.thread_wall_ns)

    @property
    def fault(self) -> str:
        """Why the window is no evidence; empty if it is."""
        gap_ns = self.gap_ns
        if gap_ns is None:
            return f"{len(self.answered)} of {len(self.samples)} queries were answered, {FEWEST_SUCCESSES} are needed"
        if not gap_ns <= LONGEST_GAP_NS:
            return f"the gap is {gap_ns / 1e6:.1f} ms, allowed are {LONGEST_GAP_NS / 1e6:g} ms"
        return ""


def query_bounded_gap(answered: Sequence[Sample], opened_ns: int, closed_ns: int) -> int | None:
    """The largest time in nanoseconds that the answered queries of a window leave open."""
    if len(answered) < FEWEST_SUCCESSES:
        return None
    between = [after.ended_ns - before.started_ns for before, after in pairwise(answered)]
    return max(answered[0].ended_ns - opened_ns, *between, closed_ns - answered[-1].started_ns)


def query(source: Source, clock: Clock) -> Sample:
    """Ask once."""
    started_ns = clock.now_ns()
    try:
        used_bytes, error = source.read(), ""
    except QueryFailed as failed:
        used_bytes, error = None, str(failed)
    return Sample(started_ns=started_ns, ended_ns=clock.now_ns(), used_bytes=used_bytes, error=error)


def take(source: Source, clock: Clock, samples: list[Sample], first: threading.Event) -> None:
    """Append samples on the grid until the clock says that it is over, and one more after that."""
    samples.append(query(source, clock))
    first.set()
    origin_ns, slot = samples[0].started_ns, 0
    while True:
        slot = max(slot + 1, -(-(samples[-1].ended_ns - origin_ns) // PERIOD_NS))
        over = clock.stopped_by(origin_ns + slot * PERIOD_NS)
        samples.append(query(source, clock))
        if over:
            return


class Monotonic:
    """The real clock, and the way to stop a sampler."""

    def __init__(self) -> None:
        self._running = threading.Lock()  # held until the stop; waiting for it takes half of what an Event's wait does
        self._running.acquire()

    def stop(self) -> None:
        """End the sampler's next or present wait."""
        self._running.release()

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def stopped_by(self, due_ns: int) -> bool:
        """Wait until then, or until `stop` is called; whether it was."""
        return self._running.acquire(timeout=max(0, due_ns - time.monotonic_ns()) / 1e9)


class Sampler:
    """Samples one source from a thread of its own while its `with` block runs; `window` is there afterwards.

    The block begins after the first query and the last query begins after the block, so that both ends are covered.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.window: Window | None = None
        self._clock = Monotonic()
        self._samples: list[Sample] = []
        self._spent_ns = (0, 0)
        self._complete = False
        self._first = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler of {source.name}", daemon=True)
        self._opened_ns = 0

    def _run(self) -> None:
        began_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        try:
            take(self.source, self._clock, self._samples, self._first)
            self._complete = True
        finally:  # a bug in a source must not leave the block waiting
            self._first.set()
            self._spent_ns = (time.thread_time_ns() - cpu_ns, time.monotonic_ns() - began_ns)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        self._first.wait()
        self._opened_ns = time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closed_ns = time.monotonic_ns()
        self._clock.stop()
        self._thread.join()
        if not self._complete and error is None:
            raise KassayError(f"{self._thread.name} died; its traceback is on stderr")
        cpu_ns, wall_ns = self._spent_ns
        self.window = Window(
            source=self.source.name,
            device=self.source.device,
            opened_ns=self._opened_ns,
            closed_ns=closed_ns,
            samples=tuple(self._samples),
            thread_cpu_ns=cpu_ns,
            thread_wall_ns=wall_ns,
        )

    def finished(self) -> Window:
        """The window of a block that has ended."""
        if self.window is None:
            raise KassayError("the sampler's block has not ended: this is a bug")
        return self.window
