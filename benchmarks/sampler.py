"""What the memory sampler costs, and how long it looks away, beside loads that compete with it: process and thread.

    python -m benchmarks.sampler [SECONDS [ROUNDS [LOAD …]]]

For each source and load, rounds of three in turn: alone, with the sampler in a process of its own (as it ships), and
with one in a thread of the process that it watches, which is what was there before. A line says of each sampler:
queries a second, the query-bounded gap, how long a query takes, the sampler's own processor time as a share of one
core, and how much slower the load went than alone, median and range over the rounds. `matrix` releases the interpreter,
`loop` never does, `threads` is four loops at once, `allocate` takes and returns memory. With a GPU that torch sees,
`gpu` keeps it busy and takes and returns its memory, and the device is sampled through NVML.
"""

import importlib.util
import statistics
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from kassay.host import describe, load_1min
from kassay.memory_sources import sources
from kassay.telemetry import LONGEST_GAP_NS, PERIOD_NS, Asked, Sampler, Source, Window, samples_of, take

DEFAULT_SECONDS, DEFAULT_ROUNDS = 4.0, 5
ALONE, PROCESS, THREAD = "alone", "process", "thread"


class Lock:
    """A real clock that a lock stops."""

    def __init__(self) -> None:
        self.running = threading.Lock()
        self.running.acquire()

    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        return time.monotonic_ns()

    def stopped_by(self, due_ns: int) -> bool:
        """Wait until then, or until the lock is released; whether it was."""
        return self.running.acquire(timeout=max(0, due_ns - time.monotonic_ns()) / 1e9)


class InThread:
    """The sampler as a thread of the process that it watches: it waits for the interpreter at every query."""

    def __init__(self, source: Source) -> None:
        self.source, self.clock = source, Lock()
        self.asked: list[Asked] = []
        self.first = threading.Event()
        self.spent_ns = (0, 0)
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Sample, and note what it cost."""
        began_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        take(self.source, self.clock, self.asked, self.first.set)
        self.spent_ns = (time.thread_time_ns() - cpu_ns, time.monotonic_ns() - began_ns)

    def __enter__(self) -> "InThread":
        self.thread.start()
        self.first.wait()
        self.opened_ns = time.monotonic_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed_ns = time.monotonic_ns()
        self.clock.running.release()
        self.thread.join()

    def finished(self) -> Window:
        """The window of the block."""
        return Window(
            source=self.source.name,
            device=self.source.device,
            opened_ns=self.opened_ns,
            closed_ns=self.closed_ns,
            samples=tuple(samples_of(self.source, self.asked)),
            period_ns=PERIOD_NS,
            longest_gap_ns=LONGEST_GAP_NS,
            sampler_cpu_ns=self.spent_ns[0],
            sampler_wall_ns=self.spent_ns[1],
            startup_cpu_ns=0,
        )


def idle(until: float) -> int:
    """Nothing."""
    time.sleep(max(0.0, until - time.monotonic()))
    return 0


def matrix(until: float) -> int:
    """Products that release the interpreter."""
    square, done = np.ones((512, 512)), 0
    while time.monotonic() < until:
        square, done = np.clip(square @ square, 0, 1), done + 1
    return done


def loop(until: float) -> int:
    """Pure Python that holds the interpreter."""
    done = 0
    while time.monotonic() < until:
        sum(range(1000))
        done += 1
    return done


def threads(until: float) -> int:
    """Four loops that take turns."""
    done: list[int] = []
    made = [threading.Thread(target=lambda: done.append(loop(until))) for _ in range(4)]
    for one in made:
        one.start()
    for one in made:
        one.join()
    return sum(done)


def allocate(until: float) -> int:
    """Memory taken, written and returned."""
    done = 0
    while time.monotonic() < until:
        np.ones(1 << 22).sum()
        done += 1
    return done


def gpu(until: float) -> int:
    """A GPU kept busy, with allocations from the driver."""
    import torch

    square, done = torch.ones((4096, 4096), device="cuda", dtype=torch.float16), 0
    while time.monotonic() < until:
        for _ in range(20):
            square = (square @ square).clamp(0, 1)
        held = torch.ones(1 << 28, device="cuda")
        torch.cuda.synchronize()
        del held
        torch.cuda.empty_cache()
        done += 1
    return done


def has_gpu() -> bool:
    """Whether torch is there and sees one."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


Rounds = dict[str, list[tuple[float, Window | None]]]  # way -> rate of the load, and the window of its sampler


def measured(source: Source, load: Callable[[float], int], seconds: float, rounds: int) -> Rounds:
    """Rounds of the load alone and with each sampler, in turn."""
    ways: list[tuple[str, type[Sampler] | type[InThread] | None]]
    ways = [(ALONE, None), (PROCESS, Sampler), (THREAD, InThread)]
    found: Rounds = {way: [] for way, _ in ways}
    for number in range(rounds):
        for way, kind in ways[number % 3 :] + ways[: number % 3]:
            sampler = kind(source) if kind else None
            if sampler is None:
                found[way].append((timed(load, seconds), None))
                continue
            with sampler:
                rate = timed(load, seconds)
            found[way].append((rate, sampler.finished()))
    return found


def timed(load: Callable[[float], int], seconds: float) -> float:
    """Units of a load per second."""
    began = time.monotonic()
    done = load(began + seconds)
    return done / (time.monotonic() - began)


def row(way: str, load: str, found: Rounds) -> str:
    """One line of the table: the median over the rounds, the worst gap."""
    windows = [window for _, window in found[way] if window is not None]
    shares = [100 * window.cpu_share for window in windows]
    gaps = [window.gap_ns for window in windows if window.gap_ns is not None]
    took = sorted((s.ended_ns - s.started_ns) / 1e6 for window in windows for s in window.samples)
    rate = sum(len(window.samples) for window in windows) / sum((w.closed_ns - w.opened_ns) / 1e9 for w in windows)
    pairs = zip(found[ALONE], found[way], strict=True)
    slower = [100 * (alone / own - 1) for (alone, _), (own, _) in pairs if alone and own]
    cost = f"{statistics.median(slower):+.2f} ({min(slower):+.2f} to {max(slower):+.2f})" if slower else "-"
    void = sum(bool(window.fault) for window in windows)
    return (
        f"{windows[0].source:9} {load:9} {way:8} {rate:6.1f} {max(gaps, default=0) / 1e6:9.1f} {void:5} "
        f"{took[len(took) // 2]:9.3f} {took[-1]:9.3f}   {statistics.median(shares):.2f} "
        f"({min(shares):.2f} to {max(shares):.2f})   {cost}"
    )


def main() -> None:
    """Every source under every load."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_SECONDS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else DEFAULT_ROUNDS
    host, found = describe(), sources()
    print(f"# {host['processor']}, {host['cpus']} cores, {host['system']}, Python {host['python']}")
    print(f"# {rounds} rounds of {seconds:g} s each; load average {load_1min():.1f} at the start")
    for reason in found.absent:
        print(f"# absent: {reason}")
    print("source    load      sampler  starts/s gap(ms)  void query p50 query max  of a core (%)  load slower by (%)")
    loads = [idle, matrix, loop, threads, allocate, *([gpu] if has_gpu() else [])]
    loads = [load for load in loads if load.__name__ in (sys.argv[3:] or [one.__name__ for one in loads])]
    for source in found.sources:
        for load in loads:
            told = measured(source, load, seconds, rounds)
            for way in (PROCESS, THREAD):
                print(row(way, load.__name__, told), flush=True)


if __name__ == "__main__":
    main()
