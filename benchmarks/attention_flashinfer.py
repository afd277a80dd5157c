"""FlashInfer's paged decode attention as arms of the benchmark, on the very pages and tables that our kernels read.

FP16 and FP8 through its decode wrapper (fa2, tensor cores: without them a group of 4 is a third slower), FP16 through
its prefill wrapper with one query a sequence (fa3). Each table is planned once, outside the timing; FP8 has a scale a
component, and its time holds the kernel of FlashInfer's own that multiplies the output by that of the values. What is
not installed, or not built for this device, is absent with its reason.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch

from kassay.kernels.workload import SCALES, Calls

WORKSPACE_BYTES = 256 << 20
FP8 = "k8v8-f"  # the recipe whose pages hold E4M3 with one scale a component
ARMS = ("flashinfer fp16", "flashinfer fp8", "flashinfer fp16 fa3")

Call = Callable[[int], object]


def arms(calls: Calls) -> Iterator[tuple[str, Call | None, str]]:
    """Name, call by its number and why there is none."""
    if find_spec("flashinfer") is None:
        for name in ARMS:
            yield name, None, "flashinfer is not installed"
        return
    for name in ARMS:
        try:
            call = arm(calls, name)
            call(0)
            torch.cuda.synchronize()
        except Exception as error:  # its compiler and its kernels raise many kinds: said, and the others go on
            yield name, None, f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        else:
            yield name, call, ""


def arm(calls: Calls, name: str) -> Call:
    """One of ARMS; planned for every table that a graph reads."""
    layer = calls.pool.layers[FP8 if name.endswith("fp8") else "native"]
    planes = [plane.data_PSHW for plane in (layer.keys, layer.values)]
    if name.endswith("fp8"):
        planes = [plane.view(torch.float8_e4m3fn) for plane in planes]
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=calls.q.device)
    planned = {table.data_ptr(): plan(calls, table, name, workspace, planes[0].dtype) for table in calls.tables}
    wrappers = [planned[table.data_ptr()] for table in calls.tables]
    scales = {"k_scale": SCALES.keys, "v_scale": SCALES.values} if name.endswith("fp8") else {}

    def call(at: int) -> object:
        return wrappers[at].run(calls.q, (planes[0], planes[1]), out=calls.out, **scales)

    return call


def plan(calls: Calls, table_BX: torch.Tensor, name: str, workspace: torch.Tensor, stored: torch.dtype) -> Any:
    """A wrapper that knows one table."""
    import flashinfer

    heads = calls.pool.heads
    used = -(-calls.lengths // heads.page_tokens)
    indptr = torch.zeros(calls.batch + 1, dtype=torch.int32, device=table_BX.device)
    indptr[1:] = used.cumsum(0)
    indices = torch.cat([row[:count] for row, count in zip(table_BX, used.tolist(), strict=True)])
    last = (calls.lengths - 1) % heads.page_tokens + 1
    given = {"q_data_type": calls.q.dtype, "kv_data_type": stored}
    geometry = (heads.query_heads, heads.kv_heads, heads.head_dim, heads.page_tokens)
    if name.endswith("fa3"):
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa3")
        asked = torch.arange(calls.batch + 1, dtype=torch.int32, device=table_BX.device)
        wrapper.plan(asked, indptr, indices, last.int(), *geometry, causal=False, **given)
        return wrapper
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True, backend="fa2")
    wrapper.plan(indptr, indices, last.int(), *geometry, **given)
    return wrapper
