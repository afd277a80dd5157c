"""The build stage after the freeze stage: forks, moved forth and back, answer with the frozen commit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.kinds.source import PackageRecord
from kassay.record import read_kind
from tests.conftest import Project, Went
from tests.source.fork import Fork, answer, index, write_wheel
from tests.source.gitrepo import git

REAL = paths.ROOT


@pytest.fixture
def tree(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with its own kassay, so that what is built lies in it."""
    write_wheel(index(tmp_path / "index", monkeypatch), "plain", "1.0", "plain")
    shutil.copytree(REAL / "kassay", project.root / "kassay", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("freeze", "build"):
        shutil.copy(REAL / "stages" / f"{name}.py", project.root / "stages")
    return project


def dag(forks: list[Fork]) -> dict[str, Any]:
    """freeze and build of the forks' branch `main`."""
    sources = {
        fork.name: {
            **{"kind": "git", "url": str(fork.repository), "ref": "main"},
            **{"distribution": fork.name, "module": fork.name},
        }
        for fork in forks
    }
    frozen = {"sources": sources, "requirements": ["plain==1.0"], "modules": ["plain"], "require_pinned": False}
    more = {"install": list(sources), "build_requirements": [], "variables": {"KIND": "toy"}}
    params = {**frozen, **more, "offline": False, "source_mirror": ""}
    return {
        "freeze": {"program": "freeze", "params": params},
        "build": {
            "program": "build",
            "inputs": {"pins": "freeze.pins"},
            "params": {"stack_python": "", "offline": False},
        },
    }


def stack_of(went: Went) -> dict[str, Any]:
    """What the build stage left; the run passed."""
    assert went.words == {"freeze": "passed", "build": "passed"}, went.reasons
    found: dict[str, Any] = json.loads((paths.stage_dir(went.run.directory, "build") / "stack.json").read_bytes())
    return found


def test_from_the_repositories_to_what_is_imported(tree: Project, tmp_path: Path) -> None:
    forks = [Fork(tmp_path / "up", "fakeinfer", "0.0.1", []), Fork(tmp_path / "up", "fakellm", "1.0", [RIVAL])]
    pinned = {rev: forks[0].commit(rev) for rev in (1, 2)}
    user = forks[1].commit(7)
    for rev in (1, 2, 1):
        git(forks[0].repository, "reset", "-q", "--hard", pinned[rev]["commit"])
        shutil.rmtree(tree.results, ignore_errors=True)  # a run keeps its commits; a new one asks where the branch is
        went = tree.go(dag(forks))
        stack = stack_of(went)
        assert answer(stack["python"], "fakeinfer") == (pinned[rev]["commit"], rev)
        assert answer(stack["python"], "fakellm") == (user["commit"], 7)
        assert went.run.outcomes["build"].metrics["conflicts"] == 1
    records = read_kind(paths.stage_dir(went.run.directory, "build") / paths.RECORDS, PackageRecord)
    assert [(one.name, one.source) for one in records] == [
        ("fakeinfer", "fakeinfer"),
        ("fakellm", "fakellm"),
        ("plain", None),
    ]
    assert all(one.sha256 for one in records)
    log = (paths.stage_dir(went.run.directory, "build") / paths.STDOUT).read_text()
    assert "recorded: The package `fakellm` requires `fakeinfer==0.0.2`, but `0.0.1` is installed" in log
    assert len(list((tree.root / "build" / "wheels").glob("*/built.json"))) == 3
    # Without a change nothing runs; a file of the stack's record that is gone is noticed.
    again = tree.go(dag(forks))
    assert "build" in again.reused
    record = Path(stack["python"]).parent.parent / stack["sources"]["fakeinfer"]["record"]
    record.write_text(record.read_text() + "fakeinfer/more.py,,\n")
    went = tree.go(dag(forks))
    assert "RECORD is gone or was changed" in went.started["build"] and went.words["build"] == "crashed"
    assert "`fakeinfer==0.0.1`: expected what was attested, found another content" in went.reasons["build"]


RIVAL = "fakeinfer==0.0.2"
