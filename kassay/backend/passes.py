"""What a model was really asked to compute: sequences and tokens of every forward pass, counted at its own door.

A pass into an empty cache is a prefill, one behind cached tokens a decode step: of one token, or of several where a
draft is verified (kassay.backend.speculation). The last token of a prompt is kept out of the prefill and is what the
first decode step reads, so a request whose whole prompt was computed has it counted there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The passes of one repetition over a batch."""

    prefilled_tokens: int  # prompt tokens that were computed, over all requests
    decode_steps: int
    full_steps: int  # decode steps that served every request of the batch
    preemptions: int  # requests that were missing from a decode step and had been in the one before it


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One forward pass."""

    requests: int
    tokens: int  # of each request
    cached: int  # of the longest request before it


class Passes:
    """Counts the forward passes of a model while its `with` block runs."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._seen: list[Pass] = []

    def __enter__(self) -> "Passes":
        self._hook = self._model.register_forward_pre_hook(self._note, with_kwargs=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hook.remove()

    def _note(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids_BT = args[0] if args else kwargs["input_ids"]
        cached = int(kwargs["past_key_values"].get_seq_length())
        self._seen.append(Pass(requests=int(ids_BT.shape[0]), tokens=int(ids_BT.shape[1]), cached=cached))

    def taken(self) -> list[Pass]:
        """The passes since the last call of this."""
        seen, self._seen = self._seen, []
        return seen


def decode_passes(taken: Sequence[Pass]) -> list[Pass]:
    """Those that decode."""
    return [one for one in taken if one.cached]


def schedule_of(taken: Sequence[Pass], batch: int, due: Sequence[int] | None = None) -> Schedule:
    """Passes as one repetition over `batch` requests.

    `due`: how many requests each decode step had to serve, where requests end at different steps; a request that is
    missing there was preempted. Left out: a step serves those of the step before it.
    """
    decode = [one.requests for one in decode_passes(taken)]
    prefilled = sum(one.requests * one.tokens for one in taken if not one.cached)
    owed = list(zip(due, decode, strict=False)) if due is not None else list(pairwise(decode))
    return Schedule(
        prefilled_tokens=prefilled + (decode[0] if decode else 0),
        decode_steps=len(decode),
        full_steps=sum(requests == batch for requests in decode),
        preemptions=sum(max(0, before - after) for before, after in owed),
    )
