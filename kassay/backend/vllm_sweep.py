"""A point of a sweep on a vLLM engine: which requests bring every sequence to one length at one time, and its windows.

Axes: B requests, in groups of as many prompts as one step prefills.

Prompts are prefilled group after group, and who came first decodes meanwhile: request i of group g of G has G - 1 - g
tokens when the last group has its first. So its prompt is shorter by as many, and by the steps of the warm-up:

    prompt tokens of group g = T - warm-up steps - (G - 1 - g)

and each sequence holds exactly T tokens when the first measured window begins. From the step of the last first token
on, every step serves all B sequences; windows of equally many steps follow each other without a pause, so window k
begins k windows later than T. Which steps those were is told twice, by the stamps of the requests' tokens and by the
scheduler's counts, and they must agree. A request that was taken out, served in other steps, or made longer by another
schedule than this is an error and no slow point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kassay.errors import KassayError
from kassay.kinds.vllm import VllmRequest, VllmSpan
from kassay.kv.geometry import Geometry, token_bytes
from kassay.kv.recipe import recipe_named

BLOCK_TOKENS = 16
NULL_BLOCKS = 1  # of vLLM, which no request holds
PREFILL_TOKENS = 8192  # of one step, decodes not counted
WARMUPS = 1
LARGEST_DRIFT = 0.02  # of T: by how much longer sequences are when the last window begins


@dataclass(frozen=True, kw_only=True)
class Point:
    """One batch at one context."""

    batch: int
    context_tokens: int
    output_tokens: int  # steps of a window
    repetitions: int  # measured windows

    @property
    def windows(self) -> int:
        """Windows, the warm-up included."""
        return WARMUPS + self.repetitions

    @property
    def group(self) -> int:
        """Prompts that one step prefills."""
        return min(self.batch, max(1, PREFILL_TOKENS // self.context_tokens))

    @property
    def groups(self) -> int:
        """Steps that prefill."""
        return -(-self.batch // self.group)

    @property
    def arrivals(self) -> list[int]:
        """The step before which each request is submitted."""
        return [index // self.group for index in range(self.batch)]

    @property
    def prompt_tokens(self) -> list[int]:
        """Tokens of each prompt. Raises KassayError where the shortest would be no page."""
        before = WARMUPS * self.output_tokens
        found = [self.context_tokens - before - (self.groups - 1 - group) for group in self.arrivals]
        if min(found) < BLOCK_TOKENS:
            raise KassayError(
                f"batch {self.batch} at {self.context_tokens} tokens would begin with a prompt of {min(found)}, "
                f"allowed are {BLOCK_TOKENS} and more: take a longer context or fewer steps"
            )
        return found

    @property
    def forced_tokens(self) -> int:
        """Output of every request: the first group's ends with the last window."""
        return self.groups + self.windows * self.output_tokens

    @property
    def sequence_tokens(self) -> int:
        """The longest sequence, which is one of the last group."""
        return max(tokens + self.forced_tokens for tokens in self.prompt_tokens)

    @property
    def cached_tokens(self) -> int:
        """Tokens of each sequence when the last window ends."""
        return self.context_tokens + self.repetitions * self.output_tokens


def require_short(point: Point) -> None:
    """Raise KassayError where later windows would be of clearly longer sequences than the record says."""
    late = (point.repetitions - 1) * point.output_tokens
    if late > LARGEST_DRIFT * point.context_tokens:
        raise KassayError(
            f"the last of {point.repetitions} windows of {point.output_tokens} steps would begin {late} tokens behind "
            f"{point.context_tokens}, allowed are {LARGEST_DRIFT:.0%}",
            hint="take fewer or shorter windows: VLLM_SWEEP_REPETITIONS, VLLM_SWEEP_OUTPUT_TOKENS",
        )


def held(points: Sequence[Point], geometry: Geometry, pool_bytes: int) -> list[Point]:
    """The points that a pool of 16-bit keys and values holds to their end: those of every arm, whatever it stores.

    Raises KassayError where it holds none.
    """
    block_bytes = BLOCK_TOKENS * token_bytes(geometry, recipe_named("native", "fp16"))
    blocks = pool_bytes // block_bytes - NULL_BLOCKS
    found = [point for point in points if point.batch * -(-point.cached_tokens // BLOCK_TOKENS) <= blocks]
    if not found:
        raise KassayError(
            f"a pool of {pool_bytes} bytes holds {max(0, blocks)} blocks of 16-bit keys and values, and no batch of "
            f"{min(point.batch for point in points)} at {min(point.context_tokens for point in points)} tokens"
        )
    return found


def elapsed_ns(point: Point, span: VllmSpan, requests: Sequence[VllmRequest]) -> list[int]:
    """Duration of each window, warm-up first. Raises KassayError unless every step of them served the whole batch."""
    faults = []
    if len(requests) != point.batch or span.requests != point.batch:
        faults.append(f"{len(requests)} requests left a record")
    if span.preemptions or span.prefilled_tokens != sum(point.prompt_tokens):
        faults.append(f"{span.preemptions} preemptions, {span.prefilled_tokens} prompt tokens were computed")
    if any(len(one.completion_steps) != point.forced_tokens for one in requests):
        faults.append(f"outputs are not all of {point.forced_tokens} tokens")
    if faults:
        raise not_served(point, faults)
    first = max(one.completion_steps[0] for one in requests)
    last = min(one.completion_steps[-1] for one in requests)
    steps = point.windows * point.output_tokens
    if last - first != steps or span.full_steps != steps:
        faults.append(f"{last - first} full steps by stamps, {span.full_steps} by the scheduler, planned were {steps}")
    wanted = point.context_tokens - WARMUPS * point.output_tokens
    lengths = {one.prompt_tokens + sum(step <= first for step in one.completion_steps) - 1 for one in requests}
    if lengths != {wanted}:
        faults.append(f"sequences of {min(lengths)} to {max(lengths)} tokens, planned were {wanted}")
    if faults:
        raise not_served(point, faults)
    at = [span.step_ns[first + window * point.output_tokens] for window in range(point.windows + 1)]
    return [after - before for before, after in pairwise(at)]


def not_served(point: Point, faults: Sequence[str]) -> KassayError:
    """A point that is none."""
    return KassayError(f"batch {point.batch} at {point.context_tokens} tokens was not served as planned", *faults)
