"""An offline vLLM engine in this process: one fresh process a cell, greedy, forced lengths only where speed is timed.

    engine = Engine(asked, arm)                 starts it, and raises unless it is attested to be what was asked for
    served = engine.serve(prompts, 128, ...)    a repetition: requests with stamps and steps, and what was scheduled

The engine is stepped here, so every step's tokens have a stamp, and the scheduler's own outputs are counted as they
leave it. Drawn weights (`dummy`) are filled anew: vLLM's own are so small that every cache gives the same two tokens.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kassay import digest, paths
from kassay.backend.vllm_arguments import Asked, engine_arguments, sampling_arguments
from kassay.backend.vllm_attest import engine_record, lacks, plug_in_state
from kassay.backend.vllm_forcing import Teacher
from kassay.errors import KassayError
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.stage import Unmet

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core in this process: its scheduler and worker are asked
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_HOST_IP": "127.0.0.1",
}
DRAWN_STD, DRAWN_EMBEDDING_STD, DRAWN_SEED = 0.03, 0.06, 1  # of dummy weights; norms are 1


@dataclass
class Scheduled:
    """What the scheduler did since it was last asked."""

    prefilled_tokens: int = 0
    decode_steps: int = 0
    full_steps: int = 0
    mixed_steps: int = 0
    preemptions: int = 0


@dataclass
class Progress:
    """One request while it runs."""

    submitted_ns: int
    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    first_ns: int = 0
    ended_ns: int = 0
    finished_by: str = ""
    losses: list[float] = field(default_factory=list)  # of its tokens in nats, where they are asked for


@dataclass(frozen=True, kw_only=True)
class Served:
    """One repetition."""

    span: VllmSpan
    requests: list[VllmRequest]
    outputs: list[list[int]]  # token ids, those of scripts included
    losses: list[list[float]]  # of each of them in nats; empty where nothing is scored


class Engine:
    """A started engine. Raises KassayError where it is not, by its own attestation, what was asked for."""

    def __init__(self, asked: Asked, arm: str) -> None:
        arguments = engine_arguments(asked)
        os.environ.update({name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()})
        os.environ.update(asked.variables)
        if asked.attention == "plug-in":
            plug_in()
        import torch
        from vllm import LLM  # type: ignore[import-not-found]

        self.asked, self.arm = asked, arm
        self.llm = LLM(**arguments)
        self.engine = self.llm.llm_engine
        self.core = reach(self.engine, "engine_core.engine_core")
        self.worker = reach(self.core, "model_executor.driver_worker.worker")
        self.scheduled = Scheduled()
        self.served_together = 0  # requests of the repetition
        self._teacher: Teacher | None = None
        self._watch_scheduler()
        if asked.dummy:
            with torch.inference_mode():
                refill(self.worker.get_model())
        self.attested = self.attest()

    def attest(self) -> VllmEngine:
        """The engine as it is now. Raises KassayError in what it is not what was asked for."""
        found = engine_record(self.worker, self.arm)
        if missing := lacks(self.asked, found):
            raise KassayError(
                f"arm `{self.arm}` is invalid, for what was asked for is not what runs: " + "; ".join(missing)
            )
        return found

    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return int(self.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def serve(
        self, prompts: Sequence[Sequence[int]], tokens: int, *, repetition: int, warmup: bool, forced: bool,
        arrivals: Sequence[int] | None = None, stops: Sequence[int] = (), between: Any = None,
        scripts: Sequence[Sequence[int]] = (), scored: bool = False,
    ) -> Served:  # fmt: skip
        """Serve all prompts to their ends, up to `tokens` tokens each; `forced`: exactly so many, ends ignored.

        `arrivals`: the step before which each request is submitted, 0 by default. `between(step)` is called after each
        step, for checks; it belongs to the repetition's time. `scripts`: tokens of each request that come first and are
        decoded like its own (kassay.backend.vllm_forcing); `scored`: with the loss of every token.
        """
        import torch

        if any(scripts) and self._teacher is None:
            self._teacher = Teacher(reach(self.worker, "model_runner"))
        due = list(arrivals or [0] * len(prompts))
        left = sorted(range(len(prompts)), key=lambda index: due[index])
        found: dict[int, Progress] = {}
        self.scheduled, before = Scheduled(), self._plug_in()
        self.served_together = len(prompts)
        step_ns: list[int] = []
        torch.cuda.synchronize()
        started_ns = time.monotonic_ns()
        while left or self.engine.has_unfinished_requests():
            while left and due[left[0]] <= len(step_ns):
                index = left.pop(0)
                found[index] = Progress(submitted_ns=time.monotonic_ns(), prompt=prompts[index])
                script = scripts[index] if scripts else ()
                asked = sampling_arguments(tokens, forced=forced, stops=stops, script=script, scored=scored)
                self._submit(index, prompts[index], asked)
            self._step(found, step_ns, between)
        torch.cuda.synchronize()
        ended_ns = time.monotonic_ns()
        rows = [found[index] for index in range(len(prompts))]
        require_scripts(scripts, [row.tokens for row in rows])
        replays, fallbacks = self._since(before)
        span = VllmSpan(
            arm=self.arm, repetition=repetition, warmup=warmup, requests=len(prompts), started_ns=started_ns,
            ended_ns=ended_ns, step_ns=step_ns, replays=replays, fallbacks=fallbacks, **vars(self.scheduled),
        )  # fmt: skip
        requests = [self._request(index, row, repetition, warmup) for index, row in enumerate(rows)]
        losses = [row.losses for row in rows] if scored else []
        return Served(span=span, requests=requests, outputs=[row.tokens for row in rows], losses=losses)

    def _step(self, found: dict[int, Progress], step_ns: list[int], between: Any) -> None:
        outputs = self.engine.step()
        step_ns.append(time.monotonic_ns())
        for output in outputs:
            note(found[int(output.request_id)], output, len(step_ns) - 1, step_ns[-1])
        if between is not None:
            between(len(step_ns) - 1)

    def _submit(self, index: int, prompt: Sequence[int], asked: dict[str, Any]) -> None:
        from vllm import SamplingParams

        self.engine.add_request(str(index), {"prompt_token_ids": list(prompt)}, SamplingParams(**asked))

    def _request(self, index: int, row: Progress, repetition: int, warmup: bool) -> VllmRequest:
        return VllmRequest(
            arm=self.arm, repetition=repetition, warmup=warmup, request=index, prompt_tokens=len(row.prompt),
            prompt_sha256=digest.of_value(list(row.prompt)), submitted_ns=row.submitted_ns, first_ns=row.first_ns,
            ended_ns=row.ended_ns, output_tokens=len(row.tokens), completion_steps=row.steps,
            output_sha256=digest.of_value(row.tokens), finished_by=row.finished_by,
        )  # fmt: skip

    def _watch_scheduler(self) -> None:
        scheduler = self.core.scheduler
        schedule = scheduler.schedule

        def watched(*given: Any, **named: Any) -> Any:
            made = schedule(*given, **named)
            self._count(made)
            return made

        scheduler.schedule = watched

    def _count(self, made: Any) -> None:
        counted, found = self.scheduled, made.num_scheduled_tokens
        if not found:
            return
        fresh = {one.req_id: one for one in made.scheduled_new_reqs}
        prompts = {name: len(one.prompt_token_ids) - one.num_computed_tokens for name, one in fresh.items()}
        counted.prefilled_tokens += sum(min(found[name], prompts[name]) for name in fresh)
        decoding = [name for name, count in found.items() if name not in fresh and count == 1]
        if len(decoding) == len(found):
            counted.decode_steps += 1
            counted.full_steps += len(decoding) == self.served_together
        elif decoding:
            counted.mixed_steps += 1
        counted.prefilled_tokens += sum(n for name, n in found.items() if name not in fresh and n > 1)
        counted.preemptions += len(made.preempted_req_ids or ())

    def _plug_in(self) -> tuple[dict[int, int], int] | None:
        if self.asked.attention != "plug-in":
            return None
        counts = plug_in_state().counts
        return counts.replayed(), counts.fallbacks

    def _since(self, before: tuple[dict[int, int], int] | None) -> tuple[dict[str, int], int | None]:
        now = self._plug_in()
        if before is None or now is None:
            return {}, None
        replays = {str(size): count - before[0].get(size, 0) for size, count in sorted(now[0].items())}
        return {size: count for size, count in replays.items() if count}, now[1] - before[1]


def reach(thing: Any, path: str) -> Any:
    """A part of an engine. Raises KassayError where this vLLM has none there: what cannot be asked is not attested."""
    for name in path.split("."):
        if not hasattr(thing, name):
            raise KassayError(
                f"this vLLM's `{type(thing).__name__}` has no `{name}`: its engine cannot be asked what it really uses",
                hint="kassay.backend.vllm asks as vLLM 0.25.1 can be asked, in one process",
            )
        thing = getattr(thing, name)
    return thing


def require_vllm() -> None:
    """Raise Unmet where no engine can be started: no vLLM in this environment, or no GPU."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise Unmet("vLLM is not installed in the stack's environment")
    import torch

    if not torch.cuda.is_available():
        raise Unmet(f"torch {torch.__version__} of the stack sees no GPU")


