"""Run a stage program by hand, as its contract allows: a directory with a request, and what it leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, outcome, paths


class Ran:
    """What a stage left behind."""

    def __init__(self, directory: Path, code: int, stderr: str) -> None:
        self.directory = directory
        self.code = code
        self.stderr = stderr

    @property
    def outcome(self) -> outcome.Outcome:
        """The outcome, which must be there."""
        found = outcome.load(self.directory)
        assert found is not None, self.stderr
        return found

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Records of one kind, such as `gate`."""
        lines = (self.directory / paths.RECORDS).read_text().splitlines()
        return [body for body in map(json.loads, lines) if body["schema"].startswith(f"kassay.{kind}/")]


@pytest.fixture
def run_stage(tmp_path: Path) -> Callable[..., Ran]:
    """`run_stage(program, params, inputs)` in a fresh directory, with this interpreter."""
    return runner(tmp_path)


@pytest.fixture(scope="session")
def robust_scales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scales of the shipped robust model, calibrated once for all tests."""
    params = {
        "model": "robust",
        "sixteen": "fp16",
        "documents": 2,
        "check_documents": 2,
        "contexts_tokens": [60, 100],
        "decode_tokens": 8,
        "batch": 2,
        "seed": 1,
    }
    model = paths.ROOT / "data" / "models" / "robust"
    ran = runner(tmp_path_factory.mktemp("calibrated"))("calibrate", params, {"model": model})
    assert ran.code == 0, ran.stderr
    found = ran.records("scale")
    assert len(found) == 8 and all(body["scale"] > 0 and body["amax"] > 0 for body in found)
    return ran.directory / "scales.json"


def runner(tmp_path: Path) -> Callable[..., Ran]:
    """A function that runs stages below `tmp_path`."""

    def run(program: str, params: dict[str, Any], inputs: dict[str, Path], *, cpus: int = 1, gpus: int = 0) -> Ran:
        directory = tmp_path / "stages" / f"{program}-{len(list(tmp_path.glob('stages/*')))}"
        directory.mkdir(parents=True)
        request = {
            "schema": "kassay.request/2",
            "run": "test",
            "run_dir": str(tmp_path),
            "stage": program,
            "params": params,
            "inputs": {name: {"path": str(path), "sha256": digest.of_path(path)} for name, path in inputs.items()},
            "attempt": 1,
            "grant": {"cpus": cpus, "memory_gib": 1, "gpus": gpus, "gpu_ids": None if gpus else [], "exclusive": False},
            "roots": [str(paths.ROOT)],
        }
        digest.write_json(directory / paths.REQUEST, request)
        argv = [sys.executable, "-W", "error", str(paths.program(program)), str(directory)]
        environment = {**os.environ, "PYTHONPATH": str(paths.ROOT), "PYTHONDONTWRITEBYTECODE": ""}
        done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
        return Ran(directory, done.returncode, done.stderr)

    return run
