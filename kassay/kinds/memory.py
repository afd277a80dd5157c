"""Memory: bytes of each part, queries and their windows, the allocator's own numbers, and what the gates said."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import given, given_only, one_of, ordered, rule
from kassay.record import Record, doc

SOURCES = ("resident", "device")
PHASE = (
    "Which work of the recipe: `fill` (the requests' cache), `blocks` (the study's, at equal slots) or `budget` (the "
    "cache at equal bytes, on vLLM from an engine's start to its last request); `prefill` and `decode` of a fused "
    "decoder; `start` and `serve` of a vLLM engine."
)


@dataclass(frozen=True, kw_only=True)
class MemoryPart(Record):
    """Bytes of one part of one recipe's run, storages counted once by (device, storage pointer)."""

    schema: ClassVar[str] = "kassay.memory_part/1"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    batch: int = doc("Sequences held.")
    tokens: int = doc("Tokens of each sequence.")
    part: str = doc(
        "`keys`, `values`, `key_scales`, `value_scales`, `weights`, `staging`, `scratch` or `block_tables`; joined by "
        "`+` where a storage holds several."
    )
    payload_bytes: int = doc("Bytes that the stored tokens need.")
    backing_bytes: int = doc("Bytes of the storages behind them, each counted once.")


@dataclass(frozen=True, kw_only=True)
class MemoryLimits(Record):
    """The limits that held for the memory of a run, and whose word they were (kassay.memory_limits)."""

    schema: ClassVar[str] = "kassay.memory_limits/2"

    model: str = doc("Name of the model.")
    origin: str = doc("`study` where the study has a section `memory`, else `Kconfig`.")
    period_ns: int = doc("Time between starts of queries in nanoseconds.")
    longest_gap_ns: int | None = doc("Longest gap of a window that is evidence in nanoseconds; null: no bound.")
    device_ceiling_bytes: int | None = doc("Largest use of the whole device in bytes; null: no ceiling.")
    reserved_ceiling_bytes: int | None = doc("Largest reservation of torch's allocator in bytes; null: no ceiling.")
    budget_bytes: int | None = doc("Bytes of K, V and scales in the study at equal bytes; null: there is none.")
    equal_slots_blocks: int | None = doc("Blocks of every recipe in the study at equal blocks; null: there is none.")
    page_tokens: int = doc("Tokens of a block.")

    combinations = (one_of("origin", ("study", "Kconfig")),)


@dataclass(frozen=True, kw_only=True)
class MemorySample(Record):
    """One query of memory in use; a sample, not a continuous maximum."""

    schema: ClassVar[str] = "kassay.memory_sample/3"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    phase: str = doc(PHASE)
    source: str = doc("`resident` (the process) or `device` (all that is in use on a GPU).")
    device: str = doc("`host`, or the GPU's UUID.")
    started_ns: int = doc("Start of the query on the monotonic clock in nanoseconds.")
    ended_ns: int = doc("End of the query on the same clock in nanoseconds.")
    used_bytes: int | None = doc("Bytes in use, null where the query failed.")
    error: str = doc("Why the query failed; empty if it was answered.")

    combinations = (
        one_of("source", SOURCES),
        given_only("error", ("",), "used_bytes"),
        ordered("started_ns", "ended_ns"),
    )


