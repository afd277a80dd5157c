"""What a source was when it was frozen, and what a stack holds."""

from dataclasses import dataclass
from typing import Any, ClassVar

from kassay.combination import absent, given, given_only, one_of
from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class SourceRecord(Record):
    """One frozen source."""

    schema: ClassVar[str] = "kassay.source/2"

    name: str = doc("Name of the source in the stack file.")
    kind: str = doc("`tree`: a folder of this project; `git`: a commit of a repository; `release`: of a package index.")
    url: str | None = doc("Where the commit comes from; null unless `git`.")
    ref: str | None = doc("What was asked for: a full or abbreviated id, a branch, a tag; a release's `name==version`.")
    ref_kind: str | None = doc("`commit`, `abbreviated`, `branch` or `tag`; null unless `git`.")
    commit: str | None = doc("Full commit id, which a tree is based on; null outside git.")
    tree: str | None = doc("Id of the commit's tree; null unless `git`.")
    submodules: list[dict[str, Any]] = doc("Path, url, commit and tree of each submodule, nested; empty unless `git`.")
    describe: str | None = doc("Last tag, commits since and short id; null unless `git`.")
    dirty: list[str] = doc(
        "Paths whose content differs from the commit, untracked ones included; always empty for `git`."
    )
    files: int = doc("Number of files in the digest.")
    bytes: int = doc("Sum of their sizes in bytes.")
    sha256: str = doc("Digest over paths and file digests (`tree`), url, commit, trees (`git`), or of the wheel.")
    note: str = doc("What a reader has to know: offline, from a local mirror, moved since; empty otherwise.")

    combinations = (
        one_of("kind", ("tree", "git", "release")),
        given_only("kind", ("git",), "url", "ref_kind", "tree", "describe"),
        one_of("ref_kind", ("commit", "abbreviated", "branch", "tag", None)),
        given_only("kind", ("git", "release"), "ref"),
        given("kind", ("git",), "commit"),
        absent("kind", ("release",), "commit"),
        absent("kind", ("git", "release"), "dirty"),
        absent("kind", ("tree", "release"), "submodules"),
    )


@dataclass(frozen=True, kw_only=True)
class PackageRecord(Record):
    """One distribution in the stack's environment."""

    schema: ClassVar[str] = "kassay.package/2"

    name: str = doc("Distribution name in lower case.")
    version: str = doc("Version as its metadata says.")
    sha256: str | None = doc("Digest over paths and hashes of its RECORD, scripts left out; null if it has no RECORD.")
    source: str | None = doc("Name of the git source that it was built from, null for a release.")
