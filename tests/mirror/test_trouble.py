"""A mirror that misbehaves, is absent or dies: the run ends as without it, and a record says what happened."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import kassay
from kassay import outcome, paths
from kassay.errors import ConfigError, RecordError, RunError
from kassay.kinds.mirror import MirrorRecord
from kassay.mirror import cursor, program, request
from kassay.mirror import start as driver
from kassay.mirror.start import resend
from tests.conftest import Project
from tests.mirror.conftest import (
    ENDED,
    STAGES,
    FakeWandb,
    Mirrored,
    events,
    health,
    holding,
    processes_of,
    same_events,
    settings,
    soon,
)
from tests.mirror.server import Server

ONLINE = {"WANDB": True, "WANDB_MODE": "online"}
TOP = str(Path(kassay.__file__).resolve().parent.parent)


def test_without_a_mirror_nothing_of_it_is_there(toy: Project) -> None:
    went = Mirrored(toy, settings())
    assert (went.ended, went.pids) == (ENDED, [])
    assert not (went.directory / request.RECORDS).exists() and not (went.directory / request.FOLDER).exists()
    with pytest.raises(ConfigError, match="no mirror is switched on"):
        resend(went.directory, settings())
    with pytest.raises(RunError, match="no run with events"):
        resend(went.directory.parent, settings(WANDB=True))


@pytest.mark.parametrize(
    ("mood", "state", "reason"),
    [
        ("well", "sent", ""),
        ("hang in init", "hung", "not finished 2 s after the run"),
        ("spin in log 2", "hung", "not finished 2 s after the run"),
        ("hang in finish", "hung", "not finished 2 s after the run"),
        ("die in log 2", "failed", "ended with exit status 7 without a word"),
        ("raise in init", "failed", "RuntimeError in `mood` (wandb.py:"),
        ("raise in log 2", "failed", "RuntimeError in `mood` (wandb.py:"),
        ("raise in finish", "failed", "RuntimeError in `mood` (wandb.py:"),
    ],
)
def test_the_run_ends_as_without_it_and_what_lacks_is_sent_later(
    toy: Project, fake: FakeWandb, monkeypatch: pytest.MonkeyPatch, mood: str, state: str, reason: str
) -> None:
    if state == "hung":
        monkeypatch.setattr(driver, "FINISH_S", 2.0)
    fake.mood.write_text(mood)
    before = time.monotonic()
    went = Mirrored(toy, settings(**ONLINE))
    assert went.ended == ENDED
    assert time.monotonic() - before < went.loop_s + driver.FINISH_S + 20, "longer than the bound"
    assert processes_of(went.directory) == []
    first, last = health(went.directory)
    assert (first.state, first.events, first.reason) == ("started", 0, "")
    assert last.state == state and last.reason.startswith(reason) and bool(last.reason) == bool(reason)
    assert last.events == (len(events(went.directory)) if state == "sent" else 0)
    saved = {name: outcome.load(paths.stage_dir(went.directory, name)) for name in STAGES}
    assert {name: one.word for name, one in saved.items() if one} == ENDED[1]
    arrived = len(fake.sent())
    fake.mood.write_text("well")
    (again,) = resend(went.directory, settings(**ONLINE))
    assert (again.state, again.events) == ("sent", len(events(went.directory)))
    assert same_events(went.directory, fake.sent()), f"{arrived} had arrived before"
    assert holding(went.directory, ["planted-key"]) == []


def test_a_crash_between_sending_and_the_cursor_doubles_nothing(toy: Project, fake: FakeWandb) -> None:
    fake.mood.write_text("die in finish")
    went = Mirrored(toy, settings(**ONLINE))
    asked = request.load(went.directory / request.FOLDER / "wandb.request.json")
    assert same_events(went.directory, fake.sent()) and cursor.load(asked).events == 0
    fake.mood.write_text("well")
    for _ in range(2):
        (last,) = resend(went.directory, settings(**ONLINE))
        assert (last.state, cursor.load(asked).events) == ("sent", len(events(went.directory)))
        assert same_events(went.directory, fake.sent())


def test_events_of_a_later_session_are_added(toy: Project, fake: FakeWandb) -> None:
    first = Mirrored(toy, settings(**ONLINE))
    count = len(events(first.directory))
    second = Mirrored(toy, settings(**ONLINE))
    assert second.directory == first.directory and len(events(second.directory)) > count
    assert same_events(second.directory, fake.sent())


def test_what_the_host_lacks_is_recorded(toy: Project, fake: FakeWandb, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("WANDB_API_KEY")
        went = Mirrored(toy, settings(**ONLINE))
        assert went.ended == ENDED and health(went.directory)[-1].reason.startswith("unmet: no WANDB_API_KEY in")
    monkeypatch.setattr(paths, "build", lambda: toy.root / "build")
    monkeypatch.setenv("UV_FIND_LINKS", str(toy.root))
    monkeypatch.setenv("UV_CACHE_DIR", str(toy.root / "cache"))
    went = Mirrored(toy, settings(**ONLINE))
    assert went.ended == ENDED
    last = health(went.directory)[-1]
    assert (last.state, last.events) == ("absent", 0)
    assert last.reason.startswith("unmet: no environment with `wandb==0.31.0` (SourceError)")
    assert "wandb" in (toy.root / "build" / "mirror" / "wandb.log").read_text() and fake.sent() == []


@pytest.mark.parametrize("offline", [True, False])
def test_offline_the_index_is_not_asked(
    toy: Project, fake: FakeWandb, server: Server, monkeypatch: pytest.MonkeyPatch, offline: bool
) -> None:
    monkeypatch.setattr(paths, "build", lambda: toy.root / "build")
    for name in ("UV_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_FIND_LINKS", str(toy.root))
    monkeypatch.setenv("UV_DEFAULT_INDEX", server.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(toy.root / "cache"))
    went = Mirrored(toy, settings(WANDB=True, OFFLINE=offline))
    assert (went.ended, health(went.directory)[-1].state) == (ENDED, "absent")
    assert (server.requests == []) is offline


def test_a_mirror_that_cannot_be_started_is_recorded(toy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    run = toy.open(STAGES)
    assert driver.start(run.directory, settings(WANDB=True)) is None
    last = health(run.directory)[-1]
    assert (last.state, last.reason) == ("failed", "could not be started: FileNotFoundError")


def test_a_run_whose_driver_was_killed_is_mirrored_to_its_last_event(toy: Project, fake: FakeWandb) -> None:
    went = Mirrored(toy, settings())
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom kassay import paths\nfrom kassay.mirror.start import start\n"
        "from tests.mirror.conftest import settings\npaths.build = lambda: Path(sys.argv[2])\n"
        "start(Path(sys.argv[1]), settings(WANDB=True, WANDB_MODE='online'))\nos.kill(os.getpid(), 9)\n"
    )
    argv = [sys.executable, "-c", script, str(went.directory), str(fake.build)]
    assert subprocess.run(argv, cwd=TOP, check=False).returncode == -signal.SIGKILL
    assert soon(lambda: health(went.directory)[-1].state == "sent")
    assert same_events(went.directory, fake.sent()) and soon(lambda: processes_of(went.directory) == [])


def by_hand(fake: FakeWandb, change: str, run_dir: Path) -> int:
    """The exit status of the mirror's program with changed constants, under the fake's interpreter."""
    (python,) = (fake.build / "mirror").glob("[0-9a-f]*/bin/python")
    code = f"from kassay.mirror import program\n{change}\nprogram.main()"
    argv = [str(python), "-P", "-c", code, str(run_dir / request.FOLDER / "wandb.request.json")]
    environment = {"PYTHONPATH": TOP, "WANDB_API_KEY": "x"}
    return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, check=False, timeout=120).returncode


def test_a_call_that_does_not_return_ends_the_program(toy: Project, fake: FakeWandb) -> None:
    went = Mirrored(toy, settings(**ONLINE))
    fake.mood.write_text("spin in init")
    assert by_hand(fake, "program.LIMIT_S = 1", went.directory) == -signal.SIGALRM


def test_one_process_at_a_time_mirrors_a_run(toy: Project, fake: FakeWandb) -> None:
    went = Mirrored(toy, settings(**ONLINE))
    asked = request.load(went.directory / request.FOLDER / "wandb.request.json")
    with program.held(asked):
        assert by_hand(fake, "program.LOCK_WAIT_S = 0.0", went.directory) == request.EXIT_TOLD
    assert health(went.directory)[-1].reason.startswith("Busy in `held` (program.py:")
    assert by_hand(fake, "program.LOCK_WAIT_S = 0.0", went.directory) == request.EXIT_SENT


def test_the_program_needs_no_package() -> None:
    code = "import sys, kassay.mirror.program; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    argv = [sys.executable, "-S", "-P", "-c", code]
    done = subprocess.run(argv, env={"PYTHONPATH": TOP}, capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name not in sys.stdlib_module_names} == {"__main__", "kassay"}


def test_a_health_record_is_checked() -> None:
    good = {"mirror": "wandb", "at": "2026-01-01T00:00:00.000Z", "state": "sent", "events": 1, "reason": ""}
    assert MirrorRecord(**good).state == "sent"
    for change in ({"state": "lost"}, {"events": -1}, {"reason": "x"}, {"state": "failed"}):
        with pytest.raises(RecordError):
            MirrorRecord(**{**good, **change})
