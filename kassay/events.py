"""events.jsonl: what the orchestrator did and why, one record an event."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.combination import given_only, one_of
from kassay.record import Record, doc

OF_RUN = (
    "run_started", "protocol_noted", "lock_taken_over", "torn_line_set_aside", "run_interrupted", "run_ended",
)  # fmt: skip
OF_STAGE = ("stage_started", "stage_attached", "stage_reused", "stage_kept", "stage_retried", "stage_ended")


@dataclass(frozen=True, kw_only=True)
class Event(Record):
    """One step of a run."""

    schema: ClassVar[str] = "kassay.event/1"

    at: str = doc("Time in UTC, ISO 8601 with milliseconds.")
    event: str = doc(
        "One of run_started, protocol_noted, lock_taken_over, torn_line_set_aside, stage_started, stage_attached, "
        "stage_reused, stage_kept, stage_retried, stage_ended, run_interrupted, run_ended."
    )
    stage: str | None = doc("Name of the stage, null for events of the whole run.")
    why: str = doc(
        "Why it was started, reused, kept or retried; which protocol; of stage_ended the outcome's word, a colon and "
        "its reason; empty where there is nothing to say."
    )

    combinations = (one_of("event", (*OF_RUN, *OF_STAGE)), given_only("event", OF_STAGE, "stage"))
