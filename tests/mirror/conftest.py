"""Runs with mirrors: as the command line starts them, with the real services or with a wandb that misbehaves."""

import json
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kassay import paths
from kassay.config.setting import Setting
from kassay.errors import SourceError
from kassay.kinds.mirror import MirrorRecord
from kassay.mirror import request
from kassay.mirror import start as driver
from kassay.mirror.start import start
from kassay.record import read_kind, read_lines
from kassay.source import environment
from tests.conftest import Project, Silent
from tests.mirror.server import Server

STAGES: dict[str, Any] = {"a": {"program": "ok"}, "bad": {"program": "bad"}, "b": {"program": "ok", "after": "all"}}
ENDED = (3, {"a": "passed", "bad": "rejected", "b": "passed"})
BAD = '    return stage.rejected("gate says no", loss=0.25, verdict="fails", of={"n": 7}, nothing=None, prose="x y")'

# A wandb with a server of its own (one file) that keeps rows in order. A second file says how it behaves.
FAKE = """
import json, os, time
__version__ = "0.31.0"
SERVER, MOOD = {server!r}, {mood!r}
def mood(when):
    asked = open(MOOD).read()
    if asked == "hang in " + when: time.sleep(600)
    if asked == "spin in " + when:
        while True: pass
    if asked == "die in " + when: os._exit(7)
    if asked == "raise in " + when: raise RuntimeError("no: " + os.environ["WANDB_API_KEY"])
def rows():
    return [json.loads(line) for line in open(SERVER)] if os.path.exists(SERVER) else []
class Settings:
    def __init__(self, **given): self.given = given
class Run:
    def __init__(self, given): self.id, self.starting_step, self.calls = given["id"], len(rows()), 0
    def log(self, values, step, commit):
        self.calls += 1
        mood("log %d" % self.calls)
        with open(SERVER, "a") as stream: stream.write(json.dumps([step, values]) + "\\n")
    def finish(self, exit_code):
        mood("finish")
def init(**given):
    mood("init")
    return Run(given)
"""


def settings(**given: Any) -> dict[str, Setting]:
    """The mirrors' symbols, all off but for what is given."""
    known = {
        "OFFLINE": False,
        "WANDB": False,
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "toy",
        "WANDB_ENTITY": "",
        "TRACKIO": False,
        "TRACKIO_MODE": "offline",
        "TRACKIO_PROJECT": "toy",
    }
    return {name: Setting(value=value, origin="user", where="") for name, value in {**known, **given}.items()}


class Mirrored:
    """A run that was mirrored to its end, as `kassay run` does it."""

    def __init__(self, project: Project, chosen: dict[str, Setting]) -> None:
        run = project.open(STAGES)
        self.directory = run.directory
        mirror = start(run.directory, chosen)
        self.loop_s = time.monotonic()
        try:
            self.code = run.go(Silent())
        finally:
            self.loop_s = time.monotonic() - self.loop_s
            if mirror is not None:
                mirror.finish()
        self.ended = (self.code, {name: outcome.word for name, outcome in run.outcomes.items()})
        self.pids = [] if mirror is None else [follower.process.pid for follower in mirror.followers]


def health(run_dir: Path) -> list[MirrorRecord]:
    """The health records of a run."""
    return read_kind(run_dir / request.RECORDS, MirrorRecord)


def events(run_dir: Path) -> list[dict[str, Any]]:
    """The events of a run."""
    return list(read_lines(run_dir / paths.EVENTS))


def same_events(run_dir: Path, sent: list[tuple[int, dict[str, Any]]]) -> bool:
    """Whether what was sent is every event of the run exactly once, in order."""
    told = [(number, event["event"], event["stage"]) for number, event in enumerate(events(run_dir))]
    return told == [(number, row["event"], row.get("stage")) for number, row in sent]


def holding(run_dir: Path, words: list[str]) -> list[str]:
    """The files of a run that hold one of the words, in content or name."""
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert len(files) > 10, "a bug of the test: there is nothing to search"
    found = [f"{path}: {word}" for path in files for word in words if word.encode() in path.read_bytes()]
    return found + [f"{path}: {word}" for path in files for word in words if word in path.name]


def processes_of(run_dir: Path) -> list[psutil.Process]:
    """Processes that were started for the mirrors of a run."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(run_dir / request.FOLDER) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue  # it has just ended
    return found


def soon(true: Callable[[], bool], within_s: float = 60.0) -> bool:
    """Whether something comes true within a time."""
    deadline = time.monotonic() + within_s
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    return true()


def wheel(folder: Path, name: str, version: str, text: str) -> None:
    """A package of one module, written by hand."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        for file, content in files.items():
            made.writestr(file, content)


class FakeWandb:
    """The wandb that the mirror's environment is made with, and what its server was sent."""

    def __init__(self, folder: Path) -> None:
        self.server, self.mood, self.build = folder / "server.jsonl", folder / "mood", folder / "build"
        self.wheels, self.cache = folder / "wheels", folder / "cache"
        self.wheels.mkdir()
        text = FAKE.replace("{server!r}", repr(str(self.server))).replace("{mood!r}", repr(str(self.mood)))
        wheel(self.wheels, "wandb", "0.31.0", text)

    def sent(self) -> list[tuple[int, dict[str, Any]]]:
        """Number and values of each row, in the order of arrival."""
        lines = self.server.read_text().splitlines() if self.server.exists() else []
        return [(number, values) for number, values in map(json.loads, lines)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror has a minute to finish: what is well is not called hung as the machine is busy. A test may set less."""
    monkeypatch.setattr(driver, "FINISH_S", 60.0)


@pytest.fixture
def toy(project: Project) -> Project:
    """A project of which one stage says no."""
    project.program("bad", BAD)
    return project


@pytest.fixture(scope="session")
def one_fake(tmp_path_factory: pytest.TempPathFactory) -> FakeWandb:
    """The one such wandb; its environment is made by the first mirror that needs it."""
    return FakeWandb(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def fake(one_fake: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    """A wandb of our own, well and with an empty server; uv finds nothing else."""
    one_fake.server.unlink(missing_ok=True)
    one_fake.mood.write_text("well")
    monkeypatch.setattr(paths, "build", lambda: one_fake.build)
    monkeypatch.setenv("UV_FIND_LINKS", str(one_fake.wheels))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(one_fake.cache))
    monkeypatch.setenv("WANDB_API_KEY", "planted-key-0123456789")
    return one_fake


@pytest.fixture(scope="session")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder with the real environments, made once, as the mirror makes them."""
    build = tmp_path_factory.mktemp("build")
    (build / request.FOLDER).mkdir()
    for name, pins in request.PINS.items():
        try:
            environment.made(pins, build / request.FOLDER, build / request.FOLDER / f"{name}.log")
        except (SourceError, OSError) as error:
            pytest.skip(f"the package index cannot be reached: {error}")
    return build


@pytest.fixture
def real(stacks: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real services; their environments are there already."""
    monkeypatch.setattr(paths, "build", lambda: stacks)
    return stacks / request.FOLDER


@pytest.fixture
def server() -> Iterator[Server]:
    """A W&B server on this machine."""
    with Server() as running:
        yield running
