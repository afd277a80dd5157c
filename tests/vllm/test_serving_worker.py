"""What a served engine's worker tells, on stand-ins with real pools: of JSON's own types, and judged like any other."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from kassay_vllm.state import STATE

from kassay import digest, paths
from kassay.backend.vllm_attest import lacks
from kassay.backend.vllm_serve_worker import Told
from kassay.kinds.vllm import VllmEngine
from tests.vllm.pools import cache_of
from tests.vllm.test_serving import asked

PAGES = 10


class Worker(Told):
    """vLLM's worker with our methods among its bases."""

    def __init__(self, layers: dict[str, Any]) -> None:
        named = SimpleNamespace
        self.model_runner = named(cudagraph_manager=named(graphs={Key(8): 0, Key(1): 0}))
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.vllm_config = named(
            compilation_config=named(static_forward_context=layers, cudagraph_mode=named(name="FULL_DECODE_ONLY"),
                                     mode=named(name="NONE")),
            cache_config=named(num_gpu_blocks=PAGES, block_size=16, enable_prefix_caching=False),
            scheduler_config=named(enable_chunked_prefill=False, async_scheduling=True),
            load_config=named(load_format="auto"), use_v2_model_runner=True,
        )  # fmt: skip

    def get_model(self) -> torch.nn.Module:
        """The model."""
        return self.model


class Key(SimpleNamespace):
    """vLLM's description of a batch."""

    def __init__(self, num_reqs: int) -> None:
        super().__init__(num_reqs=num_reqs)

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that has a version, and a device that has a name."""
    made: Any = ModuleType("vllm")
    made.__version__ = "0.25.1"
    monkeypatch.setitem(sys.modules, "vllm", made)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "none")


def layer(recipe: str, backend: str, index: int) -> Any:
    """A live layer over a pool of its own."""
    cache = cache_of(recipe, PAGES)
    impl = SimpleNamespace(cache=cache, flash_attention=3)
    if backend != "PagedBackend":
        impl = SimpleNamespace(vllm_flash_attn_version=3)
    pool = cache.pages if backend == "PagedBackend" else torch.zeros((2, PAGES, 16, 2, 64), dtype=torch.float16)
    return SimpleNamespace(attn_backend=type(backend, (), {}), impl=impl, kv_cache=pool, kv_cache_dtype="auto",
                           layer_name=f"model.layers.{index}.self_attn.attn")  # fmt: skip


def told_of(recipe: str, backend: str) -> dict[str, Any]:
    """What the worker's method gives. vLLM's encoder takes no subclass, such as torch's version."""
    layers = [layer(recipe, backend, index) for index in range(2)]
    told = Worker({one.layer_name: one for one in layers}).kassay_attest("arm")
    assert strange(told) == []
    return told


def strange(value: Any) -> list[type]:
    """Types that are not JSON's own."""
    if type(value) is dict:
        return [kind for pair in value.items() for part in pair for kind in strange(part)]
    if type(value) is list:
        return [kind for part in value for kind in strange(part)]
    return [] if type(value) in (str, int, float, bool, type(None)) else [type(value)]


def test_the_plug_in_s_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = type(STATE.counts)()
    counts.built.update({("decode", 8): 5, ("decode", 1): 2, ("mixed", 3): 1})
    counts.called.update({("decode", 8): 1, ("mixed", 3): 1})
    monkeypatch.setattr(STATE, "counts", counts)
    monkeypatch.setattr(STATE, "plans", None)
    told = told_of("k16v8-d", "PagedBackend")
    found = VllmEngine(**told["engine"])
    assert lacks(asked(), found) == []
    assert (found.key_format, found.value_format, found.scale_policy) == ("fp16", "e4m3fn", "dynamic")
    assert found.token_layer_bytes == 2 * (2 * 64 + 64 + 4) and found.asynchronous and found.compilation == "NONE"
    assert told["counts"] == {
        "routes": {"decode": 7, "mixed": 1}, "replays": {"1": 2, "8": 4}, "fallbacks": 0
    }  # fmt: skip
    own = "kassay/backend/vllm_serve_worker.py"
    assert told["code"][own] == digest.of_file(paths.ROOT / own)
    other = VllmEngine(**told_of("native", "PagedBackend")["engine"])
    assert any("values are `fp16`" in one for one in lacks(asked(), other)), "a requested recipe is no evidence"


def test_a_native_worker() -> None:
    told = told_of("native", "FlashAttentionBackend")
    assert told["counts"] is None
    assert lacks(asked("native"), VllmEngine(**told["engine"])) == []


def test_weights_are_drawn_anew_and_alike() -> None:
    one, other = Worker({}), Worker({})
    before = one.model[0].weight.clone()
    assert one.kassay_refill() == {"parameters": 6} == other.kassay_refill()
    assert not torch.equal(one.model[0].weight, before) and torch.equal(one.model[0].weight, other.model[0].weight)
