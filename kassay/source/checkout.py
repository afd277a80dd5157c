"""Checkouts: one detached working tree per commit under build/sources, submodules at their recorded commits included.

What would make the tree mean something else on another machine is refused by name: a link that leaves it, a Git LFS
pointer where a file is expected, a name with control characters, a borrowed object store. Clean is judged by content.
"""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from kassay import digest
from kassay.errors import SourceError
from kassay.source.address import joined
from kassay.source.command import git, git_bytes
from kassay.source.gitmirror import LOCK_WAIT_S, Remote, held, resolve

LARGEST_FILE_BYTES = 1 << 30  # no source file is that large; what is, is data that somebody committed
DEEPEST = 8  # submodules of submodules
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
POINTER_BYTES = 1024  # the specification's limit of a pointer file
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LINK, SUBMODULE = "120000", "160000"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One path of a commit's tree."""

    mode: str
    object: str
    bytes: int
    path: str


def checkout(remote: Remote, name: str, url: str, commit: str, home: Path) -> dict[str, Any]:
    """The frozen form of a commit, with the path of its clean working tree. Raises SourceError, Unreachable."""
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"{name}-{commit[:12]}-{digest.of_value(url)[:6]}"
    with filelock.FileLock(home / f".{target.name}.lock", timeout=LOCK_WAIT_S):
        if not target.exists():
            for left in home.glob(f".{target.name}.making-*"):
                shutil.rmtree(left, ignore_errors=True)
            making = Path(tempfile.mkdtemp(dir=home, prefix=f".{target.name}.making-"))
            place(remote, url, commit, making, depth=0)
            making.rename(target)
        return frozen(target, url, commit, depth=0) | {"path": str(target)}


def place(remote: Remote, url: str, commit: str, tree: Path, depth: int) -> None:
    """Fill an empty folder with a commit and its submodules, after looking at every name in it."""
    if depth > DEEPEST:
        raise SourceError(f"{url}: submodules nest deeper than {DEEPEST}")
    with held(remote, url) as mirror:
        listed = entries(mirror, commit)
        refuse(mirror, commit, listed, url)
        git("init", "-q", str(tree), cwd=tree.parent)
        git("config", "remote.origin.url", url, cwd=tree)
        git("fetch", "-q", "--no-tags", str(mirror), commit, "+refs/tags/*:refs/tags/*", cwd=tree)
    git("checkout", "-q", "--detach", "--force", commit, cwd=tree)
    for path, (target, wanted) in submodules(tree, commit, url, listed).items():
        inside = tree / path
        if not inside.resolve().is_relative_to(tree.resolve()):
            raise SourceError(f"{url}: submodule `{path}` leaves the tree")
        inside.mkdir(parents=True, exist_ok=True)
        resolve(remote, target, wanted, branch="")
        place(remote, target, wanted, inside, depth + 1)


def entries(repository: Path, commit: str) -> list[Entry]:
    """Every path of a commit, in git's order."""
    found = []
    for line in git("ls-tree", "-r", "-l", "-z", "--full-tree", commit, cwd=repository).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, name, size = facts.split()
            found.append(Entry(mode=mode, object=name, bytes=0 if size == "-" else int(size), path=path))
    return found


def refuse(repository: Path, commit: str, listed: list[Entry], url: str) -> None:
    """Raise SourceError with everything in a commit that a working tree must not have."""
    faults = []
    for entry in listed:
        if CONTROL.search(entry.path):
            faults.append(f"file name {entry.path!r} holds a control character")
        elif entry.mode == LINK:
            faults += leaving(repository, entry)
        elif entry.bytes > LARGEST_FILE_BYTES:
            faults.append(f"`{entry.path}` has {entry.bytes} bytes, allowed are {LARGEST_FILE_BYTES}")
    faults += [f"`{path}` is a Git LFS pointer, not the file" for path in pointers(repository, commit, listed)]
    if faults:
        raise SourceError(*(f"{url} at {commit[:12]}: {fault}" for fault in faults))


def leaving(repository: Path, entry: Entry) -> list[str]:
    """Why a symbolic link is refused, if it is: its target lies outside the tree."""
    target = os.fsdecode(git_bytes("cat-file", "blob", entry.object, cwd=repository))
    inside = os.path.normpath(os.path.join(os.path.dirname(entry.path), target))
    if os.path.isabs(target) or inside == ".." or inside.startswith("../") or inside.split("/")[0] == ".git":
        return [f"link `{entry.path}` leads out of the tree, to `{target}`"]
    return []


