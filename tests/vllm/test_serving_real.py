"""The served engine's side inside vLLM's own classes, where vLLM 0.25.1 is installed; no model runs.

Its parser takes our words, its worker our methods, its route hands them on, its encoder carries what they tell, and its
metrics have the counters that are read. Then its whole server serves, with no model behind it (tests.vllm.real_serve).
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed here")

from kassay import paths
from kassay.backend.vllm_serve_worker import ATTEST, EXTENSION, Told
from kassay.kinds.serving import ServedLoad, ServerRun
from kassay.kinds.vllm import VllmEngine
from kassay.kinds.vllm_serving import VllmServer
from kassay.kv.tasks import vocabulary
from kassay.serving import vllm_command, vllm_told
from tests.vllm.test_serving import Served, asked, recounted, serve

ROBUST = paths.ROOT / "data" / "models" / "robust"

__all__ = ["serve"]  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """vLLM asks for its platform's device early."""
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    monkeypatch.setattr(vllm.platforms, "_current_platform", CpuPlatform())
    yield


@pytest.mark.parametrize("arm", ["native", "k16v8-d"])
def test_its_parser_takes_our_words(arm: str, tmp_path: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    words = vllm_command.serve_words(asked(arm), python="py", name="m", port=8123, tokenizer=tmp_path)
    given = make_arg_parser(FlexibleArgumentParser()).parse_args(words[4:])
    validate_parsed_serve_args(given)
    made = AsyncEngineArgs.from_cli_args(given)
    assert (given.model_tag, given.host, given.port, made.served_model_name) == ("/m", "127.0.0.1", 8123, ["m"])
    assert made.attention_config.backend.name == {"native": "FLASH_ATTN", "k16v8-d": "CUSTOM"}[arm]
    assert (made.compilation_config.mode.name, made.compilation_config.cudagraph_mode.name) == (
        "NONE", "FULL_DECODE_ONLY"
    )  # fmt: skip
    assert made.compilation_config.cudagraph_capture_sizes == [1, 8]
    assert (made.enable_prefix_caching, made.enable_chunked_prefill, made.kv_cache_memory_bytes) == (
        False, False, 64 << 20
    )  # fmt: skip
    assert made.worker_extension_cls == EXTENSION and made.tokenizer == str(tmp_path)
    assert ("kassay" in made.additional_config) == (arm == "k16v8-d")


def test_its_worker_takes_our_methods() -> None:
    from vllm.utils.import_utils import resolve_obj_by_qualname
    from vllm.v1.worker.gpu_worker import Worker

    assert resolve_obj_by_qualname(EXTENSION) is Told
    own = [name for name in dir(Told) if not name.startswith("__")]
    assert own and not any(hasattr(Worker, name) for name in own), "vLLM refuses a method that its worker has"
    made: Any = type("Worker", (Worker,), {})
    made.__bases__ = (*made.__bases__, Told)
    assert callable(made.kassay_attest)


def test_its_route_hands_a_method_on_and_its_encoder_carries_what_it_tells() -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from vllm.entrypoints.serve.dev.rpc.api_router import attach_router
    from vllm.v1.engine import UtilityResult
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    told = {"engine": {"arm": "a", "key_scales": None, "value_scales": [0.5], "cuts": {"8": {"tokens": 32}}},
            "counts": {"routes": {"decode": 3}, "fallbacks": 0}, "code": {"kassay/x.py": "0"}}  # fmt: skip
    carried = MsgpackDecoder(UtilityResult).decode(MsgpackEncoder().encode(UtilityResult([told]))).result
    assert carried == [told]
    heard = []

    async def collective_rpc(**named: Any) -> Any:
        await asyncio.sleep(0)
        heard.append(named)
        return carried

    app = FastAPI()
    attach_router(app)
    app.state.engine_client = SimpleNamespace(collective_rpc=collective_rpc)
    answer = TestClient(app).post("/collective_rpc", content=json.dumps({"method": ATTEST, "kwargs": {"arm": "a"}}))
    assert answer.json() == {"results": [told]}
    assert heard == [{"method": ATTEST, "timeout": None, "args": (), "kwargs": {"arm": "a"}}]


def test_its_metrics_have_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    from prometheus_client import REGISTRY, generate_latest
    from vllm import config as c
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    model = c.ModelConfig(model=str(ROBUST), dtype="float16", max_model_len=512, skip_tokenizer_init=True,
                          served_model_name="m")  # fmt: skip
    scheduler = c.SchedulerConfig(max_num_batched_tokens=512, max_num_seqs=8, max_model_len=512,
                                  is_encoder_decoder=False, enable_chunked_prefill=False)  # fmt: skip
    PrometheusStatLogger(c.VllmConfig(model_config=model, scheduler_config=scheduler,
                                      device_config=c.DeviceConfig("cpu")))  # fmt: skip
    text = generate_latest(REGISTRY).decode()
    monkeypatch.setattr(vllm_told, "exchanged", lambda port, verb, path: (200, text))
    found = vllm_told.counters(0)
    assert {name: found[name] for name in vllm_told.COUNTED} == dict.fromkeys(vllm_told.COUNTED, 0.0)
    assert {"length", "stop", "abort"} <= set(found[vllm_told.FINISHED])


def test_its_detokenizer_gives_a_text_for_every_token(tmp_path: Path) -> None:
    from vllm import SamplingParams
    from vllm.tokenizers import get_tokenizer
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

    tokenizer = get_tokenizer(str(vllm_command.written_tokenizer(tmp_path / "made", 151936)))
    assert len(tokenizer) == 151936
    request = EngineCoreRequest(
        request_id="1", prompt_token_ids=tokenizer.encode("hello"), mm_features=None, pooling_params=None,
        sampling_params=SamplingParams(temperature=0, max_tokens=8, ignore_eos=True), arrival_time=0.0,
        lora_request=None, cache_salt=None, data_parallel_rank=None,
    )  # fmt: skip
    made = FastIncrementalDetokenizer(tokenizer, request)
    for token in (100, vocabulary.SIZE, 70000, 151643, 151935, 50):
        made.update([token], False)
        assert len(made.get_next_output_text(False, True)) == 1, f"token {token} is no piece of a stream"


def test_its_whole_server_is_attested_loaded_and_counted(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two servers of vLLM, each with its engine core in a process of its own, under both kinds of load."""
    monkeypatch.setattr(vllm_command, "MODULE", "tests.vllm.real_serve")
    closed = {
        "name": "closed",
        "concurrency": 4,
        "context_tokens": 96,
        "output_tokens": 8,
        "requests": 12,
        "warmups": 2,
    }
    opened = {**closed, "name": "open", "per_minute": 1200, "arrivals": "poisson"}
    del opened["concurrency"]
    stage = serve(loads=[closed, opened], ready_timeout_s=180)
    loads, servers = stage.of(ServedLoad), stage.of(VllmServer)
    assert [(one.completed, one.failed, one.empty, one.faults) for one in loads] == [(12, 0, 0, [])] * 4
    assert all(one.tpot_s["n"] > 6 for one in loads), "outputs came in pieces"
    assert [one.backend for one in stage.of(VllmEngine)] == ["FlashAttentionBackend", "PagedBackend"]
    for one in servers:
        assert (one.prompt_tokens, one.generated_tokens, one.cached_tokens) == (28 * 96, 28 * 8, 0)
        assert (one.finished, one.preemptions, one.faults) == ({"length": 28}, 0, []) and one.steps >= 2 * 8
    assert [(one.died, one.stopped_by) for one in stage.of(ServerRun)] == [(False, "TERM")] * 2
    assert recounted(stage) == []
