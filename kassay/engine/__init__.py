"""Engines start stage directories and tell how they ended.

One protocol: `fits`, `start`, `poll`, `cancel`; and for jobs that outlive their driver `holds`, `attach`, `release`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kassay import host, paths

# Where tools keep what they compile while they run. A stack has its own: these caches look at versions and time stamps,
# and would answer with another commit's kernel. FlashInfer adds .cache/flashinfer to its base by itself.
JIT_FOLDERS = {
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "FLASHINFER_CUBIN_DIR": "flashinfer/cubins",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "VLLM_CACHE_ROOT": "vllm",
    "CUDA_CACHE_PATH": "cuda",
}


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
    home = python.parent.parent
    if (home / "pyvenv.cfg").is_file():
        environment["VIRTUAL_ENV"] = str(home)
    if (home / paths.ATTESTED).is_file():
        environment |= {name: str(home / paths.JIT / folder) for name, folder in JIT_FOLDERS.items()}
    return environment


def full_environment(job: Job) -> dict[str, str]:
    """The driver's environment without what would redirect a stage, and the job's own on top."""
    inherited = {name: value for name, value in os.environ.items() if name not in host.REDIRECTS}
    return {**inherited, **job.environment}


def fits_beside(job: Job, running: list[Job], cpus: float, memory_gib: float) -> bool:
    """Whether a job may start beside those that run; one larger than the limits may when it is alone."""
    if not running:
        return True
    if job.exclusive or any(other.exclusive for other in running):
        return False
    asked_cpus = sum(other.cpus for other in running) + job.cpus
    asked_gib = sum(other.memory_gib for other in running) + job.memory_gib
    return asked_cpus <= cpus and asked_gib <= memory_gib


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's process ended."""

    stage: str
    exit_code: int | None  # negative: ended by that signal; None: not known, and `fault` says why
    timed_out: bool
    fault: str  # what ended it other than the process itself, in words; empty if nothing did

    def __post_init__(self) -> None:
        if self.exit_code is None and not (self.fault or self.timed_out):
            raise ValueError(f"a bug: stage `{self.stage}` ended without an exit code and without a reason")


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

    def holds(self, directory: Path) -> bool:
        """Whether an earlier driver left a job in this stage directory whose end nobody has recorded."""

    def attach(self, job: Job) -> bool:
        """Take over what is held in the job's directory, as if it had been started here; false if it never started."""

    def release(self, directory: Path) -> None:
        """End what is held in this stage directory, if anything is, so that it can be set aside."""