def pointers(repository: Path, commit: str, listed: list[Entry]) -> list[str]:
    """Paths whose content is a Git LFS pointer."""
    small = {entry.path: entry for entry in listed if len(POINTER) < entry.bytes <= POINTER_BYTES}
    try:
        named = git("grep", "-l", "-z", "-F", POINTER.decode().strip(), commit, "--", cwd=repository).split("\0")
    except SourceError:
        return []  # git's own way to say that there is none
    paths = [line.partition(":")[2] for line in named if line]
    blobs = {path: git_bytes("cat-file", "blob", small[path].object, cwd=repository) for path in paths if path in small}
    return [path for path, blob in blobs.items() if blob.startswith(POINTER)]


def submodules(tree: Path, commit: str, url: str, listed: list[Entry]) -> dict[str, tuple[str, str]]:
    """Path -> (url, commit) of every submodule. Raises SourceError for one that .gitmodules does not tell of."""
    wanted = {entry.path: entry.object for entry in listed if entry.mode == SUBMODULE}
    if not wanted:
        return {}
    try:
        text = git("config", "--blob", f"{commit}:.gitmodules", "--list", "-z", cwd=tree)
    except SourceError:
        text = ""
    told: dict[str, dict[str, str]] = {}
    for item in filter(None, text.split("\0")):
        key, _, value = item.partition("\n")
        name, _, field = key.removeprefix("submodule.").rpartition(".")
        told.setdefault(name, {})[field] = value
    urls = {facts["path"]: facts["url"] for facts in told.values() if "path" in facts and "url" in facts}
    if gone := sorted(set(wanted) - set(urls)):
        raise SourceError(*(f"{url}: .gitmodules has no url of submodule `{path}`" for path in gone))
    return {path: (joined(url, urls[path]), name) for path, name in wanted.items()}


def frozen(tree: Path, url: str, commit: str, depth: int) -> dict[str, Any]:
    """What a checkout is, after proving that its content is that commit's. Raises SourceError if it is not."""
    head = git("rev-parse", "HEAD", cwd=tree).strip()
    origin = git("config", "--default", "", "remote.origin.url", cwd=tree).strip()
    if (head, origin) != (commit, url):
        raise SourceError(f"{tree}: it is {head} of `{origin}`, wanted is {commit} of `{url}`", hint=f"rm -r {tree}")
    if (tree / ".git" / "objects" / "info" / "alternates").exists():
        raise SourceError(f"{tree}: it borrows objects from another repository", hint=f"rm -r {tree}")
    listed = entries(tree, commit)
    inner = submodules(tree, commit, url, listed)
    if changed := dirty(tree, set(inner)):
        shown = ", ".join(repr(path) for path in changed[:5])
        raise SourceError(f"{tree}: {len(changed)} paths are not the commit's: {shown}", hint=f"rm -r {tree}")
    below = [{"at": path, **frozen(tree / path, target, wanted, depth + 1)} for path, (target, wanted) in inner.items()]
    files = [entry for entry in listed if entry.mode != SUBMODULE]
    body = {
        "url": url,
        "commit": commit,
        "tree": git("rev-parse", f"{commit}^{{tree}}", cwd=tree).strip(),
        "submodules": [{key: item[key] for key in ("at", "url", "commit", "tree", "submodules")} for item in below],
    }
    return {
        **body,
        "describe": git("describe", "--tags", "--long", "--always", commit, cwd=tree).strip(),
        "files": len(files) + sum(item["files"] for item in below),
        "bytes": sum(entry.bytes for entry in files) + sum(item["bytes"] for item in below),
        "sha256": digest.of_value(body),
    }


def dirty(tree: Path, inner: set[str]) -> list[str]:
    """Paths that differ from HEAD by content, untracked and ignored ones included; no time stamp is believed."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        git("read-tree", "HEAD", cwd=tree, index=index)
        asked = ("--porcelain", "--ignored", "--no-renames", "--untracked-files=all", "--ignore-submodules=all")
        text = git("status", "-z", *asked, cwd=tree, index=index)
    return sorted(line[3:] for line in text.split("\0") if line and line[3:].rstrip("/") not in inner)
