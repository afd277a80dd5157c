"""Engines start stage directories and tell how they ended. One protocol: `fits`, `start`, `poll`, `cancel`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kassay import paths


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an engine needs to run one stage."""

    stage: str
    directory: Path
    argv: tuple[str, ...]
    environment: dict[str, str]  # added to the driver's own
    cpus: int
    memory_gib: float
    exclusive: bool
    timeout_s: float


def environment_of(python: Path) -> dict[str, str]:
    """What a stage under this interpreter gets beside the driver's environment: the interpreter's own settings."""
    environment = {
        "PYTHONPATH": str(paths.ROOT),
        "PYTHONNOUSERSITE": "1",  # a stack is attested without it
        "PYTHONUTF8": "1",
        # Bytecode is kept whatever the caller's shell says: without it every cell's imports take twice as long.
        "PYTHONDONTWRITEBYTECODE": "",
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }
    if (python.parent.parent / "pyvenv.cfg").is_file():
        environment["VIRTUAL_ENV"] = str(python.parent.parent)
    return environment


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's process ended."""

    stage: str
    exit_code: int  # negative: ended by that signal
    timed_out: bool


class Engine(Protocol):
    """What the loop asks of an engine."""

    def fits(self, job: Job) -> bool:
        """Whether the job could start now beside what runs."""

    def start(self, job: Job) -> None:
        """Start the job's process; its output goes to the logs in its directory."""

    def poll(self) -> list[Ended]:
        """The jobs that ended since the last call, after waiting a moment for one."""

    def cancel(self) -> None:
        """End every running job (TERM, grace, KILL) and wait for it."""
