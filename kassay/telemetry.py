"""Samplers of what a process holds; an observed peak is a sample, never a continuous maximum."""

import threading
import time
from types import TracebackType

import psutil

PERIOD_S = 0.02


class ResidentSampler:
    """Samples this process's resident memory every 20 ms from a thread of its own.

    Each sample is (start of the query in monotonic nanoseconds, resident bytes).
    """

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        process = psutil.Process()
        stopping = False
        while True:  # one sample at the start and one after the stop, however short the work is
            self.samples.append((time.monotonic_ns(), process.memory_info().rss))
            if stopping:
                return
            stopping = self._stop.wait(PERIOD_S)

    def __enter__(self) -> "ResidentSampler":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
