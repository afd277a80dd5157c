"""Stacks: attested by a fresh interpreter, never mistaken when half made, a user's own left untouched."""

import os
import platform
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from kassay.errors import SourceError
from kassay.source import environment

PINS = {"requirements": [f"numpy=={version('numpy')}"], "modules": ["numpy"]}


def test_an_existing_environment_is_attested(tmp_path: Path) -> None:
    stack, foundations = environment.existing(sys.executable, PINS)
    assert [path.parent.name for path in foundations] == [f"numpy-{version('numpy')}.dist-info"]
    assert stack["modules"] == {"numpy": version("numpy")} and stack["python_version"] == platform.python_version()
    assert f"numpy=={version('numpy')}" in stack["lock"]


def test_a_wrong_version_a_missing_module_and_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the pin is 0\.0\.1"):
        environment.existing(sys.executable, {"requirements": ["numpy==0.0.1"], "modules": ["numpy"]})
    with pytest.raises(SourceError, match="cannot be imported"):
        environment.existing(sys.executable, {"requirements": [], "modules": ["no_such_module"]})
    with pytest.raises(SourceError, match=r"`absent-thing` is absent, the pin is 1"):
        environment.existing(sys.executable, {"requirements": ["absent-thing==1"], "modules": []})
    with pytest.raises(SourceError, match="`numpy>=1` is no exact pin"):
        environment.existing(sys.executable, {"requirements": ["numpy>=1"], "modules": []})
    (tmp_path / "text").write_text("#!/bin/sh\n")
    for path in (tmp_path / "python", tmp_path, tmp_path / "text", "python3"):
        with pytest.raises(SourceError, match="no executable file"):
            environment.existing(str(path), PINS)


def test_a_pin_is_compared_by_its_distribution_not_its_module() -> None:
    """The module of ml-dtypes is ml_dtypes, that of pyyaml is yaml."""
    stack, _ = environment.existing(
        sys.executable, {"requirements": [f"PyYAML=={version('pyyaml')}"], "modules": ["yaml", "ml_dtypes", "json"]}
    )
    assert stack["modules"] == {"yaml": version("pyyaml"), "ml_dtypes": version("ml-dtypes"), "json": "2.0.9"}
    with pytest.raises(SourceError, match=r"`ml_dtypes` is .*, the pin is 0\.0\.1"):
        environment.existing(sys.executable, {"requirements": ["ml_dtypes==0.0.1"], "modules": ["ml_dtypes"]})


def wheel(folder: Path, number: str, who: str) -> None:
    """A tiny wheel, written by hand: no network, no build."""
    name, info = f"fakeinfer-{number}-py3-none-any.whl", f"fakeinfer-{number}.dist-info"
    files = {
        "fakeinfer.py": f"WHO = {who!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: FakeInfer\nVersion: {number}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / name, "w") as made:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            made.writestr(file, text)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two versions of a package, and uv told to look nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "0.0.1", "fork")
    wheel(folder, "0.0.2", "pypi")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def test_a_stack_is_made_attested_and_found_again(wheels: Path, tmp_path: Path) -> None:
    pins = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    stack, foundations = environment.made(pins, tmp_path / "stacks", tmp_path / "log")
    assert stack["lock"] == ["fakeinfer==0.0.1"] and stack["modules"] == {"fakeinfer": "0.0.1"}
    assert foundations == [Path(stack["python"]).parent.parent / "attested.json"] and foundations[0].is_file()
    who = subprocess.run(
        [stack["python"], "-c", "import fakeinfer; print(fakeinfer.WHO)"], capture_output=True, text=True, check=True
    )
    assert who.stdout == "fork\n"
    (tmp_path / "log").unlink()
    assert environment.made(pins, tmp_path / "stacks", tmp_path / "log") == (stack, foundations)
    assert not (tmp_path / "log").exists(), "nothing was installed again"
    other, _ = environment.made({**pins, "requirements": ["fakeinfer==0.0.2"]}, tmp_path / "stacks", tmp_path / "log")
    assert other["key"] != stack["key"] and other["modules"] == {"fakeinfer": "0.0.2"}


def test_a_killed_build_is_not_taken_for_a_finished_one(wheels: Path, tmp_path: Path) -> None:
    """The process is killed between the last package and the rename."""
    script = (
        "import os, sys; from pathlib import Path; from kassay.source import environment\n"
        "def killed(*a): os.kill(os.getpid(), 9)\nenvironment.attest = killed\n"
        'pins = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}\n'
        "environment.made(pins, Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    top = Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-c", script, str(tmp_path / "stacks"), str(tmp_path / "log")]
    assert subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(top)}, check=False).returncode == -9
    (left,) = (tmp_path / "stacks").glob(".*.making-*")
    assert (left / "bin" / "python").exists()
    pins = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    stack, _ = environment.made(pins, tmp_path / "stacks", tmp_path / "log")
    assert stack["modules"] == {"fakeinfer": "0.0.1"} and not list((tmp_path / "stacks").glob(".*.making-*"))


def test_the_key_depends_on_the_pins() -> None:
    other = {**PINS, "requirements": ["numpy==1.0"]}
    assert environment.stack_key(PINS) == environment.stack_key(dict(PINS)) != environment.stack_key(other)


def test_a_half_made_stack_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def install(requirements: list[str], home: Path, log: Path, offline: bool) -> None:
        made.append(home)
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "install", install)
    key = environment.stack_key(PINS)
    (tmp_path / key / "bin").mkdir(parents=True)  # what a killed rename or an older layout could leave
    (tmp_path / f".{key}.making-0123" / "bin").mkdir(parents=True)
    monkeypatch.setattr(environment, "attest", lambda python, pins: ({"modules": {}}, []))
    first, _ = environment.made(PINS, tmp_path, tmp_path / "log")
    assert len(made) == 1 and (tmp_path / key / environment.ATTESTED).is_file()
    assert environment.made(PINS, tmp_path, tmp_path / "log")[0] == first and len(made) == 1


def test_offline_uv_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache of nothing, what is not in a find-links folder is said at once, whatever the network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "0.0.1", "fork")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_OFFLINE", raising=False)
    environment.install(["fakeinfer==0.0.1"], tmp_path / "home", tmp_path / "log", offline=True)
    with pytest.raises(SourceError) as caught:
        environment.install(["jsonlines==4.0.0"], tmp_path / "other", tmp_path / "log", offline=True)
    assert "network was disabled" in " ".join(str(caught.value).split())


def test_what_uv_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", "")
    with pytest.raises(SourceError) as caught:
        environment.install(["no-such-distribution==1.0"], tmp_path / "home", tmp_path / "log")
    assert "`uv pip` ended with" in str(caught.value) and "no-such-distribution" in str(caught.value)
