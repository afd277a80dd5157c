"""Stacks: attested by a fresh interpreter, never mistaken when half made, a user's own left untouched."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kassay import digest, paths
from kassay.errors import SourceError
from kassay.source import environment, pins, uv
from tests.source.fork import asked, run_killed, write_wheel

PINS = {"requirements": [f"numpy=={version('numpy')}"], "modules": ["numpy"]}


def test_an_existing_environment_is_attested(tmp_path: Path) -> None:
    stack, foundations = environment.existing(sys.executable, PINS)
    folder = f"numpy-{version('numpy')}.dist-info"
    assert [(path.parent.name, path.name) for path in foundations] == [(folder, "METADATA"), (folder, "RECORD")]
    assert stack["modules"] == {"numpy": version("numpy")} and stack["python_version"] == platform.python_version()
    assert f"numpy=={version('numpy')}" in stack["lock"]
    assert len(stack["content"][f"numpy=={version('numpy')}"]) == 64 and stack["sources"] == {}


def test_a_wrong_version_a_missing_module_and_no_interpreter(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"the pin is 0\.0\.1"):
        environment.existing(sys.executable, {"requirements": ["numpy==0.0.1"], "modules": ["numpy"]})
    with pytest.raises(SourceError, match=r"module `no_such_module`: the pinned modules cannot be imported"):
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


def other_python() -> str:
    """The exact version of another Python of this host, as uv finds it; empty if there is none."""
    listed = subprocess.run(
        [uv.program(), "python", "list", "--only-installed", "--offline"], capture_output=True, text=True, check=False
    ).stdout
    found = {line.split("-")[1] for line in listed.splitlines() if line.startswith("cpython-3.")}
    return next((version for version in sorted(found) if version != platform.python_version()), "")


def test_a_stack_has_the_very_python_that_is_pinned(wheels: Path, tmp_path: Path) -> None:
    if not (other := other_python()):
        pytest.skip("this host has one Python only")
    asked_for = {"requirements": [], "modules": ["json"], "python": other}
    stack, _ = environment.made(asked_for, tmp_path / "stacks", tmp_path / "log", offline=True)
    assert (
        stack["python_version"] == other
        and asked(stack["python"], "importlib.import_module('platform').python_version()") == other
    )
    plain, _ = environment.made({"requirements": [], "modules": ["json"]}, tmp_path / "stacks", tmp_path / "log")
    assert plain["python_version"] == platform.python_version() and plain["key"] != stack["key"]
    with pytest.raises(SourceError, match=rf"Python is {platform.python_version()}, the pin is {other}"):
        environment.existing(sys.executable, asked_for)


@pytest.mark.parametrize("python", ["3.12", "latest", 3.12, "3.12.x"])
def test_a_python_that_is_no_exact_version_is_refused(python: object, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="allowed is an exact version such as"):
        environment.made({"requirements": [], "modules": [], "python": python}, tmp_path / "stacks", tmp_path / "log")


def test_a_python_that_is_nowhere_is_said(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"3\.11\.99"):
        nowhere = {"requirements": [], "modules": [], "python": "3.11.99"}
        environment.made(nowhere, tmp_path / "stacks", tmp_path / "log", offline=True)


def test_a_stack_is_made_attested_and_found_again(wheels: Path, tmp_path: Path) -> None:
    asked_for = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    stack, foundations = environment.made(asked_for, tmp_path / "stacks", tmp_path / "log")
    assert stack["lock"] == ["fakeinfer==0.0.1"] and stack["modules"] == {"fakeinfer": "0.0.1"}
    assert foundations == [Path(stack["python"]).parent.parent / "attested.json"] and foundations[0].is_file()
    assert asked(stack["python"], "importlib.import_module('fakeinfer').WHO") == "first release"
    (tmp_path / "log").unlink()
    assert environment.made(asked_for, tmp_path / "stacks", tmp_path / "log") == (stack, foundations)
    assert not (tmp_path / "log").exists(), "nothing was installed again"
    newer = {**asked_for, "requirements": ["fakeinfer==0.0.2"]}
    other, _ = environment.made(newer, tmp_path / "stacks", tmp_path / "log")
    assert other["key"] != stack["key"] and other["modules"] == {"fakeinfer": "0.0.2"}


def test_a_release_is_what_its_hash_says(wheels: Path, tmp_path: Path) -> None:
    """The lines that freeze writes of a release carry the SHA-256 of its files."""
    sha256 = digest.of_file(wheels / "fakeinfer-0.0.1-py3-none-any.whl")
    write_wheel(wheels, "other", "1.0", "other")
    right = {"requirements": ["other==1.0", f"fakeinfer==0.0.1 --hash=sha256:{sha256}"], "modules": ["fakeinfer"]}
    assert environment.made(right, tmp_path / "stacks", tmp_path / "log")[0]["modules"] == {"fakeinfer": "0.0.1"}
    wrong = {**right, "requirements": ["other==1.0", f"fakeinfer==0.0.1 --hash=sha256:{'0' * 64}"]}
    with pytest.raises(SourceError, match="Hash mismatch"):
        environment.made(wrong, tmp_path / "stacks", tmp_path / "log")


def test_a_killed_build_is_not_taken_for_a_finished_one(wheels: Path, tmp_path: Path) -> None:
    """The process is killed between the last package and the rename."""
    asked_for = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    script = (
        "import os; from pathlib import Path; from kassay.source import environment\n"
        "def killed(*a): os.kill(os.getpid(), 9)\nenvironment.attest = killed\n"
        f"environment.made({asked_for}, Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    assert run_killed(script, str(tmp_path / "stacks"), str(tmp_path / "log"), cwd=tmp_path) == -9
    (left,) = (tmp_path / "stacks").glob(".*.making-*")
    assert (left / "bin" / "python").exists()
    stack, _ = environment.made(asked_for, tmp_path / "stacks", tmp_path / "log")
    assert stack["modules"] == {"fakeinfer": "0.0.1"} and not list((tmp_path / "stacks").glob(".*.making-*"))


def test_a_half_made_stack_is_made_again(wheels: Path, tmp_path: Path) -> None:
    asked_for = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    home = tmp_path / "stacks" / pins.parse(asked_for).key({})
    (home / "bin").mkdir(parents=True)  # what a killed rename or an older layout could leave
    home.with_name(f".{home.name}.making-0123").mkdir()
    stack, _ = environment.made(asked_for, tmp_path / "stacks", tmp_path / "log")
    assert stack["key"] == home.name and (home / paths.ATTESTED).is_file()
    assert not home.with_name(f".{home.name}.making-0123").exists()


def test_the_key_depends_on_the_pins() -> None:
    other = {**PINS, "requirements": ["numpy==1.0"]}
    assert pins.parse(PINS).key({}) == pins.parse(dict(PINS)).key({}) != pins.parse(other).key({})
    assert pins.parse(PINS).key({}) != pins.parse(PINS).key({"nvcc": "release 13.0"})


def test_offline_uv_is_told_so(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache of nothing, what is not in a find-links folder is said at once, whatever the network."""
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.delenv("UV_NO_INDEX")
    there = {"requirements": ["fakeinfer==0.0.1"], "modules": []}
    environment.made(there, tmp_path / "stacks", tmp_path / "log", True)
    with pytest.raises(SourceError) as caught:
        environment.made({**there, "requirements": ["jsonlines==4.0.0"]}, tmp_path / "stacks", tmp_path / "log", True)
    assert "network was disabled" in " ".join(str(caught.value).split())


