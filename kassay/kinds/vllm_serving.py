"""A vLLM server behind a cell of a serving stage, as its engine and its own metrics tell of it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import rule
from kassay.record import Record, doc

OF_WORK = ("events", "cuts")  # of an engine, which grow with what it serves


def unlike(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """In which fields an engine is not what it was; what it did since is none."""
    return [name for name in before if name not in OF_WORK and before[name] != after.get(name)]


@dataclass(frozen=True, kw_only=True)
class VllmServer(Record):
    """What one vLLM server did from before its first load to after its last, warm-ups included."""

    schema: ClassVar[str] = "kassay.vllm_server/2"

    arm: str = doc("Name of the arm.")
    block: int = doc("Number of the block from 0; pilots have their own numbers.")
    pilot: bool = doc("Whether the block is a pilot.")
    position: int = doc("Place of the arm in its block from 0.")
    steps: int = doc("Steps of the engine, by its own metrics.")
    prompt_tokens: int = doc("Prompt tokens that it prefilled or took from a cache, by its own metrics.")
    cached_tokens: int = doc("Those of them that it took from a cache.")
    generated_tokens: int = doc("Tokens that it generated, by its own metrics.")
    finished: dict[str, int] = doc("Requests by the reason for which they ended, by its own metrics.")
    preemptions: int = doc("Requests that were taken out of the running batch before their end.")
    routes: dict[str, int] | None = doc("Of the plug-in: route -> batches that took it; null elsewhere.")
    replays: dict[str, int] | None = doc("Of the plug-in: decodes of a batch -> replays of its graph; null elsewhere.")
    fallbacks: int | None = doc("Of the plug-in: prefills behind stored tokens; null elsewhere.")
    attested_before: dict[str, Any] = doc(
        "What its engine attested before its first load, by the fields of `kassay.vllm_engine`."
    )
    attested_after: dict[str, Any] = doc("What it attested after its last load, likewise.")
    changed: list[str] = doc(
        "Fields in which the two differ; `events` and `cuts`, which grow with the work, are none of them."
    )
    faults: list[str] = doc("Why the cell is invalid, such as an engine that changed under its loads; empty if valid.")

    combinations = (
        rule(
            "`changed` are the fields in which `attested_before` and `attested_after` differ",
            lambda server: server.changed == unlike(server.attested_before, server.attested_after),
        ),
        rule(
            "`routes`, `replays` and `fallbacks` are null together",
            lambda server: len({told is None for told in (server.routes, server.replays, server.fallbacks)}) == 1,
        ),
        rule(
            "`faults` are there exactly where something `changed`, or `cached_tokens` or `fallbacks` are above 0",
            lambda server: bool(server.faults) == bool(server.changed or server.cached_tokens or server.fallbacks),
        ),
    )
