"""Bare mirrors: one per url under build/mirrors, with all branches and tags; a ref becomes a full commit id here.

A mirror is made under another name and renamed, and a killed fetch leaves nothing that stops the next one: whoever
holds the mirror's lock clears lock files that a dead git left. A commit that is there is never asked for again.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from kassay import digest, paths
from kassay.errors import SourceError
from kassay.source.address import FULL, HEX, checked_ref, checked_url, mapped, slug
from kassay.source.command import ASK_TIMEOUT_S, Unreachable, git

LOCK_WAIT_S = 1800.0
ALL = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
KEPT = "refs/kassay/"  # commits that were asked for by id and hang on no branch


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Where sources come from, and whether it may be asked."""

    home: Path  # build/mirrors
    mirrors: str  # SOURCE_MIRROR: a folder of local mirrors, or empty
    offline: bool


def remote_of(params: dict[str, Any]) -> Remote:
    """The remote that a stage's parameters ask for; mirrors lie in our own build folder."""
    return Remote(home=paths.build() / "mirrors", mirrors=params["source_mirror"], offline=params["offline"])


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A ref, made exact."""

    commit: str
    kind: str  # commit, abbreviated, branch or tag
    note: str  # what a reader has to know of it, or empty

    @property
    def moves(self) -> bool:
        """Whether the remote may give the ref to another commit."""
        return self.kind in ("branch", "tag")


@contextmanager
def held(remote: Remote, url: str) -> Iterator[Path]:
    """The mirror of a url, made if need be, for this process alone; a second one waits."""
    checked_url(url)
    remote.home.mkdir(parents=True, exist_ok=True)
    home = mirror_path(remote, url)
    with filelock.FileLock(f"{home}.lock", timeout=LOCK_WAIT_S):
        if not home.is_dir():
            for left in home.parent.glob(f".{home.name}.making-*"):
                shutil.rmtree(left, ignore_errors=True)
            making = home.with_name(f".{home.name}.making-1")
            git("init", "-q", "--bare", str(making), cwd=home.parent)
            git("config", "remote.origin.url", url, cwd=making)
            git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=making)
            making.rename(home)
        refuse_redirected(home, url)
        for left in [*home.rglob("*.lock"), *home.glob("objects/pack/tmp_*"), *home.glob("objects/*/tmp_obj_*")]:
            left.unlink(missing_ok=True)  # of a git that was killed: nobody else may be here now
        yield home


def refuse_redirected(home: Path, url: str) -> None:
    """Raise SourceError for a mirror of another url, or one that borrows objects or history from elsewhere."""
    git("rev-parse", "--git-dir", cwd=home)  # git's own objections, of which `config` says nothing
    origin = git("config", "--default", "", "remote.origin.url", cwd=home).strip()
    if origin != url:
        raise SourceError(f"mirror {home}: its origin is `{origin}`, asked for is `{url}`", hint=f"rm -r {home}")
    for name in ("objects/info/alternates", "objects/info/http-alternates", "shallow", "info/grafts"):
        if (home / name).exists():
            raise SourceError(f"mirror {home}: `{name}` makes it depend on what is not in it", hint=f"rm -r {home}")


def resolve(remote: Remote, url: str, ref: str, branch: str) -> Resolved:
    """The commit of a ref, fetched into the mirror of its url. Raises SourceError; Unreachable if it cannot be asked.

    `branch` is a hint that must hold: the commit has to be on that branch. A full id that is there is not asked for.
    """
    checked_ref(ref)
    with held(remote, url) as home:
        if not (FULL.fullmatch(ref) and has(home, ref) and (not branch or named(home, f"refs/heads/{branch}"))):
            note = fetch(remote, home, url, ref)
        else:
            note = ""
        found = candidates(home, ref)
        if len(found) > 1:
            told = ", ".join(f"{kind} {commit[:12]}" for kind, commit in sorted(found))
            raise SourceError(f"ref `{ref}` of {url} is ambiguous: {told}", hint="give all 40 digits of the commit")
        if not found:
            raise SourceError(f"{url} has no commit, branch or tag `{ref}`")
        kind, commit = found.pop()
        if branch:
            check_on_branch(home, commit, branch, url)
        return Resolved(commit=commit, kind=kind, note=note)


def fetch(remote: Remote, home: Path, url: str, ref: str) -> str:
    """Bring all branches and tags, and a commit that hangs on none; offline, say that nobody was asked."""
    if remote.offline and not remote.mirrors:
        return "offline: as of the last fetch"
    place = mapped(url, remote.mirrors)
    git("ls-remote", "--", place, "HEAD", cwd=home, timeout_s=ASK_TIMEOUT_S)  # an answer soon, or none
    git("fetch", "-q", "--prune", "--force", "--no-tags", "--", place, *ALL, cwd=home)
    if FULL.fullmatch(ref) and not has(home, ref):
        try:
            git("fetch", "-q", "--no-tags", "--", place, f"{ref}:{KEPT}{ref}", cwd=home)
        except Unreachable:
            raise
        except SourceError as error:
            raise SourceError(f"{url} has no commit `{ref}`: {error.messages[0]}") from None
    return f"from a local mirror of {url}" if remote.mirrors else ""


def candidates(home: Path, ref: str) -> set[tuple[str, str]]:
    """(kind, commit) of everything that a ref may mean."""
    if FULL.fullmatch(ref):
        return {("commit", ref)} if has(home, ref) else set()
    names = {"branch": f"refs/heads/{ref}", "tag": f"refs/tags/{ref}"}
    if ref.startswith(("refs/heads/", "refs/tags/")):
        names = {"branch" if ref.startswith("refs/heads/") else "tag": ref}
    found = {(kind, commit) for kind, name in names.items() if (commit := named(home, name))}
    if HEX.fullmatch(ref):
        objects = git("rev-parse", f"--disambiguate={ref}", cwd=home).split()
        found |= {("abbreviated", name) for name in objects if has(home, name)}
    return found


def mirror_path(remote: Remote, url: str) -> Path:
    """Where the mirror of a url lies."""
    return remote.home / f"{slug(url)}-{digest.of_value(url)[:12]}.git"


def holds(remote: Remote, url: str, ref: str) -> bool:
    """Whether a mirror answers a ref without asking anybody: a full id that it has, or offline all that it knows."""
    home = mirror_path(remote, checked_url(url))
    if not home.is_dir():
        return False
    return has(home, ref) if FULL.fullmatch(ref) else remote.offline and len(candidates(home, ref)) == 1


def has(home: Path, commit: str) -> bool:
    """Whether the mirror holds that very commit (an id of another kind of object is none)."""
    try:
        return git("cat-file", "-t", commit, cwd=home).strip() == "commit"
    except SourceError:
        return False


def named(home: Path, name: str) -> str:
    """The commit of a full ref name, an annotated tag peeled; empty if there is no such ref."""
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", cwd=home).strip()
    except SourceError:
        return ""


def check_on_branch(home: Path, commit: str, branch: str, url: str) -> None:
    """Raise SourceError unless the commit is the branch's tip or one of its ancestors."""
    tip = named(home, f"refs/heads/{checked_ref(branch)}")
    if not tip:
        raise SourceError(f"{url} has no branch `{branch}`, on which {commit[:12]} should be")
    if git("merge-base", commit, tip, cwd=home).strip() != commit:
        raise SourceError(
            f"{url}: commit {commit} is not on branch `{branch}` (its tip is {tip[:12]})",
            hint="name the branch that it is on, or none",
        )


def tip_of(remote: Remote, url: str, ref: str) -> str:
    """The commit that a remote gives a branch or tag now, without fetching. Raises Unreachable."""
    if remote.offline and not remote.mirrors:
        raise Unreachable("offline")
    names = [ref] if ref.startswith("refs/") or ref == "HEAD" else [f"refs/heads/{ref}", f"refs/tags/{ref}"]
    asked = [*names, *(f"{name}^{{}}" for name in names)]
    place = mapped(checked_url(url), remote.mirrors)
    listed = git("ls-remote", "--", place, *asked, cwd=Path("/"), timeout_s=ASK_TIMEOUT_S)
    by_name = {name: commit for commit, name in (line.split("\t") for line in listed.splitlines())}
    return next((by_name[name] for name in reversed(asked) if name in by_name), "")
