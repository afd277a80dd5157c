"""The freeze stage: what it leaves, and what REQUIRE_PINNED refuses."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
