"""Where the time of a decode step goes: the kernels of one replayed graph, by what they do.

    attention   our kernels and their merge         product   matrix products of cuBLAS
    rows        norms, rotation and writing, gate   other     embedding, the largest logit, counters
    idle        what the step takes longer than its kernels together

Times are those of CUPTI through torch's profiler, which itself slows a replay by a little: the shares are of the
profiled replays, and the step's own time is measured without it. A kernel that is launched before the one ahead of it
has ended waits inside its own time (programmatic dependent launch): what two kernels share is the earlier one's, so
that all parts together are the step.
"""

from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

PARTS = (
    ("attention", ("attention_split", "attention_merge", "attention_prefix")),
    ("rows", ("add_norm", "turn_and_store", "gate")),
    ("product", ("gemm", "nvjet", "cutlass", "cublas", "splitk", "matmul")),
)


def part_of(kernel: str) -> str:
    """Which part a kernel belongs to, by its name."""
    lowered = kernel.lower()
    return next((part for part, words in PARTS if any(word in lowered for word in words)), "other")


def parts_us(replay: Callable[[], object], steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """Microseconds of each part in a step, and of each kernel by name. Empty where the profiler sees no kernel."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            replay()
        torch.cuda.synchronize()
    spans = [
        (event.time_range.start, event.time_range.end, event.name)
        for event in seen.events()
        if str(event.device_type).endswith("CUDA") and event.time_range.elapsed_us() > 0
    ]
    if not spans:
        return {}, {}
    own, idle = alone_us(spans)
    kernels = {name: took / steps for name, took in own.items()}
    parts: dict[str, float] = defaultdict(float)
    for name, took in kernels.items():
        parts[part_of(name)] += took
    return {**parts, "idle": idle / steps}, kernels


def alone_us(spans: list[tuple[float, float, str]]) -> tuple[dict[str, float], float]:
    """Of spans (start, end, kernel): each kernel's time that none of an earlier start had, and the time of none."""
    own: dict[str, float] = defaultdict(float)
    idle, until = 0.0, min(start for start, _, _ in spans)
    for start, end, name in sorted(spans):
        idle += max(0.0, start - until)
        own[name] += max(0.0, end - max(start, until))
        until = max(until, end)
    return dict(own), idle
