"""What of a vLLM worker runs compiled code or captured graphs, told by its live objects (vLLM 0.25.1, both runners).

    full graphs        a decode step as one graph: model runner v2 holds them by batch, v1 in the wrapper of its model
    piecewise graphs   pieces between attention layers, in wrappers of their own, by number of tokens
    compiled modules   modules of the model whose forward is torch.compile's code

A configured mode is no evidence: a mode that compiles may have compiled nothing yet, and a graph that was asked for may
not have been captured.
"""

from typing import Any


def full_graphs(runner: Any) -> list[int]:
    """Batches of decodes with a captured graph of the whole step."""
    manager = getattr(runner, "cudagraph_manager", None)
    if manager is not None:
        return sorted({one.num_reqs for one in manager.graphs if one.num_reqs is not None})
    return captured(getattr(runner, "model", None), whole=True)


def piecewise_graphs(compiled: int) -> list[int]:
    """Numbers of tokens for which pieces of this process's model were captured: vLLM cuts where it compiles."""
    if not compiled:
        return []
    from vllm.compilation.cuda_graph import CUDAGraphWrapper  # type: ignore[import-not-found]

    pieces = [one for one in CUDAGraphWrapper._all_instances if one.runtime_mode.name == "PIECEWISE"]
    return sorted({size for one in pieces for size in captured(one, whole=False)})


def captured(wrapper: Any, *, whole: bool) -> list[int]:
    """Token counts of the graphs that a wrapper of v1 holds; `whole`: of those in which each request has one token."""
    entries = getattr(wrapper, "concrete_cudagraph_entries", {})
    return sorted(
        {key.num_tokens for key, entry in entries.items() if entry.cudagraph is not None and (key.uniform or not whole)}
    )


def compiled_modules(model: Any) -> int:
    """Modules of a model that run compiled code: marked by vLLM's decorator once that is there, or by torch itself."""
    return sum(
        getattr(one, "compiled", False) is True
        or getattr(one, "aot_compiled_fn", None) is not None
        or getattr(one, "_compiled_call_impl", None) is not None
        for one in model.modules()
    )
