"""The health of a mirror: a copy of a run in a tracking service, which may lag or fail without the run noticing."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from kassay.errors import RecordError
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

    def __post_init__(self) -> None:
        if self.state not in STATES or self.events < 0 or (self.state in UNTROUBLED) != (self.reason == ""):
            raise RecordError(f"mirror `{self.mirror}`: `{self.state}`, {self.events} events, reason `{self.reason}`")
