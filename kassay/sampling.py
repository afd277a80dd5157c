"""The sampler's process: asks one source for memory until its standard input ends, then tells everything it saw.

    python -m kassay.sampling PERIOD_NS resident PID        memory of that process
    python -m kassay.sampling PERIOD_NS device UUID         memory of that GPU or MIG instance, through NVML

After the first query it writes a line, so that its owner's work can begin. After the last one, which begins when the
input has ended, it writes one JSON object: every query, and what sampling cost this process from its first query on.
Nobody but kassay.telemetry starts it.
"""

import json
import os
import select
import sys
import time

from kassay import memory_sources
from kassay.telemetry import FIRST, SAMPLE, Asked, samples_of, take

STDIN, STDOUT = [0], 1
NONE: list[int] = []


class UntilInputEnds:
    """The real clock; it is stopped when standard input ends."""

    now_ns = staticmethod(time.monotonic_ns)

    def stopped_by(self, due_ns: int) -> bool:
        """Wait until then, or until the input has ended; whether it has."""
        left_s = (due_ns - time.monotonic_ns()) / 1e9
        return bool(select.select(STDIN, NONE, NONE, left_s if left_s > 0 else 0)[0])


def main() -> None:
    """Sample, then tell."""
    period_ns, source = int(sys.argv[1]), memory_sources.told(*sys.argv[2:])
    asked: list[Asked] = []
    startup_cpu_ns, began_ns = time.process_time_ns(), time.monotonic_ns()
    take(source, UntilInputEnds(), asked, lambda: write(FIRST), period_ns)
    cost = {
        "sampler_cpu_ns": time.process_time_ns() - startup_cpu_ns,
        "sampler_wall_ns": time.monotonic_ns() - began_ns,
        "startup_cpu_ns": startup_cpu_ns,
    }
    rows = [[getattr(sample, name) for name in SAMPLE] for sample in samples_of(source, asked)]
    try:
        write(json.dumps({"samples": rows, "cost": cost}).encode())
    except BrokenPipeError:  # its owner was killed: nobody is left to be told
        sys.exit(1)


def write(told: bytes) -> None:
    """All of it to standard output."""
    while told:
        told = told[os.write(STDOUT, told) :]


if __name__ == "__main__":
    main()
