"""How a stage is asked: the job for an engine, and request.json, from which it can be run again by hand."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.engine import Grant, Job, environment_of
from kassay.executable import argv_of
from kassay.identity import Wanted
from kassay.rundir import Setup


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A stage that is ready, with all that starting it takes but the grant."""

    wanted: Wanted
    job: Job
    why: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Running:
    """A stage that was started, or attached to."""

    prepared: Prepared
    grant: Grant | None  # None: an earlier driver started it
    at: str  # UTC, ISO 8601
    since: float  # time.monotonic()

    def told(self, run: str) -> dict[str, Any]:
        """The fields of its outcome that the driver knows now that it has ended."""
        return {
            "stage": self.prepared.job.stage,
            "run": run,
            "started_at": self.at,
            "duration_s": round(time.monotonic() - self.since, 3),
            "attempt": self.prepared.attempt,
            "grant": None if self.grant is None else vars(self.grant),
        }


def job_of(directory: Path, wanted: Wanted, setup: Setup) -> Job:
    """The job: a stage program by its path, with its stack's interpreter if it has one, or a plain executable."""
    stage = wanted.stage
    if stage.argv:
        argv, given = argv_of(stage, wanted.inputs), {}
    else:
        python = setup.interpreter
        if (stack := wanted.inputs.get("stack")) is not None:
            python = json.loads(stack.path.read_bytes())["python"]
        argv, given = (python, str(paths.program(stage.program)), str(directory)), environment_of(Path(python))
    return Job(
        stage=stage.name,
        directory=directory,
        argv=argv,
        environment=given,
        cpus=stage.cpus,
        memory_gib=stage.memory_gib,
        gpus=stage.gpus,
        exclusive=stage.exclusive,
        timeout_s=stage.timeout_s or setup.timeout_s,
    )


def request_of(
    run_dir: Path, wanted: Wanted, job: Job, grant: Grant | None, attempt: int, protocol: dict[str, Any] | None
) -> dict[str, Any]:
    """The content of request.json."""
    stage = wanted.stage
    return {
        "schema": "kassay.request/2",
        "run": run_dir.name,
        "run_dir": str(run_dir),
        "stage": stage.name,
        "attempt": attempt,
        "protocol": protocol,
        "params": stage.params,
        "inputs": {name: {"path": str(given.path), "sha256": given.sha256} for name, given in wanted.inputs.items()},
        "host": stage.host_needs(),
        "grant": None if grant is None else vars(grant),
        "timeout_s": job.timeout_s,
        "roots": [str(tree) for tree in paths.trees()],
        "argv": list(job.argv),
        "environment": job.environment,
        "key": wanted.parts(),
    }