def test_what_uv_says_is_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", "")
    with pytest.raises(SourceError) as caught:
        environment.made({"requirements": ["no-such==1.0"], "modules": []}, tmp_path / "stacks", tmp_path / "log")
    assert "`uv pip` ended with" in str(caught.value) and "no-such" in str(caught.value)
    assert "\nhint: the whole log is" in str(caught.value)


def test_a_users_override_file_bends_nothing(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bend.txt").write_text("fakeinfer==0.0.2\n")
    monkeypatch.setenv("UV_OVERRIDE", str(tmp_path / "bend.txt"))
    asked_for = {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]}
    assert environment.made(asked_for, tmp_path / "stacks", tmp_path / "log")[0]["modules"] == {"fakeinfer": "0.0.1"}


WRONG = {
    "unknown key `install_order`": {"install_order": []},
    "`install` names ['a'], the git sources are ['b']": {"install": ["a"], "sources": {"b": {}}},
    "source `b` lacks `commit`": {"sources": {"b": {}}},
    "source `b`: `commit` is `main`, allowed is an id of 40 hexadecimal digits": {"sources": {"b": {"commit": "main"}}},
    "source `b`: `path` is `c`, allowed is a full path": {"sources": {"b": {"path": "c"}}},
    "variable `X` is 9.0, no text; quote it": {"variables": {"X": 9.0}},
    "`ninja` is no exact pin": {"build_requirements": ["ninja"]},
    "distribution `ninja` is pinned twice: ninja==1, ninja==2": {
        "requirements": ["ninja==1"],
        "build_requirements": ["ninja==2"],
    },
    "distribution `a-b` is pinned twice: a git source, a-b==1": {
        "requirements": ["A_b==1"],
        "sources": {
            "x": {
                **dict.fromkeys(("commit", "tree"), "0" * 40),
                **{"path": "/x", "distribution": "a.b", "module": "ab", "version": None},
            }
        },
    },
}


@pytest.mark.parametrize("told", WRONG)
def test_pins_that_cannot_be_are_refused_before_anything_is_made(told: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        environment.made({"requirements": [], "modules": [], **WRONG[told]}, tmp_path / "stacks", tmp_path / "log")
    assert told in str(caught.value) and not os.listdir(tmp_path)


def test_the_same_requirement_twice_is_one() -> None:
    parsed = pins.parse({"requirements": ["ninja==1"], "modules": [], "build_requirements": ["ninja==1"]})
    assert [one.line for one in parsed.releases().values()] == ["ninja==1"]
