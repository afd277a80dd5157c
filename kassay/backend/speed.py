"""What a stage of speed serves its requests with: the reference or the fused backend, as its params say.

    backend: {engine: fused, weights: drawn | shipped | given, geometry, layers, compute, gpus}     else the reference
                                                                         (kassay.backend.checkpoint)
    speculation: {arms, draft_tokens, ...}    on the reference: some arms draft (kassay.backend.speculative_speed)

Axes: B requests, T tokens. `complete` serves a batch from prompt to last token, `Points` decodes at points of a sweep.
Both leave the device idle when they return, so that a clock around them is right. `schedule` says what was really
computed since it was last asked. Drawn weights have no prompts that mean anything: theirs are drawn token ids, and the
context of a point of a sweep is drawn operands, as a record says.
"""

import time
from typing import TYPE_CHECKING, Any, Protocol

import torch

from kassay.backend.passes import Passes, Schedule, schedule_of
from kassay.kinds.timing import TimingCell
from kassay.kv.recipe import recipe_named
from kassay.record import Record
from kassay.stage import Stage

if TYPE_CHECKING:
    from kassay.kv.cache import RecipeCache

FUSED = "fused"
VLLM = "vllm"  # of memory alone: vLLM has stages of speed of its own


class Points(Protocol):
    """One context of a sweep, several batches of it."""

    def fill(self, batch: int) -> tuple[str, int]:
        """Make this batch ready under every recipe: digest of its prompts, and their longest shared prefix."""

    def decode_ns(self, recipe: str, steps: int) -> int:
        """Nanoseconds of so many decode steps from the filled context."""

    def parts(self) -> list[Record]:
        """Where the time of a step of the filled batch goes, recipe by recipe; none where it is not known."""

    def records(self) -> list[Record]:
        """What was measured on, once all batches are."""


class Served(Protocol):
    """A loaded model that serves requests."""

    device: torch.device

    def prompts(self, batch: int, context_tokens: int, seed: int) -> torch.Tensor:
        """ids_BT of different prompts."""

    def prepare(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> None:
        """Do once what a first request would wait for, with a part of the batch that is no repetition."""

    def complete(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> torch.Tensor:
        """ids_BT of the forced outputs, on the host."""

    def schedule(self, batch: int) -> Schedule:
        """The passes since the last call of this, as one repetition over `batch` requests."""

    def evidence(self, cell: TimingCell) -> list[Record]:
        """What else a cell's evidence is, once its repetitions are over; none where arms decode plainly."""

    def points(self, recipes: list[str], context_tokens: int, largest_batch: int, steps: int, seed: int) -> Points:
        """A context of a sweep."""


def of_stage(stage: Stage) -> Served:
    """The backend that the stage's params ask for, loaded."""
    if (stage.params.get("backend") or {}).get("engine") == FUSED:
        from kassay.backend.fused_speed import FusedServed

        return FusedServed(stage)
    if stage.params.get("speculation"):
        from kassay.backend.speculative_speed import SpeculativeServed

        return SpeculativeServed(stage)
    return ReferenceServed(stage)


class ReferenceServed:
    """transformers' own model; no claim of speed."""

    def __init__(self, stage: Stage) -> None:
        from kassay.backend import checkpoint, inputs

        loaded = checkpoint.of_stage(stage)
        self.model, self.device, self.sixteen = loaded.model, loaded.device, stage.params["sixteen"]
        self.scales = inputs.scales_of(stage)
        self.passes = Passes(self.model).__enter__()

    def prompts(self, batch: int, context_tokens: int, seed: int) -> torch.Tensor:
        """Documents of the development split."""
        from kassay.backend import workload

        return workload.speed_prompts(batch, context_tokens, seed).to(self.device)

    def prepare(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> None:
        """Nothing: a warm-up is a whole repetition."""

    def complete(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> torch.Tensor:
        """Prefill, fill, decode."""
        from kassay.backend import reference

        cache = self.cached(recipe, context_BT, output_tokens)
        output_BT: torch.Tensor = reference.forced(self.model, cache, context_BT[:, -1:], output_tokens)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return output_BT

    def cached(self, recipe: str, context_BT: torch.Tensor, output_tokens: int) -> "RecipeCache":
        """A recipe's cache of all of a batch's prompts but their last tokens, with room for the output."""
        from kassay.backend import reference

        context = reference.prefill(self.model, context_BT[:, :-1], self.sixteen)
        made = recipe_named(recipe, self.sixteen)
        return reference.filled(self.model, made, self.scales, context, output_tokens)

    def schedule(self, batch: int) -> Schedule:
        """Counted at the model's own door."""
        return schedule_of(self.passes.taken(), batch)

    def evidence(self, cell: TimingCell) -> list[Record]:
        """None: what a plain cell says of itself is all of it."""
        return []

    def points(self, recipes: list[str], context_tokens: int, largest_batch: int, steps: int, seed: int) -> Points:
        """Contexts of real prompts."""
        return ReferencePoints(self, context_tokens, steps, seed)


class ReferencePoints:
    """A prefilled context, from which each recipe's cache is filled anew."""

    def __init__(self, served: ReferenceServed, context_tokens: int, steps: int, seed: int) -> None:
        self.served, self.context_tokens, self.steps, self.seed = served, context_tokens, steps, seed
        self.context_BT = torch.empty(0)
        self.context: Any = None

    def fill(self, batch: int) -> tuple[str, int]:
        """Prefill this batch."""
        from kassay.backend import prompts, reference, workload

        self.context_BT = self.served.prompts(batch, self.context_tokens, self.seed)
        shared_prefix_tokens = prompts.check_prompts(self.context_BT.tolist(), self.context_tokens)
        self.context = reference.prefill(self.served.model, self.context_BT[:, :-1], self.served.sixteen)
        return workload.rows_digest(self.context_BT), shared_prefix_tokens

    def decode_ns(self, recipe: str, steps: int) -> int:
        """From a cache that is filled before the clock starts."""
        from kassay.backend import reference

        served = self.served
        made = recipe_named(recipe, served.sixteen)
        cache = reference.filled(served.model, made, served.scales, self.context, steps)
        started = idle_ns(served.device)
        reference.forced(served.model, cache, self.context_BT[:, -1:], steps)
        return idle_ns(served.device) - started

    def parts(self) -> list[Record]:
        """None: these are many small operations of a model that claims no speed."""
        return []

    def records(self) -> list[Record]:
        """None beside that of the model."""
        return []


def idle_ns(device: torch.device) -> int:
    """The monotonic clock, once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic_ns()
