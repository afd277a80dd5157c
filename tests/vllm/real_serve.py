"""vLLM's own `vllm serve` with everything but a model: its HTTP server, engine core, scheduler, encoder and metrics.

`python -m tests.vllm.real_serve serve MODEL …`. The executor runs nothing: every scheduled request gets a token. Its
worker is a stand-in that holds real pools and has our methods. No GPU and no CPU engine of vLLM is needed.
"""

import sys
import time
from concurrent.futures import Future
from typing import Any

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.executor.abstract import Executor as Base
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

from kassay.serving.vllm_command import PLUG_IN

TOKEN = 120  # an `x`
LAYERS = 2
STEP_S = 0.02  # the server puts what comes faster than it can send into one piece


class NoPlatform(CpuPlatform):
    """A platform that changes nothing of what was asked for."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Name a worker, which is never made."""
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "vllm.v1.worker.worker_base.WorkerBase"


vllm.platforms._current_platform = NoPlatform()
torch.cuda.get_device_name = lambda device=None: "none"


class Executor(Base):
    """Answers as workers would."""

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        """As vLLM's own executor of one GPU."""
        return True

    def _init_executor(self) -> None:
        sys.path.append(str(PLUG_IN))  # the stand-in's pools are the plug-in's, whichever arm is served
        from tests.vllm.test_serving_worker import Worker, layer

        ours = self.vllm_config.attention_config.backend.name == "CUSTOM"
        recipe = self.vllm_config.additional_config["kassay"]["recipe"] if ours else "native"
        backend = "PagedBackend" if ours else "FlashAttentionBackend"
        layers = [layer(recipe, backend, index) for index in range(LAYERS)]
        self.worker = Worker({one.layer_name: one for one in layers})
        self.scheduled: Any = None

    def collective_rpc(
        self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        """What a worker would answer; our methods are the stand-in's."""
        spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=64, dtype=torch.float16)
        answers: dict[str, Any] = {
            "get_kv_cache_spec": {f"model.layers.{index}.self_attn.attn": spec for index in range(LAYERS)},
            "determine_available_memory": self.cache_config.kv_cache_memory_bytes,
            "compile_or_warm_up_model": CompilationTimes(language_model=0.0, encoder=0.0),
            "get_supported_tasks": ("generate",),
        }
        if isinstance(method, str) and method.startswith("kassay_"):
            return [getattr(self.worker, method)(*args, **(kwargs or {}))]
        return [answers.get(method) if isinstance(method, str) else None]

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Nothing is computed; what is asked for is remembered until it is sampled."""
        self.scheduled = scheduler_output
        made = None if scheduler_output.total_num_scheduled_tokens else sampled([])
        return done(made) if non_block else made

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """A token for every scheduled request: no prompt is cut."""
        time.sleep(STEP_S)
        made = sampled(list(self.scheduled.num_scheduled_tokens))
        return done(made) if non_block else made

    def check_health(self) -> None:
        """Always."""


def sampled(names: list[str]) -> Any:
    """A model runner's output."""
    return ModelRunnerOutput(
        req_ids=names, req_id_to_index={name: at for at, name in enumerate(names)},
        sampled_token_ids=[[TOKEN] for _ in names],
    )  # fmt: skip


def done(value: Any) -> Any:
    """A future that is over."""
    made: Future[Any] = Future()
    made.set_result(value)
    return made


if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    sys.argv += ["--distributed-executor-backend", "tests.vllm.real_serve.Executor"]
    main()
