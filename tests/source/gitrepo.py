"""Real git repositories for tests, with reproducible ids."""

import os
import subprocess
from pathlib import Path

SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.invalid",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.invalid",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
}
C1 = "65617bf0ffacf70bce043e37a21bc0036795e099"
C2 = "5cf0dc42f53f0fc578f8bdd2fe40746f6341d6f2"


def git(where: Path, *words: str) -> str:
    """A git command of the test's own, which no setting of the machine touches."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    argv = ["git", "-c", "protocol.file.allow=always", *words]
    done = subprocess.run(argv, cwd=where, env=kept | SETTINGS, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode(errors="surrogateescape").strip()


def upstream(root: Path) -> Path:
    """The repository of the field's bug case O07: two commits on main."""
    root.mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "f").write_text("one\n")
    git(root, "add", "f")
    git(root, "commit", "-qm", "c1")
    (root / "f").write_text("two\n")
    git(root, "commit", "-qam", "c2")
    assert (git(root, "rev-parse", "HEAD~1"), git(root, "rev-parse", "HEAD")) == (C1, C2)
    return root


def commit(root: Path, files: dict[str, str | bytes], message: str = "more") -> str:
    """Commit files to a repository, made if need be, and return the id."""
    if not (root / ".git").exists():
        root.mkdir(parents=True, exist_ok=True)
        git(root, "init", "-q", "-b", "main")
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    git(root, "add", "-A")
    git(root, "commit", "-qm", message)
    return git(root, "rev-parse", "HEAD")
