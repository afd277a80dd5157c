"""stages/report.py as the orchestrator starts it: a process with one argument, its directory."""

import json
import os
import subprocess
import sys

from kassay import paths
from kassay.outcome import load
from tests.report.fabricate import RUN, FakeRun


def test_the_program_renders_into_its_directory_and_the_run(fake_run: FakeRun) -> None:
    fake_run.end("contrast")
    directory = fake_run.directory / "stages" / "report"
    directory.mkdir()
    request = {
        "run": RUN,
        "run_dir": str(fake_run.directory),
        "stage": "report",
        "params": {},
        "inputs": {"run": {"path": str(fake_run.directory), "sha256": "0" * 64}},
        "attempt": 1,
        "grant": {"cpus": 1, "gpus": 0},
        "roots": [str(paths.ROOT)],
    }
    (directory / "request.json").write_text(json.dumps(request))
    program = paths.ROOT / "stages" / "report.py"
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    subprocess.run([sys.executable, "-W", "error", program, directory], env=environment, check=True)
    outcome = load(directory)
    assert outcome is not None and outcome.word == "passed"
    assert set(outcome.artifacts) == {"report.html", "report.md", "report.json", "junit.xml"}
    for artifact in outcome.artifacts.values():
        assert (directory / artifact.file).read_bytes() == (fake_run.directory / artifact.file).read_bytes()
