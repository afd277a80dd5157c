"""Timed cells: each a fresh process, every repetition kept, warm-ups marked; and what was concluded from them."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import given_only, one_of
from kassay.record import Record, doc

NS_PER_S = 1e9
BEFORE, AFTER = "before", "after"
TIMED = "timed"  # the load of a study with one; a guard has its own name, and so has each load of many


@dataclass(frozen=True, kw_only=True)
class TimingCell(Record):
    """One arm in one block: a fresh process that served one batch of requests completely, several times.

    What it lacks of its evidence is left empty and makes it invalid (kassay.validity); it is never a slow cell.
    """

    schema: ClassVar[str] = "kassay.timing_cell/2"

    load: str = doc(
        "Name of the load: `timed`, in a family of many loads that of the study, or that of a guard, which is "
        "described and decides nothing."
    )
    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot, excluded from every result.")
    position: int = doc("Place of the cell in its block from 0.")
    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    batch: int = doc("Requests in the batch.")
    context_tokens: int = doc("Tokens of each prompt.")
    output_tokens: int = doc("Tokens generated for each request, by force.")
    warmups: int = doc("How many of the first repetitions are warm-ups, excluded from the result.")
    started_ns: list[int] = doc("Start of each repetition on the monotonic clock in nanoseconds, the device idle.")
    ended_ns: list[int] = doc("End of each repetition on the same clock in nanoseconds, the device idle again.")
    request_tokens: list[list[int]] = doc("Completion record of each repetition: tokens completed, request by request.")
    prefilled_tokens: list[int] = doc(
        "Prompt tokens that each repetition computed, over all requests; what is less than all came from a cache."
    )
    decode_steps: list[int] = doc(
        "Decode passes that each repetition scheduled; of a worker, which admits requests one after another, steps "
        "from a request's first token to its last, the most of any request."
    )
    full_steps: list[int] = doc(
        "Those of them that served every request of the batch; of a worker those that served a request, the fewest of "
        "any request."
    )
    preemptions: list[int] = doc("Requests that were taken out of the running batch before their end.")
    prompts_sha256: str = doc("Digest of the token ids of all prompts.")
    prompt_sha256s: list[str] = doc("Digest of the token ids of each prompt, in the order of the batch.")
    output_sha256s: list[str] = doc("Digest of the token ids of all outputs of each repetition.")
    pid: int = doc("Process id of the cell's process; no two cells of a block share one.")

    @property
    def completed_tokens(self) -> list[int]:
        """Tokens completed in each repetition over all requests."""
        return [sum(tokens) for tokens in self.request_tokens]

    def rate_per_s(self) -> float:
        """Completed tokens per second over the measured repetitions, warm-ups excluded."""
        spans = list(zip(self.started_ns, self.ended_ns, self.completed_tokens, strict=True))[self.warmups :]
        return sum(done for _, _, done in spans) * NS_PER_S / sum(ended - started for started, ended, _ in spans)


@dataclass(frozen=True, kw_only=True)
class HostState(Record):
    """The host right before or right after a cell's repetitions; a number that it does not tell is null."""

    schema: ClassVar[str] = "kassay.host_state/2"

    load: str = doc("Name of the cell's load.")
    block: int = doc("Number of the cell's block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot.")
    position: int = doc("Place of the cell in its block from 0.")
    recipe: str = doc("Name of the cell's recipe.")
    when: str = doc("`before` or `after` the cell's repetitions.")
    at_ns: int = doc("When, on the monotonic clock in nanoseconds.")
    load_1min: float = doc("One-minute load average of the host.")
    core_mhz: float | None = doc("Mean clock of the cores that the cell may run on, in MHz.")
    temperature_c: float | None = doc("Hottest sensor of the processor in degrees Celsius.")
    busy_s: float | None = doc("Time that all cores of the host have been busy since it started, in seconds.")
    stolen_s: float | None = doc("Time that the host of a virtual machine took from its cores, in seconds.")
    own_s: float = doc("Processor time of the cell's process and of its ended children, in seconds.")
    throttled: int | None = doc("Times that the cores were throttled for heat since the host started.")
    absent: list[str] = doc("What the host does not tell, and why.")

    combinations = (one_of("when", (BEFORE, AFTER)),)


@dataclass(frozen=True, kw_only=True)
class GpuState(Record):
    """A GPU right before or right after a cell's repetitions, by its driver (NVML); what it does not tell is null."""

    schema: ClassVar[str] = "kassay.gpu_state/1"

    load: str = doc("Name of the cell's load.")
    block: int = doc("Number of the cell's block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot.")
    position: int = doc("Place of the cell in its block from 0.")
    recipe: str = doc("Name of the cell's recipe.")
    when: str = doc("`before` (the cell has no context yet) or `after` the cell's repetitions.")
    at_ns: int = doc("When, on the monotonic clock in nanoseconds.")
    device: str = doc("UUID of the GPU.")
    sm_mhz: int | None = doc("Clock of the multiprocessors in MHz.")
    sm_limit_mhz: int | None = doc("Largest clock of them in MHz.")
    memory_mhz: int | None = doc("Clock of the memory in MHz.")
    temperature_c: int | None = doc("Temperature in degrees Celsius.")
    power_w: float | None = doc("Power in watts.")
    slowed_by: list[str] | None = doc("Why clocks are held down now, in NVML's words, such as `sw_power_cap`.")
    slowed_ns: dict[str, int] | None = doc(
        "Policy (`power`, `thermal`, …) -> time that it has held clocks down since the driver started, in nanoseconds."
    )
    processes: list[dict[str, Any]] | None = doc(
        "Processes with a context on the GPU: `pid`, `bytes` (null where it is not told) and `own`, the cell's."
    )
    used_bytes: int | None = doc("Memory in use on the GPU, by whom ever, without what the driver keeps for itself.")
    absent: list[str] = doc("What the driver does not tell, and why.")

    combinations = (one_of("when", (BEFORE, AFTER)),)


@dataclass(frozen=True, kw_only=True)
class BlockRecord(Record):
    """One planned block: whether it counts, and which rule says of which cell that it does not."""

    schema: ClassVar[str] = "kassay.block/1"

    model: str = doc("Name of the model.")
    load: str = doc("Name of the load, that of its cells.")
    block: int = doc("Number of the block from 0.")
    order: list[str] = doc("Its arms in the order in which their cells ran.")
    valid: bool = doc("Whether it counts.")
    faults: list[dict[str, Any]] = doc(
        "What invalidates it: `rule`, `recipe` and `position` of the cell (null where it is the block), `said`."
    )

    combinations = (given_only("valid", (False,), "faults"),)


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
    shared_prefix_tokens: int = doc(
        "Longest prefix that two prompts share, in tokens; below 16, a page of a cache. A prefix that a study has all "
        "requests share is not in it, nor in the prompts' digest."
    )

    def rate_per_s(self, elapsed_ns: float) -> float:
        """Decode rate over all sequences, in tokens per second, of a measurement that took `elapsed_ns`."""
        return self.batch * self.output_tokens * NS_PER_S / elapsed_ns
