"""A vLLM server behind a cell of a serving stage, as its engine and its own metrics tell of it."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class VllmServer(Record):
    """What one vLLM server did from before its first load to after its last, warm-ups included."""

    schema: ClassVar[str] = "kassay.vllm_server/1"

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
    changed: list[str] = doc("Fields in which its engine, asked again after the loads, is not what it was before them.")
    faults: list[str] = doc("Why the cell is invalid, such as an engine that changed under its loads; empty if valid.")
