"""Whether the driver of a run lives, told from the owner file beside the run's lock; the lock itself is never touched.

Of another host's process nothing can be told from here: it counts as alive.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from kassay.lock import owner_of


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Who holds a run, as the owner file says it."""

    pid: int
    host: str
    since: str  # UTC, ISO 8601
    state: str  # alive, gone, or `elsewhere`: only its own host can tell
    only: tuple[str, ...]  # the stages that it was asked for; empty: all

    @property
    def lives(self) -> bool:
        """Whether it has to be taken as alive."""
        return self.state != "gone"

    def __str__(self) -> str:
        state = "whether it lives only that host can tell" if self.state == "elsewhere" else self.state
        return f"pid {self.pid} on {self.host}, {state}"


def driver_of(run_dir: Path) -> Driver | None:
    """The holder of a run directory, None if nobody says to have it."""
    owner = owner_of(run_dir)
    if owner is None:
        return None
    here = "alive" if owner.alive() else "gone"
    state = here if owner.host == os.uname().nodename else "elsewhere"
    return Driver(pid=owner.pid, host=owner.host, since=owner.since, state=state, only=tuple(owner.only))
