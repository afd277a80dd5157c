"""What the memory sampler costs and how long it looks away, under loads that compete with it.

    python -m benchmarks.sampler [SECONDS]

A line for each source and load: queries a second, the largest time between starts, the query-bounded gap, how long a
query takes, and the share of one core that the sampler's thread takes. `matrix` releases the interpreter, `loop` never
does, `threads` is four loops at once, `allocate` takes and returns memory. With a GPU that torch sees, `gpu` keeps it
busy and takes and returns its memory, and the device is sampled through NVML.
"""

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from kassay.host import describe
from kassay.memory_sources import sources
from kassay.telemetry import Sampler, Source, Window

DEFAULT_SECONDS = 10.0


def idle(until: float) -> None:
    """Nothing."""
    time.sleep(max(0.0, until - time.monotonic()))


def matrix(until: float) -> None:
    """Products that release the interpreter."""
    square = np.ones((512, 512))
    while time.monotonic() < until:
        square = np.clip(square @ square, 0, 1)


def loop(until: float) -> None:
    """Pure Python that holds the interpreter."""
    while time.monotonic() < until:
        sum(range(1000))


def threads(until: float) -> None:
    """Four loops that take turns."""
    made = [threading.Thread(target=loop, args=(until,)) for _ in range(4)]
    for one in made:
        one.start()
    for one in made:
        one.join()


def allocate(until: float) -> None:
    """Memory taken, written and returned."""
    while time.monotonic() < until:
        np.ones(1 << 22).sum()


def gpu(until: float) -> None:
    """A GPU kept busy, with allocations from the driver."""
    import torch

    square = torch.ones((4096, 4096), device="cuda", dtype=torch.float16)
    while time.monotonic() < until:
        for _ in range(20):
            square = (square @ square).clamp(0, 1)
        held = torch.ones(1 << 28, device="cuda")
        torch.cuda.synchronize()
        del held
        torch.cuda.empty_cache()


def has_gpu() -> bool:
    """Whether torch is there and sees one."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def row(window: Window, load: str) -> str:
    """One line of the table."""
    starts = [sample.started_ns for sample in window.samples]
    seconds = (window.closed_ns - window.opened_ns) / 1e9
    apart = max(after - before for before, after in pairwise(starts)) / 1e6
    took = sorted((sample.ended_ns - sample.started_ns) / 1e6 for sample in window.samples)
    gap = "none" if window.gap_ns is None else f"{window.gap_ns / 1e6:.1f}"
    return (
        f"{window.source:9} {load:9} {len(starts) / seconds:8.1f} {apart:10.1f} {gap:>8} {took[len(took) // 2]:10.3f} "
        f"{took[-1]:10.3f} {100 * window.cpu_share:9.3f} {'evidence' if not window.fault else window.fault}"
    )


def measured(source: Source, load: Callable[[float], None], seconds: float) -> Window:
    """One window."""
    with Sampler(source) as sampler:
        load(time.monotonic() + seconds)
    return sampler.finished()


def main() -> None:
    """Every source under every load."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_SECONDS
    host, found = describe(), sources()
    print(f"# {host['processor']}, {host['cpus']} cores, {host['system']}, Python {host['python']}; {seconds:g} s each")
    for reason in found.absent:
        print(f"# absent: {reason}")
    print("source    load        starts/s  apart(ms)  gap(ms)  query p50  query max  core(%) ")
    loads = [idle, matrix, loop, threads, allocate, *([gpu] if has_gpu() else [])]
    for source in found.sources:
        for load in loads:
            print(row(measured(source, load, seconds), load.__name__), flush=True)


if __name__ == "__main__":
    main()
