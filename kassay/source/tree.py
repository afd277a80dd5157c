"""Freezing a source: the exact state of what everything below is made from.

This module freezes trees inside this project: commit, dirtiness judged by content, and a digest over every file that
git tracks or would track. Untracked files count, because an import can load them.
"""

import os
from pathlib import Path
from typing import Any

from kassay import digest, host
from kassay.errors import SourceError


def frozen_tree(root: Path) -> dict[str, Any]:
    """Commit, dirtiness and content digest of the project at `root`; a folder without git has no commit."""
    import git

    for name in host.REDIRECTS:
        os.environ.pop(name, None)  # GIT_DIR beats any path that git is given
    try:
        repository = git.Repo(root)
    except git.InvalidGitRepositoryError:
        files = [file for file in root.rglob("*") if file.is_file() and not hidden(file.relative_to(root))]
        return body(root, files, commit=None, dirty=[])
    try:
        repository.git.update_environment(GIT_OPTIONAL_LOCKS="0")  # asking must not block the user's own git
        listed = repository.git.ls_files("-z", "--cached", "--others", "--exclude-standard")
        states = repository.git.status("-z", "--porcelain", "--no-renames", "--untracked-files=all")
        dirty = [line for line in states.split("\0") if line]
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
        "dirty": [name.encode(errors="surrogateescape").decode(errors="backslashreplace") for name in dirty],
        "files": len(files),
        "bytes": sum(file.stat().st_size for file in files),
        "sha256": digest.of_files(root, files),
    }
