"""Plain executables as stages: what they are given, what they must leave, and when they run again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.errors import PlanError
from tests.conftest import Project


def sh(script: str, outputs: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    """A stage that is a shell script."""
    return {"argv": ["sh", "-c", script], "outputs": {"out": "out.txt"} if outputs is None else outputs, **body}


CHAIN = {
    "first": sh("echo one > out.txt"),
    "second": sh("tr a-z A-Z < {in.text} > out.txt", inputs={"text": "first.out"}),
    "third": {"program": "ok", "inputs": {"x": "second.out"}},
}


def test_a_chain_of_executables_and_a_program(project: Project) -> None:
    went = project.go(CHAIN)
    assert went.words == dict.fromkeys(CHAIN, "passed")
    directory = paths.stage_dir(went.run.directory, "second")
    assert (directory / "out.txt").read_text() == "ONE\n"
    receipt = json.loads((directory / paths.RECEIPT).read_bytes())
    assert receipt["executable"] == shutil.which("sh") and list(receipt["foundations"]) == [receipt["executable"]]
    again = project.go(CHAIN)
    assert again.code == 0 and not again.started


def test_an_unchanged_output_stops_the_wave(project: Project) -> None:
    project.go(CHAIN)
    went = project.go({**CHAIN, "first": sh("echo one   > out.txt")})
    why = 'parameter argv: ["sh", "-c", "echo one > out.txt"] -> ["sh", "-c", "echo one   > out.txt"]'
    assert went.started == {"first": why}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no >&2; exit 3", "exit status 3; last line: no"),
        ("exit 4", "exit status 4"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("true", "left no `out.txt`"),
        ("mkdir out.txt", "left no `out.txt`"),
    ],
)
def test_anything_but_its_outputs_and_zero_is_a_crash(project: Project, script: str, reason: str) -> None:
    went = project.go({"a": sh(script), "b": sh("cp {in.x} out.txt", inputs={"x": "a.out"})})
    assert went.words == {"a": "crashed", "b": "blocked"} and went.code == 1
    assert went.reasons["a"] == reason


def test_an_executable_that_is_not_there(project: Project) -> None:
    went = project.go({"a": {"argv": ["no-such-program"]}})
    assert went.words == {"a": "crashed"} and "no-such-program: No such file or directory" in went.reasons["a"]


def test_a_tool_of_the_tree_is_an_input(project: Project) -> None:
    tool = project.root / "tools" / "shout"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho loud > out.txt\n")
    tool.chmod(0o755)
    stages = {"a": {"argv": ["{in.tool}"], "inputs": {"tool": "tree:tools/shout"}, "outputs": {"out": "out.txt"}}}
    assert project.go(stages).code == 0
    tool.write_text("#!/bin/sh\necho louder > out.txt\n")
    assert project.go(stages).started == {"a": "input tool changed"}


def test_an_input_that_changes_while_the_stage_runs_spoils_it(project: Project) -> None:
    text = project.root / "text"
    text.write_text("before")
    stages = {"a": sh("cp {in.t} out.txt; echo after > {in.t}", inputs={"t": "tree:text"})}
    assert project.go(stages).reasons == {"a": "input `t` (tree:text) changed while it ran"}


def test_another_executable_of_the_same_name_runs_again(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kassay import identity

    stages = {"a": {"argv": ["mine"], "outputs": {"out": "out.txt"}}}
    for name, text in (("one", "1"), ("two", "2")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine").write_text(f"#!/bin/sh\necho {text} > out.txt\n")
        (folder / "mine").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        identity.which.cache_clear()
        why = project.go(stages).started["a"]
    assert why == f"executable {tmp_path}/one/mine -> {tmp_path}/two/mine"
    identity.which.cache_clear()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"argv": "ls"}, "`argv` is `ls`, allowed is a list of texts"),
        ({"argv": []}, "`argv` is `[]`"),
        ({"argv": ["ls", 3]}, "allowed is a list of texts"),
        ({"argv": ["ls"], "program": "ok"}, "`program` and `argv` exclude each other"),
        ({"argv": ["ls"], "params": {}}, "`params` and `argv` exclude each other"),
        ({"argv": ["ls"], "host": {}}, "`host` and `argv` exclude each other"),
        ({"argv": ["ls", "{in.x}"]}, "`argv` names `{in.x}`, but no such input exists"),
        ({"outputs": {"a": "b"}, "program": "ok"}, "`argv` is `None`"),
        ({"argv": ["ls"], "outputs": {"a": "../b"}}, "output `a` is `../b`"),
        ({"argv": ["ls"], "outputs": {"a": "outcome.json"}}, "output `a` is `outcome.json`"),
        ({"argv": ["ls"], "outputs": {"a": "/tmp/b"}}, "output `a` is `/tmp/b`"),
        ({"argv": ["ls"], "resources": {"cpus": 1, "memory_gib": 1, "gpus": 1}}, "`gpus` needs a `program`"),
        ({"program": "ok", "retries": -1}, "`retries` is `-1`"),
        ({"program": "ok", "retries": True}, "`retries` is `True`"),
        ({"program": "ok", "timeout_s": 0}, "`timeout_s` is `0`"),
        ({"program": "ok", "host": {"capability": "9.0"}}, "need `capability` is about GPUs"),
        ({"program": "ok", "resources": {"cpus": 1, "memory_gib": 1, "gpus": -1}}, "resource `gpus` is `-1`"),
        ({"program": "ok", "resources": {"cpus": 1, "memory_gib": 1, "disk_gib": -1}}, "resource `disk_gib` is `-1`"),
    ],
)
def test_errors_of_an_entry(project: Project, entry: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        project.plan({"a": entry})
    assert said in str(caught.value)


def test_reading_what_an_executable_does_not_declare_is_told_before_anything_runs(project: Project) -> None:
    with pytest.raises(PlanError, match=r"input `x` names `a.other`; outputs of `a`: out"):
        project.plan({"a": sh("true"), "b": sh("true", inputs={"x": "a.other"})})
