"""Two living engines that take turns on one GPU: a ratio of their decode steps is one of neighbours in time.

Each serves the same loads. The GPU is handed over after every TURN_STEPS decode steps, idle. For trials, under
kassay.backend.vllm_forks.Forks.pair.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from kassay.backend import vllm_prompts
from kassay.backend.vllm import Engine, Served
from kassay.backend.vllm_forks import LOAD, READY, TURN, Voice
from kassay.record import Record

TURN_STEPS = 16  # decode steps
WARM_PROMPT_TOKENS, WARM_TOKENS = 300, 4
WARM_SEED, SEED = 2, 3

Keep = Callable[..., None]


def serve(engine: Engine, loads: Sequence[tuple[int, int]], context_tokens: int, voice: Voice, keep: Keep) -> None:
    """Serve each load of (batch, output tokens) when told to; `keep` gets its records and what each turn took."""
    for batch in engine.asked.graphs:
        rows = vllm_prompts.drawn(batch, WARM_PROMPT_TOKENS, WARM_SEED)
        engine.serve(rows, WARM_TOKENS, repetition=-1, warmup=True, forced=True)
    voice.say(READY)
    for repetition, (batch, tokens) in enumerate(loads):
        turns = Turns(engine, voice)
        voice.wait()
        rows = vllm_prompts.drawn(batch, context_tokens, SEED)
        served = engine.serve(rows, tokens, repetition=repetition, warmup=False, forced=True, between=turns.between)
        keep(*kept(served), load=[batch, tokens], turns=turns.took_ms(), **shown(served))
        voice.say(LOAD)


class Turns:
    """When this engine had the GPU for itself."""

    def __init__(self, engine: Engine, voice: Voice) -> None:
        self._engine, self._voice = engine, voice
        self._marks: list[tuple[int, int, int]] = []  # last step, begin and end of a turn
        self._first_step: int | None = None
        self._began_ns: int | None = None

    def between(self, step: int) -> None:
        """After each step: hand the GPU over when a turn is done."""
        if self._engine.scheduled.decode_steps < 2:
            return
        self._first_step = step if self._first_step is None else self._first_step
        if (step - self._first_step) % TURN_STEPS:
            return
        import torch

        torch.cuda.synchronize()
        if self._began_ns is not None:
            self._marks.append((step, self._began_ns, time.monotonic_ns()))
        self._voice.say(TURN)
        self._voice.wait()
        self._began_ns = time.monotonic_ns()

    def took_ms(self) -> list[list[float]]:
        """Last step and milliseconds a step of each whole turn."""
        return [[step, (end - began) / 1e6 / TURN_STEPS] for step, began, end in self._marks]


def kept(served: Served) -> list[Record]:
    """The records of a load: its span, and the stamps of every request."""
    return [served.span, *served.requests]


def shown(served: Served) -> dict[str, Any]:
    """What a look at a pair needs beside its turns."""
    return {
        "tokens": served.outputs[:2],
        "first_end_step": min(one.completion_steps[-1] for one in served.requests),
        "prefill_s": (max(one.first_ns for one in served.requests) - served.span.started_ns) / 1e9,
    }
