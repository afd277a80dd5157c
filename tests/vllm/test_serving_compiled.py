"""Graphs and compiled code are told by live objects of either runner, not by the mode that was configured."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kassay.backend.vllm_compiled import compiled_modules, full_graphs, piecewise_graphs


def entry(held: bool = True) -> SimpleNamespace:
    """A wrapper's entry, which exists before its graph does."""
    return SimpleNamespace(cudagraph=object() if held else None)


class Key(SimpleNamespace):
    """vLLM's description of a batch."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def test_graphs_of_both_runners() -> None:
    v2 = SimpleNamespace(graphs={Key(num_reqs=8): 0, Key(num_reqs=1): 0, Key(num_reqs=None): 0})
    assert full_graphs(SimpleNamespace(cudagraph_manager=v2)) == [1, 8]
    entries = {
        Key(num_tokens=8, uniform=True): entry(), Key(num_tokens=4, uniform=True): entry(held=False),
        Key(num_tokens=64, uniform=False): entry(),
    }  # fmt: skip
    v1 = SimpleNamespace(model=SimpleNamespace(concrete_cudagraph_entries=entries))
    assert full_graphs(v1) == [8], "one that was not captured is none, nor one of a mixed batch"
    assert full_graphs(SimpleNamespace(model=object())) == [], "a model without a wrapper has none"


def test_pieces_are_looked_for_where_something_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert piecewise_graphs(0) == []
    made: Any = ModuleType("vllm.compilation.cuda_graph")

    def wrapper(mode: str, *sizes: int) -> SimpleNamespace:
        entries = {Key(num_tokens=size, uniform=False): entry() for size in sizes}
        return SimpleNamespace(runtime_mode=SimpleNamespace(name=mode), concrete_cudagraph_entries=entries)

    instances = [wrapper("PIECEWISE", 16, 1), wrapper("PIECEWISE", 16), wrapper("FULL", 8)]
    made.CUDAGraphWrapper = SimpleNamespace(_all_instances=instances)
    for name in ("vllm", "vllm.compilation"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vllm.compilation.cuda_graph", made)
    assert piecewise_graphs(1) == [1, 16]


def test_modules_that_run_compiled_code() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 2)))
    assert compiled_modules(model) == 0
    model[0].compiled = False  # what vLLM's decorator sets where nothing has been compiled yet
    assert compiled_modules(model) == 0
    model[0].compiled = True
    model[1].aot_compiled_fn = lambda: None
    model[1][0]._compiled_call_impl = lambda: None
    assert compiled_modules(model) == 3
