"""A server is waited for, told from a dead one, and always stopped."""

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from kassay.errors import RunError
from kassay.serving import process

FAKE = Path(__file__).with_name("fake.py")
IGNORING = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
SERVING = f"import sys; sys.path.insert(0, {str(FAKE.parents[2])!r}); from tests.serving.fake import Fake; "


def started(
    argv: list[str], port: int, log: Path, ready_timeout_s: float = 60.0, grace_s: float = 30.0
) -> AbstractContextManager[process.Server]:
    """A server in a context."""
    around = dict(os.environ)
    return process.running(
        argv, port=port, log=log, ready_timeout_s=ready_timeout_s, grace_s=grace_s, environment=around
    )


def gone(pid: int) -> bool:
    """Whether no process of that number lives."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_server_is_ready_and_then_gone(tmp_path: Path) -> None:
    port = process.free_port()
    with started([sys.executable, str(FAKE), "--port", str(port)], port, tmp_path / "log") as server:
        assert process.healthy(port) and os.getpgid(server.process.pid) == server.process.pid
    assert not process.healthy(port) and gone(server.process.pid)
    assert (server.died, server.stopped_by, server.process.returncode) == (False, "TERM", -signal.SIGTERM)


def test_one_that_ignores_term_is_killed_with_its_children(tmp_path: Path) -> None:
    port = process.free_port()
    code = f"{IGNORING}{SERVING}import subprocess; child = subprocess.Popen(['sleep', '60']); "
    code += f"print(child.pid, flush=True); Fake({port}, []).serve_forever()"
    with started([sys.executable, "-c", code], port, tmp_path / "log", grace_s=0.3) as server:
        child = int((tmp_path / "log").read_text().split()[0])
        assert not gone(child)
    assert (server.stopped_by, server.process.returncode) == ("KILL", -signal.SIGKILL)
    deadline = time.monotonic() + 30  # it was sent KILL, and dies when it is its turn to run
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gone(child)


def test_it_is_stopped_when_the_work_fails(tmp_path: Path) -> None:
    port = process.free_port()
    pids = []
    argv = [sys.executable, str(FAKE), "--port", str(port)]
    with pytest.raises(ZeroDivisionError), started(argv, port, tmp_path / "log") as server:
        pids.append(server.process.pid)
        raise ZeroDivisionError
    assert gone(pids[0])


def test_one_that_dies_is_told_from_one_that_was_stopped(tmp_path: Path) -> None:
    port = process.free_port()
    with started([sys.executable, str(FAKE), "--port", str(port)], port, tmp_path / "log") as server:
        os.kill(server.process.pid, signal.SIGKILL)
        while not process.ended(server.process):
            time.sleep(0.01)
    assert (server.died, server.stopped_by, server.process.returncode) == (True, "itself", -signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "said", "within_s"),
    [
        (["sleep", "600"], "not healthy within", 0.3),
        (["sh", "-c", "echo no such model >&2; exit 3"], "no such model", 60.0),
    ],
)
def test_one_that_never_is_ready(argv: list[str], said: str, within_s: float, tmp_path: Path) -> None:
    port = process.free_port()
    with pytest.raises(RunError, match=said), started(argv, port, tmp_path / "log", ready_timeout_s=within_s):
        raise AssertionError


def test_term_to_the_client_stops_the_server(tmp_path: Path) -> None:
    port = process.free_port()
    code = f"""
import os, sys, time
sys.path.insert(0, {str(FAKE.parents[2])!r})
from pathlib import Path
from kassay.serving import process
argv = [sys.executable, {str(FAKE)!r}, "--port", "{port}"]
with process.running(argv, port={port}, log=Path({str(tmp_path / "log")!r}), ready_timeout_s=60, grace_s=30,
                     environment=dict(os.environ)) as server:
    print(server.process.pid, flush=True)
    time.sleep(60)
"""
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    server = int(client.stdout.readline())
    client.terminate()
    assert client.wait(60) == 128 + signal.SIGTERM
    client.stdout.close()
    assert gone(server) and not process.healthy(port)


def test_words_of_a_command() -> None:
    values = {"port": "8000", "model": "/a b/c", "recipe": "native"}
    assert process.words_of("serve {model} --port={port} 'x {recipe}'", values) == [
        "serve",
        "/a b/c",
        "--port=8000",
        "x native",
    ]
    for command in ("serve {model}", "", "serve 'x {port}"):
        with pytest.raises(RunError):
            process.words_of(command, values)