def plug_in() -> None:
    """Register kassay_vllm in this process: the installed one, or that of this tree."""
    from importlib.util import find_spec

    if find_spec("kassay_vllm") is None:
        sys.path.append(str(paths.ROOT / "plugins" / "vllm"))
    import kassay_vllm  # type: ignore[import-not-found]

    kassay_vllm.register()


def note(row: Progress, output: Any, step: int, now_ns: int) -> None:
    """What a step gave one request."""
    tokens = list(output.outputs[0].token_ids)
    row.steps += [step] * (len(tokens) - len(row.tokens))
    row.first_ns = row.first_ns or now_ns
    row.tokens, row.ended_ns = tokens, now_ns
    if output.finished:
        row.finished_by = str(output.outputs[0].finish_reason)
        found = output.outputs[0].logprobs or ()
        row.losses = [-at[token].logprob for token, at in zip(tokens, found, strict=False)]


def require_scripts(scripts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> None:
    """Raise KassayError unless every output begins with its script: else something else was decoded."""
    for index, script in enumerate(scripts):
        if list(outputs[index][: len(script)]) != list(script):
            raise KassayError(f"request {index} did not decode the {len(script)} tokens of its script: this is a bug")


def refill(model: Any) -> int:
    """Draw all weights anew, the same in every process; the number of parameters."""
    import torch

    count = 0
    generator: Any = None
    for name, parameter in sorted(model.named_parameters()):
        count += parameter.numel()
        if "norm" in name:
            parameter.data.fill_(1.0)
            continue
        generator = generator or torch.Generator(device=parameter.device).manual_seed(DRAWN_SEED)
        std = DRAWN_EMBEDDING_STD if "embed" in name else DRAWN_STD
        for part in parameter.data.view(-1).split(1 << 26):
            part.normal_(0.0, std, generator=generator)
    return count
