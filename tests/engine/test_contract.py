"""What every engine does alike: the fake one, the local one, and Slurm's on a real cluster of this machine."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kassay import paths
from kassay.engine import Ended, Engine, Job
from kassay.engine.local import LocalEngine
from tests.engine.fake import FakeEngine, job, running, start, term_put_off, until


@pytest.fixture(params=["fake", "local", "slurm"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param == "slurm":
        return request.getfixturevalue("mini").engine()
    return FakeEngine() if request.param == "fake" else LocalEngine(cpus=8, memory_gib=4)


def all_ended(engine: Engine, count: int) -> dict[str, Ended]:
    """Poll until so many jobs have ended; none is told twice."""
    ended: list[Ended] = []
    deadline = time.monotonic() + 180
    while len(ended) < count:
        assert time.monotonic() < deadline, f"only {ended} ended"
        ended += engine.poll()
    assert len({end.stage for end in ended}) == len(ended) == count
    return {end.stage: end for end in ended}


def run(engine: Engine, job: Job) -> Ended:
    """The end of one job."""
    start(engine, job)
    return all_ended(engine, 1)[job.stage]


def test_how_jobs_end_is_told_once_and_by_their_names(engine: Engine, tmp_path: Path) -> None:
    codes = {"a": 0, "b": 3, "c": 4, "d": 1, "e": 77}
    for stage, code in codes.items():
        start(engine, job(tmp_path, stage, exit_code=code))
    start(engine, job(tmp_path, "killed", signal=9))
    start(engine, replace(job(tmp_path, "lost"), argv=("/nowhere/bin/python", "x")))
    ended = all_ended(engine, 7)
    assert {stage: end.exit_code for stage, end in ended.items()} == {**codes, "killed": -9, "lost": 127}
    assert not any(end.timed_out or end.fault for end in ended.values())
    assert "/nowhere/bin/python" in (tmp_path / "stages" / "lost" / paths.STDERR).read_text()


def test_what_a_job_writes_is_there_when_it_has_ended(engine: Engine, tmp_path: Path) -> None:
    asked = job(tmp_path, say="$(id) `id` 'ü\"\n", exit_code=0)
    run(engine, asked)
    assert asked.directory.is_dir() and not asked.directory.is_symlink()
    assert (asked.directory / paths.STDOUT).read_text() == "$(id) `id` 'ü\"\n"
    assert (asked.directory / paths.STDERR).read_text() == "$(id) `id` 'ü\"\n"
    assert json.loads((asked.directory / "told.json").read_text()) == {}
    assert [path.name for path in asked.directory.parent.iterdir()] == [asked.stage]


def test_a_job_has_the_drivers_environment_and_its_own_on_top(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nasty = "a  b\n$(id);`id`'\"\\ é"
    for name, text in {"KASSAY_NASTY": nasty, "KASSAY_ERRAND": "of the driver", "GIT_DIR": "/nowhere"}.items():
        monkeypatch.setenv(name, text)
    asked = job(tmp_path, tell=["KASSAY_NASTY", "KASSAY_ERRAND", "GIT_DIR"])
    assert run(engine, asked).exit_code == 0
    told = json.loads((asked.directory / "told.json").read_text())
    assert told == {"KASSAY_NASTY": nasty, "KASSAY_ERRAND": "of the job", "GIT_DIR": None}


def test_an_exclusive_job_is_alone(engine: Engine, tmp_path: Path) -> None:
    alone = job(tmp_path, "alone", exclusive=True, seconds=1.0)
    beside = job(tmp_path, "beside", seconds=1.0)
    assert engine.grant(alone) and engine.grant(beside)
    start(engine, beside)
    assert engine.grant(replace(beside, stage="third")) and not engine.grant(alone)
    all_ended(engine, 1)
    start(engine, alone)
    assert not engine.grant(beside)
    assert all_ended(engine, 1)["alone"].exit_code == 0
    assert engine.grant(beside)


def test_a_job_past_its_time_is_ended_and_told(engine: Engine, tmp_path: Path) -> None:
    ended = run(engine, job(tmp_path, seconds=100.0, timeout_s=1.0))
    assert ended.timed_out and ended.exit_code == -15


def test_cancel_ends_all_and_leaves_plain_directories(engine: Engine, tmp_path: Path) -> None:
    asked = [job(tmp_path, stage, seconds=100.0, tell=["PATH"]) for stage in ("a", "b")]
    for each in asked:
        start(engine, each)
    engine.poll()
    engine.cancel()
    for each in asked:
        assert each.directory.is_dir() and not each.directory.is_symlink() and not engine.holds(each.directory)
        engine.release(each.directory)
    again = job(tmp_path, "c", exit_code=5)
    assert engine.grant(replace(again, exclusive=True)), "nothing runs any more"
    assert run(engine, again).exit_code == 5, "the engine can be used again"


def test_no_process_of_a_job_is_left(engine: Engine, tmp_path: Path) -> None:
    if isinstance(engine, FakeEngine):
        pytest.skip("the fake starts none")
    done, slow, late = (
        job(tmp_path, stage, spawn=True, seconds=seconds, timeout_s=timeout_s, deaf=stage == "late")
        for stage, seconds, timeout_s in (("done", 0.0, 60.0), ("slow", 600.0, 600.0), ("late", 600.0, 4.0))
    )
    for each in (done, slow):
        start(engine, each)
    with term_put_off():
        start(engine, late)
    pids = slow.directory / "pids"
    ended = all_ended(engine, 2)
    assert ended["done"].exit_code == 0 and ended["late"].timed_out
    until(lambda: pids.exists() and pids.read_text() != "")
    own = [int(word) for word in pids.read_text().split()]
    assert all(map(running, own))
    engine.cancel()
    left = [int(word) for each in (done, slow, late) for word in (each.directory / "pids").read_text().split()]
    assert not any(map(running, left))


def test_the_interpreter_is_the_one_that_was_asked_for(engine: Engine, tmp_path: Path) -> None:
    """The engine starts what stands in argv and nothing that PATH would give."""
    asked = replace(job(tmp_path, exit_code=6), environment={"PATH": "/nowhere"})
    assert asked.argv[0] == sys.executable and run(engine, asked).exit_code == 6
