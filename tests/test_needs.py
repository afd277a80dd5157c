"""What a host lacks is told exactly: by `make doctor` beforehand, and by the stage itself where it runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from kassay import doctor, estimate, gpus, needs, paths
from kassay.errors import PlanError
from tests.conftest import Project
from tests.source.gitrepo import C1, git, upstream
from tests.test_gpus import LISTED, MORE, fake, printing

GIT = {"kind": "git", "ref": "main", "distribution": "d", "module": "m"}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without nvidia-smi, CUDA or tokens; a folder first on PATH for fakes."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name in (*needs.TOOLKITS, gpus.VISIBLE, "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_nothing_needed_nothing_lacking(bare: Path) -> None:
    assert needs.lacks({}) == []


def test_every_lack_is_told_at_once(bare: Path) -> None:
    asked = {"gpus": 2, "tools": ["nvcc-none", "sh"], "tokens": ["HF_TOKEN"], "disk_gib": 1e9}
    found = needs.lacks(asked)
    assert found[:2] == ["2 GPUs are needed, and there is no nvidia-smi", "tool `nvcc-none` is not on PATH"]
    assert "GiB free, 1e+09 are needed" in found[2] and found[3] == "token `HF_TOKEN` is not set" and len(found) == 4


def test_gpus_are_counted_measured_and_compared(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = "0, GPU-0, 580, 8.9\n1, GPU-1, 580, 12.0\n"
    printing(bare, "0, Small, 24564\n1, Odd, [N/A]\n", more)
    assert needs.lacks({"gpus": 2}) == []
    assert needs.lacks({"gpus": 3}) == ["3 GPUs are needed, 2 of 2 may be used"]
    assert needs.lacks({"gpus": 2, "gpu_memory_gib": 70}) == [
        "GPU 0 (Small) has 24.0 GiB, 70 are needed",
        "GPU 1 (Odd) does not tell its memory; 70 GiB are needed",
    ]
    assert needs.lacks({"gpus": 2, "capability": "9.0"}) == ["GPU 0 (Small) has compute capability 8.9, 9.0 is needed"]
    monkeypatch.setenv(gpus.VISIBLE, "")
    assert needs.lacks({"gpus": 1}) == ["1 GPU is needed, 0 of 2 may be used (CUDA_VISIBLE_DEVICES=``)"]


def test_instances_of_one_gpu_are_counted_one_by_one(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printing(bare, "0, NVIDIA A100, 40960\n1, NVIDIA A100, 40960\n", MORE, LISTED)
    monkeypatch.setenv(gpus.VISIBLE, "MIG-0011,MIG-1111")
    assert needs.lacks({"gpus": 2}) == []
    assert needs.lacks({"gpus": 3})[0].startswith("3 GPUs are needed, 2 of 2 may be used")


def test_a_broken_driver_does_not_turn_a_need_green(bare: Path) -> None:
    fake(bare, 'echo "Driver/library version mismatch"; exit 18')
    (lack,) = needs.lacks({"gpus": 1})
    assert lack == "the GPUs cannot be asked: nvidia-smi ended with 18: Driver/library version mismatch"


def test_a_compiler_of_a_cuda_toolkit_is_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "cuda" / "bin").mkdir(parents=True)
    (bare / "cuda" / "bin" / "nvcc-of-test").touch(0o755)
    assert needs.lacks({"tools": ["nvcc-of-test"]}) == ["tool `nvcc-of-test` is not on PATH"]
    monkeypatch.setenv("CUDA_HOME", str(bare / "cuda"))
    assert needs.lacks({"tools": ["nvcc-of-test"]}) == []


@pytest.mark.parametrize(
    "host",
    [
        {"gpus": 1},
        {"gpu": 1},
        {"disk_gib": 0},
        {"disk_gib": True},
        {"tools": "nvcc"},
        {"capability": 9.0},
        {"tokens": [1]},
    ],
)
def test_a_malformed_need_is_an_error_of_the_plan(project: Project, host: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="need"):
        project.plan({"a": {"program": "ok", "host": host}})


def test_a_stage_without_what_it_needs_is_unmet_and_below_it_blocked(project: Project, bare: Path) -> None:
    stages = {
        "a": {"program": "ok", "host": {"tools": ["nvcc-none"], "tokens": ["HF_TOKEN"]}},
        "b": {"program": "ok", "inputs": {"out": "a.out"}},
        "c": {"program": "ok", "host": {"tools": ["sh"]}},
    }
    went = project.go(stages)
    assert went.code == 4 and went.words == {"a": "unmet", "b": "blocked", "c": "passed"}
    assert went.reasons["a"] == "tool `nvcc-none` is not on PATH; token `HF_TOKEN` is not set"
    assert doctor.examine(project.plan(stages))["a"] == went.reasons["a"].split("; ")


def test_a_stop_rule_blocks_a_stage_with_its_reason(project: Project) -> None:
    rule = "this stack decodes only: mixed prefill raises NotImplementedError"
    stages = {
        "a": {"program": "ok", "stop": rule},
        "b": {"program": "ok", "inputs": {"out": "a.out"}},
        "c": {"program": "ok", "stop": ""},
        "d": {"program": "ok", "stop": None},
    }
    went = project.go(stages)
    assert went.words == {"a": "blocked", "b": "blocked", "c": "passed", "d": "passed"}
    assert went.reasons["a"] == rule and went.code == 4
    with pytest.raises(PlanError, match="`stop` is `True`, allowed is the rule in words"):
        project.plan({"a": {"program": "ok", "stop": True}})


def test_the_doctor_asks_the_remotes(project: Project, tmp_path: Path) -> None:
    up = upstream(tmp_path / "up")
    git(up, "branch", "dev")
    sources = {
        "there": {**GIT, "url": str(up)},
        "pinned": {**GIT, "url": str(up), "ref": C1, "branch": "dev"},
        "gone": {**GIT, "url": str(up), "ref": "nowhere"},
        "off": {**GIT, "url": str(up), "ref": C1, "branch": "elsewhere"},
        "away": {**GIT, "url": "https://host.invalid/x"},
        "evil": {**GIT, "url": "ext::touch"},
    }
    params = {"sources": sources, "source_mirror": "", "offline": False}
    found = doctor.lacking(project.plan({"a": {"program": "ok", "params": params}}).stages[0])
    assert found[0] == f"source `gone`: {up} has no branch or tag `nowhere`"
    assert found[1] == f"source `off`: {up} has no branch or tag `elsewhere`"
    assert found[2].startswith("source `away`: `git ls-remote` ended with") and "host.invalid" in found[2]
    assert "names a command transport" in found[3] and len(found) == 4
    assert not (paths.build() / "mirrors").exists(), "nothing was fetched"
    offline = {**params, "sources": {"there": sources["there"]}, "offline": True}
    (lack,) = doctor.lacking(project.plan({"a": {"program": "ok", "params": offline}}).stages[0])
    assert lack == f"source `there`: OFFLINE, and no mirror holds `main` of {up}"


def test_an_estimate_says_what_is_measured_and_what_is_not(project: Project) -> None:
    stages = {"a": {"program": "ok"}, "b": {"program": "ok", "params": {"value": 1}}}
    before = list(estimate.lines(project.plan(stages), project.results))
    assert before[0].split() == ["a", "-", "no", "earlier", "run"] and "2 of 2 stages are not in it" in before[2]
    went = project.go(stages)
    after = list(estimate.lines(project.plan(stages), project.results))
    assert after[0].endswith(f"measured in {went.run.directory.name}") and "not in it" not in after[2]
    assert after[3] == "stated: nothing"
