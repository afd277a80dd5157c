"""Freezing a source: the exact state of what everything below is made from.

This module freezes trees inside this project: commit, dirtiness judged by content, and a digest over every file that
git tracks or would track. Untracked files count, because an import can load them.
"""

import os
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.errors import SourceError


def frozen_tree(root: Path) -> dict[str, Any]:
    """Commit, dirtiness and content digest of the project at `root`; a folder without git has no commit."""
    import git

    for name in [name for name in os.environ if name.startswith("GIT_") and name != "GIT_PYTHON_REFRESH"]:
        del os.environ[name]  # a hook's or a parent's repository must not answer for this one
    try:
        repository = git.Repo(root)
    except git.InvalidGitRepositoryError:
        files = [file for file in root.rglob("*") if file.is_file() and not hidden(file.relative_to(root))]
        return body(root, files, commit=None, dirty=[])
    try:
        listed = repository.git.ls_files("-z", "--cached", "--others", "--exclude-standard")
        dirty = [line for line in repository.git.status("-z", "--porcelain").split("\0") if line]
        commit = repository.head.commit.hexsha if repository.head.is_valid() else None
    except git.GitCommandError as error:
        raise SourceError(f"{root}: git cannot read the tree: {error.stderr.strip()}") from None
    finally:
        repository.close()
    files = [root / name for name in listed.split("\0") if name and (root / name).is_file()]
    return body(root, files, commit=commit, dirty=sorted(line[3:] for line in dirty))


def hidden(path: Path) -> bool:
    """Whether a path lies in a folder that git would ignore here."""
    return any(part.startswith(".") or part in ("__pycache__", "build", "results") for part in path.parts)


def body(root: Path, files: list[Path], *, commit: str | None, dirty: list[str]) -> dict[str, Any]:
    """The frozen form of a list of files."""
    return {
        "kind": "tree",
        "commit": commit,
        "dirty": dirty,
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "sha256": digest.of_files(root, files),
    }
