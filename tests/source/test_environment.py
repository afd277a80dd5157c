"""Stacks: attested by a fresh interpreter, never mistaken when half made, a user's own left untouched."""

import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kassay.errors import SourceError
from kassay.source import environment

PINS = {"requirements": [f"numpy=={version('numpy')}"], "modules": ["numpy"]}


def test_an_existing_environment_is_attested(tmp_path: Path) -> None:
    stack = environment.existing(sys.executable, PINS)
    assert stack["modules"] == {"numpy": version("numpy")} and stack["python_version"] == platform.python_version()
    assert f"numpy=={version('numpy')}" in stack["lock"]


def test_a_wrong_version_a_missing_module_and_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the pin is 0\.0\.1"):
        environment.existing(sys.executable, {"requirements": ["numpy==0.0.1"], "modules": ["numpy"]})
    with pytest.raises(SourceError, match="cannot be imported"):
        environment.existing(sys.executable, {"requirements": [], "modules": ["no_such_module"]})
    with pytest.raises(SourceError, match="no executable file"):
        environment.existing(str(tmp_path / "python"), PINS)


def test_the_key_depends_on_the_pins() -> None:
    other = {**PINS, "requirements": ["numpy==1.0"]}
    assert environment.stack_key(PINS) == environment.stack_key(dict(PINS)) != environment.stack_key(other)


def test_a_half_made_stack_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def install(requirements: list[str], home: Path, log: Path) -> None:
        made.append(home)
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "install", install)
    key = environment.stack_key(PINS)
    (tmp_path / key / "bin").mkdir(parents=True)  # what a killed rename or an older layout could leave
    (tmp_path / f".{key}.making-0123" / "bin").mkdir(parents=True)
    monkeypatch.setattr(environment, "attest", lambda python, pins: {"modules": {}, "lock": [], "python_version": "3"})
    first = environment.made(PINS, tmp_path, tmp_path / "log")
    assert len(made) == 1 and (tmp_path / key / environment.ATTESTED).is_file()
    assert environment.made(PINS, tmp_path, tmp_path / "log") == first and len(made) == 1


def test_what_uv_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", "")
    with pytest.raises(SourceError) as caught:
        environment.install(["no-such-distribution==1.0"], tmp_path / "home", tmp_path / "log")
    assert "`uv pip` ended with" in str(caught.value) and "no-such-distribution" in str(caught.value)
