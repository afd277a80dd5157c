"""Freezing a tree: commit, dirtiness by content, untracked files, and no repository but this one."""

import os
import subprocess
from pathlib import Path

import pytest

from kassay.errors import SourceError
from kassay.kinds.source import SourceRecord
from kassay.source.freeze import NOTHING
from kassay.source.tree import frozen_tree


def git(root: Path, *words: str) -> None:
    """A git command in `root`."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a.py").write_text("a = 1\n")
    (root / ".gitignore").write_text("ignored\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def test_a_clean_tree(tree: Path) -> None:
    frozen = frozen_tree(tree)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, capture_output=True, text=True, check=True)
    assert frozen["commit"] == head.stdout.strip() and frozen["dirty"] == []
    assert (frozen["files"], frozen["bytes"]) == (2, len("a = 1\n") + len("ignored\n"))


def test_changed_and_untracked_content_is_dirty_and_ignored_is_not(tree: Path) -> None:
    clean = frozen_tree(tree)
    (tree / "ignored").write_text("x")
    assert frozen_tree(tree) == clean
    (tree / "a.py").touch()
    assert frozen_tree(tree) == clean, "a time stamp is no change"
    (tree / "new file.py").write_text("b = 2\n")
    (tree / "a.py").write_text("a = 2\n")
    dirty = frozen_tree(tree)
    assert dirty["dirty"] == ["a.py", "new file.py"]
    assert dirty["sha256"] != clean["sha256"] and dirty["commit"] == clean["commit"]


def test_another_repository_in_the_environment_is_not_asked(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = frozen_tree(tree)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert frozen_tree(tree) == expected


def test_what_git_itself_refuses_is_an_error_not_a_clean_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SourceError, match="dubious ownership"):
        frozen_tree(tree)


def test_a_users_own_settings_hide_nothing(tree: Path) -> None:
    git(tree, "config", "status.showUntrackedFiles", "no")
    git(tree, "config", "status.renames", "copies")
    git(tree, "mv", "a.py", "renamed.py")
    (tree / "sub").mkdir()
    (tree / "sub" / "new.py").write_text("b = 2\n")
    assert frozen_tree(tree)["dirty"] == ["a.py", "renamed.py", "sub/new.py"]


def test_a_file_name_that_is_no_utf8_is_frozen_and_can_be_written(tree: Path, tmp_path: Path) -> None:
    clean = frozen_tree(tree)
    (tree / os.fsdecode(b"caf\xe9.py")).write_text("x = 1\n")
    frozen = frozen_tree(tree)
    assert frozen["dirty"] == ["caf\\xe9.py"] and frozen["sha256"] != clean["sha256"]
    SourceRecord(name="tree", **{**NOTHING, **frozen}).to_json().encode()


def test_freezing_takes_no_lock_of_the_users_index(tree: Path) -> None:
    os.utime(tree / "a.py", (1, 1))  # a `git status` would write the new time stamp into the index
    before = (tree / ".git" / "index").read_bytes()
    assert frozen_tree(tree)["dirty"] == []
    assert (tree / ".git" / "index").read_bytes() == before


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("a = 1\n")
    frozen = frozen_tree(tmp_path)
    assert (frozen["commit"], frozen["dirty"], frozen["files"]) == (None, ["a.py"], 1)


def test_a_worktree_and_a_deleted_file(tree: Path, tmp_path: Path) -> None:
    git(tree, "worktree", "add", "-q", str(tmp_path / "side"))
    side = tmp_path / "side"
    assert frozen_tree(side) == frozen_tree(tree)
    (side / "a.py").unlink()
    frozen = frozen_tree(side)
    assert (frozen["dirty"], frozen["files"]) == (["a.py"], 1)


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1\n")
    frozen = frozen_tree(tmp_path)
    assert frozen["commit"] is None and frozen["files"] == 1
