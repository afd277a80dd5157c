"""The health of a mirror: a copy of a run in a tracking service, which may lag or fail without the run noticing."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from kassay.combination import given_only, one_of, rule
from kassay.record import Record, doc

State = Literal["started", "sent", "absent", "failed", "hung"]
STATES: tuple[State, ...] = get_args(State)
UNTROUBLED = ("started", "sent")


@dataclass(frozen=True, kw_only=True)
class MirrorRecord(Record):
    """One step in the life of one mirror of a run (mirror.jsonl of the run directory)."""

    schema: ClassVar[str] = "kassay.mirror/1"

    mirror: str = doc("Name of the mirror: `wandb` or `trackio`.")
    at: str = doc("Time in UTC, ISO 8601 with milliseconds.")
    state: State = doc(
        "`started`: its process was started; `sent`: all events that were there have arrived; `absent`: the host lacks "
        "what it needs, nothing was sent; `failed`: an error or its death ended it; `hung`: it was ended by force."
    )
    events: int = doc("Events of the run, from its first, whose arrival was confirmed; never less than 0.")
    reason: str = doc("Class and place of the error, what is lacking, or what took too long; empty if all is well.")

    combinations = (
        one_of("state", STATES),
        given_only("state", tuple(state for state in STATES if state not in UNTROUBLED), "reason"),
        rule("`events` are 0 or more", lambda record: record.events >= 0),
    )
