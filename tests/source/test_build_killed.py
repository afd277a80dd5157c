"""Builds that were killed, doubled or damaged: the next one completes and is right."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.source.fork import Fork, answer, made, pins_of, run_killed


def test_a_killed_wheel_build_is_done_again_and_right(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    """kill -9 while the source's own backend runs."""
    infer = pair[0]
    source = infer.commit(3)
    infer.hold.mkdir()
    builder = start(pins_of(source), tmp_path)
    wait_for(infer.hold / "building")
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    shutil.rmtree(infer.hold)
    (left,) = (tmp_path / "wheels").glob(".*.making-*")
    stack = made(pins_of(source), tmp_path)
    assert answer(stack["python"], "fakeinfer") == (source["commit"], 3)
    assert not left.exists() and not list(tmp_path.glob("*/.*.making-*"))


BUILD = (
    "import json; from pathlib import Path; from kassay.source import environment\n"
    "build = Path(sys.argv[2]); pins = json.loads(sys.argv[1])\n"
    "environment.made(pins, build / 'stacks', build / 'log')\n"
)


def start(pins: dict[str, Any], build: Path) -> subprocess.Popen[bytes]:
    """A builder in a process group of its own."""
    top = Path(__file__).resolve().parents[2]
    script = f"import sys; sys.path.insert(0, {str(top)!r})\n{BUILD}"
    return subprocess.Popen([sys.executable, "-c", script, json.dumps(pins), str(build)], start_new_session=True)


def wait_for(path: Path) -> None:
    """Until a file is there."""
    deadline = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


KILLED = {  # where the builder dies
    "while the environment is made": "from kassay.source import wheel\nwheel.made = die\n",
    "before the wheel's rename": "from kassay.source import place\nplace.publish = die\n",
    "between the wheels and their installation": "environment.install_wheels = die\n",
    "before the attestation": "environment.attest = die\n",
    "before the stack's rename": (
        "from kassay.source import place\npublish = place.publish\n"
        "place.publish = lambda a, b: die() if b.parent.name == 'stacks' else publish(a, b)\n"
    ),
}


@pytest.mark.parametrize("where", KILLED)
def test_a_killed_making_is_done_again_and_right(pair: tuple[Fork, Fork], tmp_path: Path, where: str) -> None:
    infer, llm = pair[0].commit(4), pair[1].commit(1)
    script = "import os; from kassay.source import environment\ndef die(*words): os.kill(os.getpid(), 9)\n"
    pins = pins_of(infer, llm)
    assert run_killed(script + KILLED[where] + BUILD, json.dumps(pins), str(tmp_path), cwd=tmp_path) == -9
    assert list(tmp_path.glob("*/.*.making-*")) and not list((tmp_path / "stacks").glob("[!.]*"))
    stack = made(pins, tmp_path)
    assert answer(stack["python"], "fakeinfer") == (infer["commit"], 4)
    assert answer(stack["python"], "fakellm") == (llm["commit"], 1)
    assert not list((tmp_path / "stacks").glob(".*.making-*"))


def test_two_builds_of_one_key_wait_for_each_other(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    infer = pair[0]
    source = infer.commit(5)
    infer.hold.mkdir()
    builders = [start(pins_of(source), tmp_path) for _ in range(2)]
    wait_for(infer.hold / "building")
    time.sleep(0.3)
    assert len(list((tmp_path / "stacks").glob(".*.making-*"))) == 1
    shutil.rmtree(infer.hold)
    assert [builder.wait(180) for builder in builders] == [0, 0]
    assert (tmp_path / "log").read_text().count("$ uv build") == 1
    assert answer(made(pins_of(source), tmp_path)["python"], "fakeinfer") == (source["commit"], 5)


def test_a_wheel_that_lost_bytes_is_built_again(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    """What a power failure can leave: the record of a file, and not all of the file."""
    source = pair[0].commit(6)
    stack = made(pins_of(source), tmp_path)
    (wheel,) = (tmp_path / "wheels").glob("*/*.whl")
    os.truncate(wheel, 100)
    shutil.rmtree(tmp_path / "stacks" / stack["key"])
    assert answer(made(pins_of(source), tmp_path)["python"], "fakeinfer") == (source["commit"], 6)
