"""Speed, memory, coverage, size and power of kassay.stats: `python -m benchmarks.bounds [replicas]`.

Times are the least of several repetitions and are compared as ratios within this run; the exit code is 1 where a bar is
missed. Memory is the peak that tracemalloc sees, numpy's arrays included. Everything random is seeded.
"""

import json
import sys
import time
import timeit
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.stats

from benchmarks import coverage
from kassay.published.figures import answered, load
from kassay.stats.bootstrap import mean_difference_bounds
from kassay.stats.paired import tango_bounds

DOCUMENTS, DRAWS = 64, 100_000
REPEATS = 7
FACTS = Path(__file__).resolve().parent.parent / "data" / "published" / "figures.jsonl"
LARGEST_RATIO, LARGEST_S, LARGEST_MIB = 1.1, 0.15, 20.0  # bootstrap: to scipy's time, seconds, peak memory
LARGEST_TANGO_US, LARGEST_PUBLISHED_S = 100.0, 5.0


def pair() -> tuple[np.ndarray, np.ndarray]:
    """Losses of 64 documents under control and candidate: those of tests/stats/vectors.json."""
    place = np.arange(DOCUMENTS)
    control = 2 + ((29 * place) % 64) / 64
    return control, control + (((37 * place) % 64) - 31.5) / 3150 + 0.001


def ours() -> float:
    """The upper bound of the mean difference."""
    rng = np.random.default_rng(coverage.SEED)
    return mean_difference_bounds(*pair(), alpha=0.05, draws=DRAWS, rng=rng).upper


def scipys(**batch: int) -> float:
    """The same by scipy.stats.bootstrap from the same stream."""
    control, candidate = pair()
    made = scipy.stats.bootstrap(
        (candidate - control,),
        np.mean,
        n_resamples=DRAWS,
        method="percentile",
        confidence_level=0.9,
        rng=np.random.default_rng(coverage.SEED),
        **batch,
    )
    return float(made.confidence_interval.high)


def interleaved(calls: Iterable[Callable[[], object]]) -> list[float]:
    """The least time of each call, in seconds, taken in turns so that a busy moment strikes all of them."""
    rounds = [[timeit.timeit(call, number=1) for call in calls] for _ in range(REPEATS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def peak_mib(call: Callable[[], object]) -> float:
    """Peak of traced memory during a call."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def tango_us() -> float:
    """The slowest of a few tables, both ends, in microseconds."""
    tables = ((3, 7, 1319), (19, 17, 1319), (0, 1, 44), (94, 129, 1319), (1, 0, 1319))
    times = []
    for gains, losses, n in tables:

        def call(gains: int = gains, losses: int = losses, n: int = n) -> object:
            return tango_bounds(gains=gains, losses=losses, n=n, alpha=0.00625, sidedness="one-sided")

        times.append(min(timeit.repeat(call, number=200, repeat=REPEATS)) / 200)
    return 1e6 * max(times)


def published_s() -> float:
    """Seconds to answer all shipped figures."""
    figures = load(FACTS)
    started = time.perf_counter()
    for figure in figures:
        answered(figure)
    return time.perf_counter() - started


def speed() -> dict[str, float]:
    """All measured numbers by name."""
    if abs(ours() / scipys() - 1) > 1e-9:
        raise SystemExit("our bound and scipy's differ: there is nothing to compare")
    own, whole, batched = interleaved((ours, scipys, lambda: scipys(batch=4096)))
    return {
        "bootstrap_s": own,
        "bootstrap_over_scipy": own / whole,
        "bootstrap_over_scipy_batched": own / batched,
        "bootstrap_peak_mib": peak_mib(ours),
        "scipy_peak_mib": peak_mib(scipys),
        "tango_us": tango_us(),
        "published_s": published_s(),
    }


def missed(found: dict[str, float]) -> list[str]:
    """The bars that the numbers miss, in words; a NaN misses."""
    bars = {
        "bootstrap_s": LARGEST_S,
        "bootstrap_over_scipy": LARGEST_RATIO,
        "bootstrap_over_scipy_batched": LARGEST_RATIO,
        "bootstrap_peak_mib": LARGEST_MIB,
        "tango_us": LARGEST_TANGO_US,
        "published_s": LARGEST_PUBLISHED_S,
    }
    return [f"{name} is {found[name]:.4g}, allowed is {bar:g}" for name, bar in bars.items() if not found[name] <= bar]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A Markdown table."""
    names = list(header)
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def main(replicas: int) -> int:
    """Print everything; 1 where a bar is missed."""
    found = speed()
    print(json.dumps(found))
    lost = missed(found)
    print("missed: " + "; ".join(lost) if lost else "no bar is missed", end="\n\n")
    header = ["bound", "case", "alpha", "missed", "+-", "replicas"]
    print(*table(header, (row.cells() for row in coverage.all_rows(replicas, draws=2000))), sep="\n")
    gains = ["alpha", *(f"gain {gain:g}" for gain in (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)), "largest"]
    print(*table(gains, coverage.size_rows()), sep="\n")
    levels = [f"{gate} {alpha:.5f}" for alpha in coverage.LEVELS for gate in ("gross 2 %", "net 1 pp", "retrieval 5 %")]
    print(*table(["rate", *levels], coverage.power_rows()), sep="\n")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
