"""Engines start stage directories and tell how they ended.

One protocol: `grant`, `waits_for`, `start`, `poll`, `cancel`; and for jobs that outlive their driver `holds`, `attach`,
`release`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kassay import gpus, host, paths

KASSAY_JOB = "KASSAY_JOB"  # names the driver and the job in every process that a local stage has started

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
    gpus: int
    exclusive: bool  # alone on its host
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a job gets when it starts; less than it asked for where there is no more."""

    cpus: int
    memory_gib: float
    gpus: int
    exclusive: bool
    gpu_ids: tuple[str, ...] | None  # as CUDA_VISIBLE_DEVICES takes them; None: the cluster chooses


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


def inherited_environment() -> dict[str, str]:
    """The driver's environment without what would redirect a stage, and without what is granted to each."""
    left = {*host.REDIRECTS, KASSAY_JOB, gpus.VISIBLE}
    return {name: value for name, value in os.environ.items() if name not in left}


def lacking_beside(job: Job, running: Iterable[Grant], cpus: float, memory_gib: float) -> str:
    """What a job waits for beside those that run, in words; empty if it may start.

    One that asks for more than the limits may start when it is alone.
    """
    held = list(running)
    if not held:
        return ""
    if job.exclusive or any(other.exclusive for other in held):
        return "to be alone" if job.exclusive else "a stage that runs alone"
    free_cpus = cpus - sum(other.cpus for other in held)
    if job.cpus > free_cpus:
        return f"{max(free_cpus, 0):g} of {cpus:g} cores are free"
    free_gib = memory_gib - sum(other.memory_gib for other in held)
    if job.memory_gib > free_gib:
        return f"{max(free_gib, 0.0):.1f} of {memory_gib:g} GiB are free"
    return ""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job's process ended."""

    stage: str
    exit_code: int | None  # negative: ended by that signal; None: not known, and `fault` says why
    timed_out: bool
    fault: str  # what ended it other than the process itself, in words; empty if nothing did
    peak_bytes: int | None  # largest resident memory of the job's process; None where it is not known

    def __post_init__(self) -> None:
        if self.exit_code is None and not (self.fault or self.timed_out):
            raise ValueError(f"a bug: stage `{self.stage}` ended without an exit code and without a reason")


class Engine(Protocol):
    """What the loop asks of an engine."""

    token: str  # every process that a local stage has started carries it, so that the next driver knows them

    def grant(self, job: Job) -> Grant | None:
        """What the job gets if it is started now, kept until the next `grant` or `poll`; None: it has to wait."""

    def waits_for(self, job: Job) -> str:
        """Why `grant` has just given None, in words: `1 of 2 cores are free`, `another run on this host`."""

    def start(self, job: Job, grant: Grant) -> None:
        """Start the job's process with what it was granted; its output goes to the logs in its directory."""

    def poll(self) -> list[Ended]:
        """The jobs that ended since the last call, after waiting a moment for one, even where nothing runs."""

    def cancel(self) -> None:
        """End every running job (TERM, grace, KILL) and wait for it."""

    def holds(self, directory: Path) -> bool:
        """Whether an earlier driver left a job in this stage directory whose end nobody has recorded."""

    def attach(self, job: Job) -> bool:
        """Take over what is held in the job's directory, as if it had been started here; false if it never started."""

    def release(self, directory: Path) -> None:
        """End what is held in this stage directory, if anything is, so that it can be set aside."""
