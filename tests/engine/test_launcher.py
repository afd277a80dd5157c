"""The launcher without Slurm: what it runs, what it leaves, what it ends."""

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from kassay.engine import attempt, launcher
from tests.engine.fake import ERRAND, running, term_put_off, until

ARGV = [sys.executable, "-I", "-S", launcher.__file__]


def launch(directory: Path, timeout_s: float = 60.0, **errand: Any) -> subprocess.Popen[str]:
    """The launcher on a directory whose job is an errand."""
    argv = [sys.executable, "-I", "-S", str(ERRAND), str(directory), json.dumps(errand)]
    (directory / launcher.JOB).write_text(json.dumps({"argv": argv, "timeout_s": timeout_s}))
    environment = {**os.environ, "SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1"}
    return subprocess.Popen([*ARGV, str(directory)], env=environment, stderr=subprocess.PIPE, text=True)


def told(directory: Path) -> dict[str, Any]:
    """What it left."""
    return dict(json.loads((directory / launcher.EXIT).read_text()))


@pytest.mark.parametrize(
    ("errand", "status", "exit_code"),
    [({}, 0, 0), ({"exit_code": 3}, 3, 3), ({"exit_code": 255}, 255, 255), ({"signal": 9}, 137, -9)],
)
def test_it_ends_as_the_stage_and_leaves_how(tmp_path: Path, errand: Any, status: int, exit_code: int) -> None:
    process = launch(tmp_path, **errand)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("", status)
    assert told(tmp_path) == {"job": "12", "node": "n1", "exit_code": exit_code, "timed_out": False}
    assert not list(tmp_path.glob(".*"))


def test_a_directory_is_run_in_once(tmp_path: Path) -> None:
    first = launch(tmp_path, exit_code=3)
    assert first.communicate(timeout=30)[1] == "" and first.returncode == 3
    before = (tmp_path / launcher.EXIT).read_bytes()
    again = launch(tmp_path, exit_code=0)
    assert "another job has claimed it" in again.communicate(timeout=30)[1] and again.returncode == launcher.NOT_HERE
    assert (tmp_path / launcher.EXIT).read_bytes() == before


def test_a_directory_that_is_gone_is_run_in_never(tmp_path: Path) -> None:
    done = subprocess.run([*ARGV, str(tmp_path / "gone")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "FileNotFoundError" in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("ended_by", ["itself", "time-out", "TERM", "TERM, deaf"])
def test_all_that_the_stage_started_is_gone_before_it_is_said(tmp_path: Path, ended_by: str) -> None:
    deaf = ended_by == "TERM, deaf"
    seconds, timeout_s = (0.0 if ended_by == "itself" else 600.0), (1.0 if ended_by == "time-out" else 600.0)
    with term_put_off() if ended_by == "time-out" else nullcontext():
        process = launch(tmp_path, timeout_s=timeout_s, spawn=True, seconds=seconds, deaf=deaf)
    until(lambda: (tmp_path / "told.json").exists())
    if ended_by.startswith("TERM"):
        process.send_signal(signal.SIGTERM)
    until((tmp_path / launcher.EXIT).exists)
    left = [pid for pid in map(int, (tmp_path / "pids").read_text().split()) if running(pid)]
    assert not left
    process.communicate(timeout=30)
    code = {"itself": 0, "TERM, deaf": -9}.get(ended_by, -15)
    assert told(tmp_path)["exit_code"] == code and told(tmp_path)["timed_out"] == (ended_by == "time-out")


def test_a_stage_ignores_no_signal_reads_nothing_and_has_its_own_session(tmp_path: Path) -> None:
    """Python ignores PIPE and XFSZ, a shell's background job INT and QUIT, and a program that they start would, too."""
    body = "grep SigIgn /proc/self/status; cat; cut -d' ' -f6 /proc/$$/stat; echo $$"
    (tmp_path / launcher.JOB).write_text(json.dumps({"argv": ["/bin/sh", "-c", body], "timeout_s": 60}))
    background = ["sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh", *ARGV, str(tmp_path)]
    done = subprocess.run(background, input="typed", capture_output=True, text=True, check=False)
    signals, session, own = done.stdout.splitlines()
    ignored = (
        int(signals.removeprefix("SigIgn:"), 16) & 0x7FFFFFFF
    )  # without the two that the C library keeps for itself
    assert (ignored, session) == (0, own) and done.returncode == 0


def test_what_cannot_be_read_yet_is_not_there_yet(tmp_path: Path) -> None:
    one = attempt.named(tmp_path / "x", "ab12")
    assert attempt.left_by(one) is None
    one.directory.mkdir()
    whole = json.dumps({"job": "12", "node": "n1", "exit_code": 3, "timed_out": False})
    for size in range(len(whole)):
        (one.directory / launcher.EXIT).write_text(whole[:size])
        assert attempt.left_by(one) is None
    (one.directory / launcher.EXIT).write_text(whole)
    assert attempt.left_by(one) == attempt.Left(job="12", node="n1", exit_code=3, timed_out=False)
