"""When a result answers what is asked: every part of the key on its own, and files that cannot be read."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kassay import gpus, host, identity, paths
from kassay.earlier import Earlier
from kassay.identity import Input, Wanted
from kassay.preview import preview
from tests.conftest import Project
from tests.test_gpus import printing

STAGES: dict[str, Any] = {"a": {"program": "ok", "params": {"value": 1, "nested": {"x": 1.5, "list": [1, 2]}}}}


@pytest.fixture
def done(project: Project) -> Path:
    """The directory of a stage that passed."""
    return paths.stage_dir(project.go(STAGES).run.directory, "a")


def why(project: Project, directory: Path, **params: Any) -> str | None:
    """Why the directory does not answer the stage, with these parameters changed."""
    stages = {"a": {**STAGES["a"], "params": {**STAGES["a"]["params"], **params}}}
    return identity.explain(directory, Wanted(stage=project.plan(stages).stage("a"), inputs={}))


def edit(path: Path, **changed: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **changed}))


def test_an_equal_key_is_up_to_date_whatever_the_time_stamps(project: Project, done: Path) -> None:
    assert why(project, done) is None
    for file in [*done.iterdir(), project.root / "stages" / "ok.py"]:
        os.utime(file, (1, 1))
    assert why(project, done) is None


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"value": 2}, "parameter value: 1 -> 2"),
        ({"value": True}, "parameter value: 1 -> true"),
        ({"value": 1.0}, "parameter value: 1 -> 1.0"),
        ({"value": "1"}, 'parameter value: 1 -> "1"'),
        ({"more": None}, 'parameter more: "absent" -> null'),
        ({"empty": {}}, 'parameter empty: "absent" -> {}'),
        ({"nested": {"x": 1.5, "list": [2, 1]}}, "parameter nested.list: [1, 2] -> [2, 1]"),
        ({"nested": {"x": 1.5}}, 'parameter nested.list: [1, 2] -> "absent"'),
        ({"nested.x": "absent"}, "parameters changed"),
    ],
)
def test_the_first_changed_parameter_is_named(project: Project, done: Path, params: Any, said: str) -> None:
    if said == "parameters changed":  # flat names collide; the values still count
        params = {"nested": {"list": [1, 2]}, "nested.x": 1.5}
    assert why(project, done, **params) == said


def test_a_measurement_of_another_host_stays_in_its_own_run(project: Project) -> None:
    """Under Slurm a stage runs elsewhere than it was asked for: the receipt tells where."""
    stages = {"a": {"program": "ok", "measures": "host"}}
    first = project.go(stages)
    receipt = paths.stage_dir(first.run.directory, "a") / paths.RECEIPT
    body = json.loads(receipt.read_bytes())
    assert body["host"] == host.fingerprint()
    other = {**stages, "b": {"program": "ok"}}
    assert set(project.go(other).reused) == {"a"}, "a host like this one"
    receipt.write_text(json.dumps({**body, "host": {**body["host"], "processor": "another", "cpus": 7}}))
    assert set(project.go(stages).reused) == {"a"}, "its own run keeps it"
    assert "up to date" in list(preview(project.plan(stages), project.results))[2]
    more = {**stages, "c": {"program": "ok", "params": {"value": 2}}}
    said = "was measured on another host (another, 7 cores)"
    assert said in list(preview(project.plan(more), project.results))[2]
    assert project.go(more).started["a"] == said


def one_gpu(folder: Path, name: str) -> None:
    """nvidia-smi of a host with one GPU."""
    printing(folder, f"0, {name}, 81920\n", f"0, GPU-{name}, 580.1, 9.0\n", f"GPU 0: {name} (UUID: GPU-{name})\n")


def test_what_was_measured_on_a_gpu_holds_for_its_kind(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor alone is not the host: one of another kind of GPU has the same."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    one_gpu(tmp_path, "A")
    stages = {"a": {"program": "ok", "measures": "host", "resources": {"cpus": 1, "memory_gib": 0.1, "gpus": 1}}}
    first = project.go(stages)
    receipt = json.loads((paths.stage_dir(first.run.directory, "a") / paths.RECEIPT).read_bytes())
    assert receipt["host"]["gpus"] == ["A, 80 GiB, compute capability 9.0"]
    assert set(project.go(stages).reused) == {"a"}
    more = {**stages, "b": {"program": "ok"}}
    assert set(project.go(more).reused) == {"a"}, "another run, the same kind"
    one_gpu(tmp_path, "B")
    assert project.go(stages).started["a"] == "host differs: gpus"
    one_gpu(tmp_path, "not told")  # such a GPU is like no other, not even like itself in another run
    unknown = {**stages, "c": {"program": "ok"}}
    assert project.go(unknown).started["a"] == "host differs: gpus"
    third = {**stages, "d": {"program": "ok"}}
    assert "was measured on another host" in project.go(third).started["a"]


def test_inputs_program_and_host_count(project: Project, done: Path) -> None:
    stage = project.plan(STAGES).stage("a")
    given = {"x": Input(path=done, sha256="0")}
    assert identity.explain(done, Wanted(stage=stage, inputs=given)) == "input x changed"
    shutil.copy(project.root / "stages" / "ok.py", project.root / "stages" / "other.py")
    other = project.plan({"a": {**STAGES["a"], "program": "other"}}).stage("a")
    assert identity.explain(done, Wanted(stage=other, inputs={})) == "program: ok -> other"
    measured = project.plan({"a": {**STAGES["a"], "measures": "host"}}).stage("a")
    assert identity.explain(done, Wanted(stage=measured, inputs={})) == "host differs"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"code": {"stages/gone.py": "0"}}, "code stages/gone.py is gone"),
        ({"code": {"stages/ok.py": "0"}}, "code stages/ok.py changed"),
        ({"code_changed": ["kassay/x.py"]}, "code kassay/x.py changed while it ran"),
        ({"packages": {"numpy": "0.1"}}, "package numpy 0.1 -> "),
        ({"packages": {"no-such-package": "1"}}, "package no-such-package 1 -> absent"),
        ({"python": "2.7.18"}, "Python 2.7.18 -> 3."),
        ({"foundations": {"/nowhere/x": "0"}}, "/nowhere/x is gone or was changed"),
        ({"code": None}, "its files cannot be read: AttributeError"),
    ],
)
def test_what_really_ran_counts(project: Project, done: Path, changed: Any, said: str) -> None:
    edit(done / paths.RECEIPT, **changed)
    assert (why(project, done) or "").startswith(said)


def test_the_drivers_environment_is_not_that_of_a_stage_with_a_stack(project: Project, done: Path) -> None:
    edit(done / paths.RECEIPT, packages={"torch": "0.1"}, python="2.7.18")
    edit(done / paths.REQUEST, key={**json.loads((done / paths.REQUEST).read_bytes())["key"], "inputs": {"stack": "0"}})
    wanted = Wanted(stage=project.plan(STAGES).stage("a"), inputs={"stack": Input(path=done, sha256="0")})
    assert identity.explain(done, wanted) is None


@pytest.mark.parametrize("file", [paths.REQUEST, paths.RECEIPT, paths.OUTCOME])
@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_a_directory_that_cannot_be_read_answers_nothing(
    project: Project, done: Path, file: str, content: str | None
) -> None:
    if content is None:
        (done / file).unlink()
    else:
        (done / file).write_text(content)
    assert why(project, done) is not None
    went = project.go(STAGES)
    assert went.words == {"a": "passed"} and "a" in went.started
    assert list(done.parent.glob(".a.stale-*")), "it was set aside, not lost"


def test_an_artifact_of_equal_size_and_other_content_is_noticed(project: Project, done: Path) -> None:
    path = done / "out.json"
    stamp = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes().replace(b"1", b"7"))
    os.utime(path, ns=(stamp, stamp))
    assert why(project, done) == "artifact out.json is gone or was changed"
    path.unlink()
    assert why(project, done) == "artifact out.json is gone or was changed"


def test_code_that_is_edited_while_the_stage_runs_is_never_taken_for_what_ran(project: Project) -> None:
    source = project.root / "stages" / "slow.py"
    body = f'    with open({str(source)!r}, "a") as f: f.write("# edited\\n")\n    return {{}}'
    project.program("slow", body)
    stages = {"slow": {"program": "slow"}}
    assert project.go(stages).words == {"slow": "passed"}
    went = project.go(stages)
    assert went.started == {"slow": "code stages/slow.py changed while it ran"}


def test_earlier_results_are_newest_first_and_never_links(project: Project) -> None:
    first = project.go(STAGES)
    other = project.go({"a": {"program": "ok", "params": {"value": 9}}})
    third = project.go({**STAGES, "b": {"program": "ok"}})
    assert (third.run.directory / "stages" / "a").is_symlink()
    found = Earlier(project.results).of("a")
    assert found == [paths.stage_dir(went.run.directory, "a") for went in (other, first)]
