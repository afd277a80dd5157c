"""What a device's memory reaches: a copy, and a read of whole pages, in TB/s (1e12 bytes a second).

A copy is no ceiling of a kernel that only reads: on an H200 attention reads 1.1 times as fast.
"""

import torch

from kassay.kernels.device.ceiling import read_pages
from kassay.kernels.timing import captured, mark, microseconds
from kassay.kernels.workload import Calls


def copy_ceiling(device: torch.device) -> float:
    """TB/s of a device copy, bytes read and written."""
    a = torch.empty(1 << 30, dtype=torch.int32, device=device).random_()
    b = torch.empty_like(a)
    b.copy_(a)
    times = []
    for _ in range(10):  # no graph: 2.8 TB/s in one, 4.3 out of it, on an H200
        began, ended = mark(), mark()
        began.record()
        b.copy_(a)
        ended.record()
        ended.synchronize()
        times.append(float(began.elapsed_time(ended)))
    return 2 * 4 * a.numel() / min(times) / 1e9


def gather_ceiling(calls: Calls) -> float:
    """TB/s of a read of whole pages through the tables."""
    k, v = (x.view(torch.int32) for x in calls.pool.operands())
    pages, words = calls.tables[0].shape[1], k[0].numel() * calls.pool.shape.page_tokens
    out = torch.empty(calls.batch * pages, dtype=torch.int32, device=k.device)

    def rate(block: int, warps: int) -> float:
        def call(at: int) -> object:
            grid = (pages, calls.batch)
            return read_pages[grid](k, v, out, calls.tables[at], pages, WORDS=words, BLOCK=block, num_warps=warps)

        fastest = min(microseconds(captured(call, calls.calls), calls.calls, 5))
        return 2 * 4 * words * calls.batch * pages / fastest / 1e6

    return max(rate(block, warps) for block, warps in ((1024, 4), (2048, 8), (4096, 8), (8192, 16)))
