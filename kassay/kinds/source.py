"""What a source was when it was frozen, and what a stack holds."""

from dataclasses import dataclass
from typing import ClassVar

from kassay.record import Record, doc


@dataclass(frozen=True, kw_only=True)
class SourceRecord(Record):
    """One frozen source."""

    schema: ClassVar[str] = "kassay.source/1"

    name: str = doc("Name of the source in the stack file.")
    kind: str = doc("`tree`: a folder of this project.")
    commit: str | None = doc("Full commit id that the tree is based on, null outside git.")
    dirty: list[str] = doc("Paths whose content differs from the commit, untracked ones included.")
    files: int = doc("Number of files in the digest.")
    bytes: int = doc("Sum of their sizes in bytes.")
    sha256: str = doc("Digest over the sorted relative paths and file digests.")


@dataclass(frozen=True, kw_only=True)
class PackageRecord(Record):
    """One distribution in the stack's environment."""

    schema: ClassVar[str] = "kassay.package/1"

    name: str = doc("Distribution name in lower case.")
    version: str = doc("Version as its metadata says.")
