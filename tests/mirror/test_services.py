"""The real wandb and trackio: each event arrives exactly once, offline touches no network, no secret is left."""

import json
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from kassay.mirror import launch, request
from kassay.mirror import start as driver
from kassay.mirror.rows import seconds
from kassay.mirror.start import resend
from tests.conftest import Project
from tests.mirror.conftest import ENDED, Mirrored, events, health, holding, processes_of, same_events, settings, soon
from tests.mirror.server import Server

KEY = "0123456789abcdef" * 2 + "01234567"  # the client wants 40 characters
TOKENS = {
    "WANDB_API_KEY": KEY,
    "HF_TOKEN": "hf_plantedtoken",
    "HTTPS_PROXY": "http://user:plantedproxy@127.0.0.1:9",
    "AWS_SECRET_ACCESS_KEY": "plantedaws",
    "TRACKIO_WRITE_TOKEN": "plantedwritetoken",
}
SECRETS = [KEY, "hf_plantedtoken", "plantedproxy", "plantedaws", "plantedwritetoken"]


def secrets() -> list[str]:
    """What may stand in no file of a run; a host's name only if it is too long to be there by chance."""
    return [*SECRETS, *([platform.node()] if len(platform.node()) > 5 else [])]


def field(text: str) -> bytes:
    """A short text as W&B's log has it: its length, then itself."""
    return bytes([len(text)]) + text.encode()


