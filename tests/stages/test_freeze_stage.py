"""The freeze stage: what it leaves, and what REQUIRE_PINNED refuses."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from tests.conftest import Project, Went
from tests.source.gitrepo import C1, C2, git, upstream

REAL = paths.ROOT
SOURCES = {"mine": {"kind": "tree", "path": "."}}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clean repository with one commit."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def params(require_pinned: bool, *requirements: str) -> dict[str, Any]:
    """Parameters of the stage."""
    return {
        "sources": SOURCES,
        "requirements": list(requirements),
        "modules": [],
        "require_pinned": require_pinned,
        "offline": False,
        "source_mirror": "",
    }


def test_what_is_pinned_passes_either_way(run_stage: Callable[..., Any], tree: Path) -> None:
    for asked in (True, False):
        ran = run_stage("freeze", params(asked, "torch==2.13.0", "numpy==2.4.6"), {"tree": tree})
        assert ran.code == 0, ran.stderr
        assert ran.outcome.metrics["mine dirty files"] == 0 and set(ran.outcome.artifacts) >= {"pins", "sources"}


@pytest.mark.parametrize("loose", ["torch", "torch>=2", "torch==2.*", "torch===2", "torch==2.1,<3", "torch @ file"])
def test_a_loose_requirement_is_refused_by_name(run_stage: Callable[..., Any], tree: Path, loose: str) -> None:
    ran = run_stage("freeze", params(True, "numpy==2.4.6", loose), {"tree": tree})
    assert ran.code == 3 and ran.outcome.reason == f"requirement `{loose}` is not pinned by `==`"
    assert run_stage("freeze", params(False, loose), {"tree": tree}).code == 0


def test_a_change_that_no_commit_holds_is_refused(run_stage: Callable[..., Any], tree: Path) -> None:
    (tree / "b.txt").write_text("two\n")
    ran = run_stage("freeze", params(True), {"tree": tree})
    assert ran.code == 3 and ran.outcome.reason == "source `mine` has 1 changes that no commit holds"
    assert run_stage("freeze", params(False), {"tree": tree}).code == 0


def test_a_folder_without_a_commit_is_refused(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    ran = run_stage("freeze", params(True), {"tree": tmp_path / "plain"})
    assert ran.code == 3 and ran.outcome.reason == "source `mine` has no commit"


def with_our_code(project: Project) -> None:
    """The freeze program and a library of its own, so that mirrors and checkouts lie in the test's folder."""
    shutil.copy(REAL / "stages" / "freeze.py", project.root / "stages")
    shutil.copytree(REAL / "kassay", project.root / "kassay", ignore=shutil.ignore_patterns("__pycache__"))


def dag(url: Path, value: int) -> dict[str, Any]:
    """freeze, and a stage that reads what it froze."""
    source = {"kind": "git", "url": str(url), "ref": "dev", "distribution": "d", "module": "m"}
    return {
        "freeze": {"program": "freeze", "params": {**params(False), "sources": {"up": source}}},
        "reads": {"program": "ok", "inputs": {"pins": "freeze.pins"}, "params": {"value": value}},
    }


def test_a_resumed_run_stays_at_its_commit_and_a_new_one_asks_again(project: Project, tmp_path: Path) -> None:
    """O08, through the loop: run, move the branch, run again, run another plan."""
    with_our_code(project)
    up = upstream(tmp_path / "up")
    git(up, "branch", "dev", "HEAD~1")
    first = project.go(dag(up, 1))
    assert first.code == 0, first.reasons
    assert sources(first)["commit"] == C1
    git(up, "branch", "-f", "dev", "HEAD")
    resumed = project.go(dag(up, 1))
    assert resumed.run.directory == first.run.directory
    assert resumed.started == {"freeze": "asks again where the ref of up is"} and set(resumed.reused) == {"reads"}
    assert sources(resumed)["commit"] == C1
    assert sources(resumed)["note"] == f"`dev` has moved since this run froze it at {C1}: it is {C2} now"
    other = project.go(dag(up, 2))
    assert other.run.directory != first.run.directory and sources(other)["commit"] == C2
    pins = json.loads((stage_of(other) / "pins.json").read_bytes())
    head = git(Path(pins["sources"]["up"]["path"]), "rev-parse", "HEAD")
    assert head == C2 == json.loads((other.run.directory / paths.FROZEN).read_bytes())["up"]["commit"]


def test_a_remote_that_does_not_answer_leaves_the_run_unmet_and_says_which(project: Project, tmp_path: Path) -> None:
    with_our_code(project)
    stages = dag(tmp_path, 1)
    stages["freeze"]["params"]["sources"]["up"]["url"] = "https://host.invalid/owner/up"
    went = project.go(stages)
    assert went.code == 4 and went.words == {"freeze": "unmet", "reads": "blocked"}
    assert went.reasons["freeze"].startswith("source `up`: ") and "host.invalid" in went.reasons["freeze"]


def stage_of(went: Went) -> Path:
    """The directory of the freeze stage."""
    return paths.stage_dir(went.run.directory, "freeze")


def sources(went: Went) -> dict[str, Any]:
    """What was frozen."""
    found: dict[str, Any] = json.loads((stage_of(went) / "sources.json").read_bytes())["sources"]["up"]
    return found
