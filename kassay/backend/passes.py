"""What a model was really asked to compute: sequences and tokens of every forward pass, counted at its own door.

A pass of several tokens is a prefill, one of a single token a decode step. The last token of a prompt is kept out of
the prefill and is what the first decode step reads, so a request whose whole prompt was computed has it counted there.
"""

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


class Passes:
    """Counts the forward passes of a model while its `with` block runs."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._seen: list[tuple[int, int]] = []  # sequences, tokens of each

    def __enter__(self) -> "Passes":
        self._hook = self._model.register_forward_pre_hook(self._note, with_kwargs=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hook.remove()

    def _note(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids_BT = args[0] if args else kwargs["input_ids"]
        self._seen.append((int(ids_BT.shape[0]), int(ids_BT.shape[1])))

    def schedule(self, batch: int) -> Schedule:
        """The passes since the last call of this, as one repetition over `batch` requests."""
        seen, self._seen = self._seen, []
        decode = [rows for rows, tokens in seen if tokens == 1]
        prefilled = sum(rows * tokens for rows, tokens in seen if tokens > 1)
        return Schedule(
            prefilled_tokens=prefilled + (decode[0] if decode else 0),
            decode_steps=len(decode),
            full_steps=sum(rows == batch for rows in decode),
            preemptions=sum(max(0, before - after) for before, after in pairwise(decode)),
        )
