"""A small project of its own for each test of the orchestrator: stage programs, a workflow, a results folder."""

import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kassay import paths, plan
from kassay.engine import Engine
from kassay.engine.local import LocalEngine
from kassay.events import Event
from kassay.run import Run
from kassay.rundir import Setup

if find_spec("triton"):  # whether its functions are interpreted, for tests/kernels, is decided when they are made
    asked = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    importlib.import_module("triton")
    if asked is None:
        del os.environ["TRITON_INTERPRET"]

# A shell without job control starts what it sends to the background deaf to Ctrl-C, and all that this starts would be.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)

# Folders, and names of tests/test_<name>.py, whose tests wait, kill or measure: one at a time, mostly idle.
OF_THE_CLOCK = set("crash engine mirror nightly serving benchmark loop menu progress reuse run telemetry watch".split())
FRAME = """
import os, sys, time
from kassay.stage import Stage, Unmet, main
def run(stage):
{body}
main(run)
"""
PASS = '    stage.write_json("out", {"value": stage.params.get("value", 0)})\n    return {}'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that another of their kind could disturb: scripts/check.py runs those of `clock` one at a time."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).parts[0].removeprefix("test_").removesuffix(".py") in OF_THE_CLOCK:
            item.add_marker(pytest.mark.clock)


class Silent:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
        pass


def setup_of(results: Path, interpreter: str, timeout_s: float, **chosen: set[str]) -> Setup:
    """What a driver knows besides the plan."""
    names = {word: frozenset(chosen.get(word, ())) for word in ("only", "force", "keep")}
    return Setup(results=results, settings={}, overrides=[], interpreter=interpreter, timeout_s=timeout_s, **names)


class Project:
    """A tree with stage programs and runs of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = root / "results"
        (root / "stages").mkdir()
        self.program("ok", PASS)

    def program(self, name: str, body: str) -> Path:
        """Write stages/<name>.py whose run() has this body."""
        path = self.root / "stages" / f"{name}.py"
        path.write_text(FRAME.format(body=body))
        return path

    def plan(self, stages: dict[str, Any], profile: str = "toy") -> plan.Plan:
        """The plan of a workflow; resources are filled in."""
        given: dict[str, Any] = {"resources": {"cpus": 1, "memory_gib": 0.1}}
        full = {name: {**given, **body} for name, body in stages.items()}
        return plan.build(profile, "toy", {"stages": full})

    def open(self, stages: dict[str, Any], timeout_s: float = 60.0, **chosen: set[str]) -> Run:
        """A run that has not started; `chosen` are only, force and keep."""
        return Run(self.plan(stages), setup_of(self.results, sys.executable, timeout_s, **chosen), self.engine())

    def engine(self) -> Engine:
        """What starts the stages; a test may put another in its place."""
        return LocalEngine(cpus=2, memory_gib=4)

    def go(self, stages: dict[str, Any], timeout_s: float = 60.0, **chosen: set[str]) -> "Went":
        """Run to the end."""
        run = self.open(stages, timeout_s, **chosen)
        watcher = Silent()
        code = run.go(watcher)
        return Went(run, watcher, code)


class Went:
    """A run that ended."""

    def __init__(self, run: Run, watcher: Silent, code: int) -> None:
        self.run = run
        self.code = code
        self.words = {name: outcome.word for name, outcome in run.outcomes.items()}
        self.reasons = {name: outcome.reason for name, outcome in run.outcomes.items()}
        self.started = {e.stage: e.why for e in watcher.events if e.event == "stage_started"}
        self.reused = {e.stage: e.why for e in watcher.events if e.event == "stage_reused"}


@pytest.fixture(autouse=True)
def locks_of_this_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks between drivers lie in the temporary folder: other runs on this host are no part of a test."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A fresh project that kassay.paths points to."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    return Project(tmp_path)


@pytest.fixture(scope="session")
def judged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run that real stages judged; tests only read it."""
    from tests.audit.fabricated import fabricate

    return fabricate(tmp_path_factory.mktemp("results"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the configuration layer reads."""
    for name in ("Kconfig", "Makefile"):
        shutil.copy(paths.ROOT / name, tmp_path)
    for name in ("kassay", "defconfigs", "workflows", "stages"):
        shutil.copytree(paths.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "data").symlink_to(paths.ROOT / "data")
    return tmp_path