@dataclass(frozen=True, kw_only=True)
class MemoryWindow(Record):
    """All queries of one source around one phase of a recipe's work, and whether they are evidence."""

    schema: ClassVar[str] = "kassay.memory_window/3"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    phase: str = doc(PHASE)
    source: str = doc("`resident` or `device`.")
    device: str = doc("`host`, or the GPU's UUID.")
    opened_ns: int = doc("When the work could begin, on the monotonic clock in nanoseconds.")
    closed_ns: int = doc("When the work had ended, on the same clock in nanoseconds.")
    queries: int = doc("Queries that were started.")
    answered: int = doc("Queries that were answered.")
    gap_ns: int | None = doc(
        "Largest time from the start of an answered query to the end of the next, ends of the window included, in "
        "nanoseconds; null with fewer than two answers."
    )
    largest_bytes: int | None = doc("The largest sample, null without one; no continuous maximum.")
    sampler_cpu_ns: int = doc("Processor time of the sampler's process while it sampled, in nanoseconds.")
    sampler_wall_ns: int = doc("How long it sampled in nanoseconds.")
    startup_cpu_ns: int = doc("Its processor time before the first query and so before the work, in nanoseconds.")
    period_ns: int = doc("Time between starts of queries in nanoseconds.")
    longest_gap_ns: int | None = doc("Longest gap that is still evidence in nanoseconds; null: no bound.")
    valid: bool = doc("Whether there are two answers, and the gap stayed within that bound.")
    fault: str = doc("Why the window is no evidence; empty if it is.")

    combinations = (
        one_of("source", SOURCES),
        given_only("valid", (False,), "fault"),
        ordered("opened_ns", "closed_ns"),
        ordered("answered", "queries"),
        rule(
            "`largest_bytes` are there exactly where `answered` is above 0",
            lambda window: (window.largest_bytes is None) == (window.answered == 0),
        ),
        rule(
            "`gap_ns` is there exactly where `answered` is 2 or more",
            lambda window: (window.gap_ns is None) == (window.answered < 2),
        ),
        rule(
            "`valid` is whether `gap_ns` is there and within `longest_gap_ns`",
            lambda window: (
                window.valid
                == (
                    window.gap_ns is not None
                    and (window.longest_gap_ns is None or window.gap_ns <= window.longest_gap_ns)
                )
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AllocatorRecord(Record):
    """torch's caching allocator at the end of a phase: beside the parts, which it contains, never added to them."""

    schema: ClassVar[str] = "kassay.allocator/2"

    model: str = doc("Name of the model.")
    recipe: str = doc("Name of the recipe.")
    phase: str = doc(PHASE)
    device: str = doc("The device as torch names it.")
    absent: str = doc("Why there are no numbers; empty if there are.")
    allocated_bytes: int | None = doc("Bytes in tensors.")
    allocated_peak_bytes: int | None = doc("Largest value of it since the window opened, counted by the allocator.")
    reserved_bytes: int | None = doc("Bytes that the allocator has from the driver.")
    reserved_peak_bytes: int | None = doc("Largest value of it since the window opened, counted by the allocator.")
    pool_active_bytes: int | None = doc("In use in segments of the default pool.")
    pool_inactive_bytes: int | None = doc("Held and not in use in segments of the default pool.")
    graph_active_bytes: int | None = doc("In use in segments of private pools, which graphs have.")
    graph_inactive_bytes: int | None = doc("Held and not in use in segments of private pools.")

    combinations = (
        given_only(
            "absent", ("",), "allocated_bytes", "allocated_peak_bytes", "reserved_bytes", "reserved_peak_bytes",
            "pool_active_bytes", "pool_inactive_bytes", "graph_active_bytes", "graph_inactive_bytes",
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MemoryArm(Record):
    """The cache of one recipe as a gate compares it, all of its slots in use."""

    schema: ClassVar[str] = "kassay.memory_arm/1"

    model: str = doc("Name of the model.")
    gate: str = doc("`equal slots`, `equal blocks` or `equal bytes`.")
    recipe: str = doc("Name of the recipe.")
    slots: int = doc("Tokens that it has room for, over all sequences.")
    planned_bytes: int = doc("Payload of these slots by the geometry's arithmetic, fixed scales included.")
    payload_bytes: int = doc("Measured payload.")
    backing_bytes: int = doc("Storages of keys, values and scales, each once.")
    page_bytes: int = doc("Payload of what an equal budget must leave no room for: a page, or a whole sequence.")
    tail_bytes: int = doc("What the allocator may take beyond the payload.")

    combinations = (one_of("gate", ("equal slots", "equal blocks", "equal bytes")),)


@dataclass(frozen=True, kw_only=True)
class MemoryGate(Record):
    """What one gate of memory said about one arm, or about the device."""

    schema: ClassVar[str] = "kassay.memory_gate/1"

    model: str = doc("Name of the model.")
    gate: str = doc(
        "`equal slots`, `equal blocks`, `equal bytes`, `device ceiling`, `reserved ceiling`, or `allocated parts`: the "
        "parts of a recipe sum to no more than the allocator has in tensors."
    )
    recipe: str = doc("Name of the recipe that it is about.")
    verdict: str = doc("`pass`, `fails` or `unmeasured`.")
    observed: int | None = doc(
        "Slots of `equal slots` and `equal blocks`, bytes of the others; null where nothing was observed."
    )
    limit: int = doc(
        "What was compared with: slots of the first arm or of the blocks, the budget, the ceiling or what is in "
        "tensors, in bytes."
    )
    slots: int | None = doc("Tokens that the recipe's cache has room for; null for a ceiling.")
    reason: str = doc("What was found, in words.")

    combinations = (
        one_of("verdict", ("pass", "fails", "unmeasured")),
        given("verdict", ("pass", "fails"), "observed"),
    )
