"""Who has a run: one driver, named to the second; what a dead one left is taken over and noted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import lock, paths
from kassay.errors import RunError


def test_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    with lock.owned(tmp_path, "t", []) as before:
        assert before is None
        owner = lock.owner_of(tmp_path)
        assert owner is not None and owner.alive() and owner.token == "t"
        said = f"another driver has this run: pid {os.getpid()} on {os.uname().nodename} since 20"
        with pytest.raises(RunError, match=said), lock.owned(tmp_path, "u", []):
            pass
    assert not (tmp_path / paths.OWNER).exists()


def test_what_a_dead_driver_left_is_taken_over(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from kassay import lock\n"
        "mine = lock.owned(Path(sys.argv[1]), 'dead', []); mine.__enter__(); os.kill(os.getpid(), 9)\n"
    )
    top = str(Path(__file__).resolve().parent.parent)
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": top}, check=False)
    with lock.owned(tmp_path, "t", []) as before:
        assert before is not None and before.token == "dead" and not before.alive()


def test_a_pid_that_is_somebody_elses_now_is_not_its_owner(tmp_path: Path) -> None:
    with lock.owned(tmp_path, "t", []):
        told = json.loads((tmp_path / paths.OWNER).read_bytes())
    told["started"] -= 1
    (tmp_path / paths.OWNER).write_text(json.dumps(told))
    owner = lock.owner_of(tmp_path)
    assert owner is not None and owner.pid == os.getpid() and not owner.alive()
    with lock.owned(tmp_path, "u", []) as before:
        assert before == owner


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"pid": 1}', '{"pid": 1, "host": "h"'])
def test_an_owner_file_that_cannot_be_read_stops_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / paths.OWNER).write_text(text)
    with lock.owned(tmp_path, "t", []) as before:
        assert before is None


def test_a_zombie_is_not_alive() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert lock.started_at(child) == 0 and lock.started_at(os.getpid()) > 0
    os.waitpid(child, 0)