def plant(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """Put tokens into the environment, and the server's address."""
    for name, value in {**TOKENS, "WANDB_BASE_URL": server.url}.items():
        monkeypatch.setenv(name, value)


def synced(real: Path, copy: Path, server: Server, scratch: Path) -> None:
    """Bring an offline copy to the server as W&B's own command does."""
    (python,) = [path for path in real.glob("[0-9a-f]*/bin/python") if (path.parent / "wandb").exists()]
    argv = [str(python), "-m", "wandb", "sync", "--include-synced", str(copy)]
    environment = {"HOME": str(scratch), "WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "PATH": ""}
    environment |= {"WANDB_ERROR_REPORTING": "false", "WANDB_CACHE_DIR": str(scratch)}
    done = subprocess.run(argv, env=environment, cwd=scratch, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wandb_offline(
    toy: Project, real: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, server)
    chosen = settings(WANDB=True)
    went = Mirrored(toy, chosen)
    home = went.directory / request.FOLDER / "wandb"
    assert (went.ended, health(went.directory)[-1].state) == (ENDED, "sent")
    (first,) = home.iterdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    kept = shutil.copytree(first, scratch / first.name)
    time.sleep(1.1)  # wandb names a folder by the second
    second = Mirrored(toy, chosen)
    assert second.directory == went.directory
    (copy,) = home.iterdir()
    assert copy.name != first.name and health(went.directory)[-1].events == len(events(went.directory))
    (again,) = resend(went.directory, chosen)
    assert again.state == "sent" and list(home.iterdir()) == [copy], "nothing new: the copy stays as it is"
    assert holding(went.directory, secrets()) == []
    assert field(platform.node()) not in next(copy.glob("*.wandb")).read_bytes(), "the host's name is in the copy"
    assert server.requests == [] and soon(lambda: processes_of(went.directory) == [])
    for one in (kept, copy):  # the first session's copy was brought there before, now the whole
        synced(real, one, server, scratch)
    assert same_events(went.directory, server.rows()) and len(server.rows()) == len(events(went.directory))
    row = next(row for _, row in server.rows() if row.get("stage") == "bad" and row["event"] == "stage_ended")
    assert (row["bad/loss"], row["bad/verdict"], row["bad/of/n"], row["outcome"]) == (0.25, "fails", 7, "rejected")
    assert "bad/prose" not in row and not any("gate says no" in text for text in server.bodies)
    assert json.loads(server.config)["run"]["value"] == went.directory.name


def test_offline_touches_no_network_even_if_it_is_there(
    toy: Project, real: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    went = Mirrored(toy, settings())
    (asked,) = request.asked(went.directory, settings(WANDB=True))
    (python,) = [path for path in real.glob("[0-9a-f]*/bin/python") if (path.parent / "wandb").exists()]
    path = asked.save()
    environment = {**launch.environment_for(asked, python), "PYTHONPATH": str(Path(launch.__file__).parents[2])}
    environment |= {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY}
    environment |= {name: server.url for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
    program = Path(launch.__file__).with_name("program.py")
    argv = [str(python), "-P", str(program), str(path)]
    done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr, server.requests) == (request.EXIT_SENT, b"", [])
    assert len(list((asked.folder / "wandb").iterdir())) == 1


def test_wandb_online(
    toy: Project, real: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, server)
    chosen = settings(WANDB=True, WANDB_MODE="online")
    went = Mirrored(toy, chosen)
    assert (went.ended, health(went.directory)[-1].reason) == (ENDED, "")
    assert same_events(went.directory, server.rows())
    (went.directory / request.FOLDER / "wandb.cursor.json").unlink()  # as if it had died before it could write it
    (again,) = resend(went.directory, chosen)
    assert (again.state, again.events) == ("sent", len(events(went.directory)))
    assert same_events(went.directory, server.rows()), "nothing twice"
    said = capfd.readouterr().err
    assert "monotonically" not in said and KEY not in said, "W&B's client had to drop rows, or told the key"
    kept = server.history[:]
    second = Mirrored(toy, chosen)
    assert second.directory == went.directory and same_events(went.directory, server.rows())
    assert server.history[: len(kept)] == kept and len(server.history) > len(kept), "only what was new was sent"
    assert [row["_timestamp"] for _, row in server.rows()] == [seconds(one["at"]) for one in events(went.directory)]
    assert holding(went.directory, secrets()) == []
    told = [json.loads(text)["variables"] for text in server.bodies if '"variables"' in text]
    assert {given.get("host") for given in told} <= {None, "withheld"}
    collected = [name for name in server.requests if "metadata" in name or "requirements" in name or "output" in name]
    assert collected == []


def test_trackio(toy: Project, real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKENS["HF_TOKEN"])
    chosen = settings(TRACKIO=True)
    went = Mirrored(toy, chosen)
    assert (went.ended, health(went.directory)[-1].state) == (ENDED, "sent")
    cursor = went.directory / request.FOLDER / "trackio.cursor.json"
    cursor.unlink()
    (again,) = resend(went.directory, chosen)
    assert (again.state, again.events) == ("sent", len(events(went.directory)))
    code = (
        "import json, sys\nfrom trackio.sqlite_storage import SQLiteStorage\n"
        "print(json.dumps([[row['step'], row] for row in SQLiteStorage.get_logs('toy', sys.argv[1])]))"
    )
    (python,) = [path for path in real.glob("[0-9a-f]*/bin/python") if (path.parent / "trackio").exists()]
    environment = {"TRACKIO_DIR": str(went.directory / request.FOLDER / "trackio"), "HOME": str(toy.root)}
    argv = [str(python), "-c", code, went.directory.name]
    read = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    rows = [(step, row) for step, row in json.loads(read.stdout.splitlines()[-1])]
    assert same_events(went.directory, rows)
    assert holding(went.directory, SECRETS) == []


TRACKIO_SERVER = """
import sys, trackio
trackio.show(open_browser=False, block_thread=False, host="127.0.0.1", server_port=int(sys.argv[1]))
sys.stdin.read()
"""


@pytest.fixture
def trackio_python(real: Path) -> Path:
    """The interpreter of the mirror's trackio."""
    (python,) = [path for path in real.glob("[0-9a-f]*/bin/python") if (path.parent / "trackio").exists()]
    return python


@pytest.fixture
def trackio_port(trackio_python: Path, tmp_path: Path) -> Iterator[int]:
    """A trackio server of its own on this machine: trackio's, with its write token."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = {"HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "server"), "HF_HUB_OFFLINE": "1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [str(trackio_python), "-c", TRACKIO_SERVER, str(port)],
        env={**home, "TRACKIO_WRITE_TOKEN": TOKENS["TRACKIO_WRITE_TOKEN"]},
        stdin=pipe,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert soon(lambda: answers(port)), "trackio's server does not answer"
        yield port
    finally:
        process.communicate()


def answers(port: int) -> bool:
    """Whether something listens."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def rows_at(port: int, run: str) -> list[tuple[int, dict[str, object]]]:
    """What a trackio server holds of a run."""
    asked = json.dumps({"args": [], "kwargs": {"project": "toy", "run": run}}).encode()
    typed = {"Content-Type": "application/json"}
    with urlopen(Request(f"http://127.0.0.1:{port}/api/get_logs", asked, typed)) as answer:
        return [(row["step"], row) for row in json.load(answer)["data"]]


def test_trackio_online(toy: Project, trackio_port: int, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, server)
    monkeypatch.delenv("HTTPS_PROXY")
    chosen = settings(TRACKIO=True, TRACKIO_MODE="online")
    with socket.create_server(("127.0.0.1", 0)) as deaf, monkeypatch.context() as short:
        short.setattr(driver, "FINISH_S", 2.0)
        monkeypatch.setenv("TRACKIO_SERVER_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        went = Mirrored(toy, chosen)  # the server accepts, and never says a word
    assert (went.ended, health(went.directory)[-1].state) == (ENDED, "hung")
    for url, token, said in (
        (f"http://127.0.0.1:{trackio_port}", "wrong", "HTTPStatusError in `raise_for_status`"),
        (
            "http://127.0.0.1:9",
            TOKENS["TRACKIO_WRITE_TOKEN"],
            "ConnectionError in `__init__` (trackio/remote_client.py:",
        ),
    ):
        monkeypatch.setenv("TRACKIO_SERVER_URL", url)
        monkeypatch.setenv("TRACKIO_WRITE_TOKEN", token)
        (told,) = resend(went.directory, chosen)
        assert (told.state, told.events) == ("failed", 0) and told.reason.startswith(said)
    monkeypatch.setenv("TRACKIO_SERVER_URL", f"http://127.0.0.1:{trackio_port}?write_token=plantedwritetoken")
    monkeypatch.setenv("TRACKIO_WRITE_TOKEN", TOKENS["TRACKIO_WRITE_TOKEN"])
    for _ in range(2):
        (told,) = resend(went.directory, chosen)
        assert (told.state, told.events, told.reason) == ("sent", len(events(went.directory)), "")
        assert same_events(went.directory, rows_at(trackio_port, went.directory.name))
        (went.directory / request.FOLDER / "trackio.cursor.json").unlink()  # as if it had died before it could write it
    assert Mirrored(toy, chosen).directory == went.directory, "a later session adds its events"
    assert same_events(went.directory, rows_at(trackio_port, went.directory.name))
    assert holding(went.directory, secrets()) == []
    monkeypatch.delenv("TRACKIO_SERVER_URL")
    (told,) = resend(went.directory, chosen)
    assert told.reason == "unmet: no TRACKIO_SERVER_URL in the environment, which TRACKIO_MODE=online needs"
