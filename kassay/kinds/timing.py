"""Timed cells: each a fresh process, every repetition kept, warm-ups marked; and what was concluded from them."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc

NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class TimingCell(Record):
    """One arm in one block: a fresh process that served one batch of requests completely, several times."""

    schema: ClassVar[str] = "kassay.timing_cell/1"

    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot, excluded from every result.")
    position: int = doc("Place of the cell in its block from 0.")
    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    batch: int = doc("Requests in the batch.")
    context_tokens: int = doc("Tokens of each prompt.")
    output_tokens: int = doc("Tokens generated for each request, by force.")
    warmups: int = doc("How many of the first repetitions are warm-ups, excluded from the result.")
    started_ns: list[int] = doc("Start of each repetition on the monotonic clock in nanoseconds.")
    ended_ns: list[int] = doc("End of each repetition on the same clock in nanoseconds.")
    completed_tokens: list[int] = doc("Tokens completed in each repetition over all requests.")
    prompts_sha256: str = doc("Digest of the token ids of all prompts.")
    output_sha256: str = doc("Digest of the token ids of the last repetition's output.")
    load_before: float = doc("One-minute load average of the host before the cell.")
    load_after: float = doc("One-minute load average of the host after the cell.")
    pid: int = doc("Process id of the cell's process; no two cells of a block share one.")

    def rate_per_s(self) -> float:
        """Completed tokens per second over the measured repetitions, warm-ups excluded."""
        spans = list(zip(self.started_ns, self.ended_ns, self.completed_tokens, strict=True))[self.warmups :]
        return sum(done for _, _, done in spans) * NS_PER_S / sum(ended - started for started, ended, _ in spans)


@dataclass(frozen=True, kw_only=True)
class SweepCell(Record):
    """Decode throughput of one recipe at one batch and context."""

    schema: ClassVar[str] = "kassay.sweep_cell/2"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    batch: int = doc("Active sequences.")
    context_tokens: int = doc("Cached tokens of each sequence before the first decode step.")
    output_tokens: int = doc("Decode steps of each measurement.")
    warmups: int = doc("How many of the first measurements are warm-ups, excluded from the fit.")
    elapsed_ns: list[int] = doc("Duration of each measurement in nanoseconds, warm-ups included.")
    prompts_sha256: str = doc("Digest of the token ids of all prompts; all prompts differ.")
    shared_prefix_tokens: int = doc("Longest prefix that two prompts share, in tokens; below 16, a page of a cache.")

    def rate_per_s(self, elapsed_ns: float) -> float:
        """Decode rate over all sequences, in tokens per second, of a measurement that took `elapsed_ns`."""
        return self.batch * self.output_tokens * NS_PER_S / elapsed_ns
