"""Freezing a source: what was asked becomes exactly one thing, before anything is made from it.

Three kinds: a tree inside this project, a commit of a git repository, a release of the package index with the SHA-256
of its files. What was asked and what it became stand side by side in a source record.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay.errors import SourceError
from kassay.source.address import FULL
from kassay.source.checkout import checkout
from kassay.source.command import Unreachable
from kassay.source.gitmirror import Remote, Resolved, resolve, tip_of
from kassay.source.tree import frozen_tree

PINNED = re.compile(r"[\w.-]+(\[[\w.,-]+\])?==[\w.!+-]+( --hash=sha256:[0-9a-f]{64})*")
SHA256 = re.compile(r"[0-9a-f]{64}")
KEYS: dict[str, tuple[set[str], set[str]]] = {  # of each kind: keys that must be there, keys that may
    "tree": ({"path"}, set()),
    "git": ({"url", "ref", "distribution", "module"}, {"branch", "version"}),
    "release": ({"distribution", "version", "sha256"}, set()),
}


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A source, made exact."""

    facts: dict[str, Any]  # fields of a SourceRecord but its name
    path: Path | None  # a clean working tree, of a git source
    moves: bool  # the remote may give its ref to another commit
    source: dict[str, Any]  # as it was asked for


def check(sources: dict[str, dict[str, Any]]) -> None:
    """Raise SourceError with every source that is not described as its kind asks."""
    errors = []
    for name, source in sources.items():
        kind = str(source.get("kind", ""))
        if kind not in KEYS:
            errors.append(f"source `{name}` is of kind `{kind}`, allowed are {', '.join(sorted(KEYS))}")
            continue
        must, may = KEYS[kind]
        given = set(source) - {"kind"}
        errors += [f"source `{name}` lacks `{key}`" for key in sorted(must - given)]
        errors += [f"source `{name}` has an unknown key `{key}`" for key in sorted(given - must - may)]
        words = [key for key in given if key != "sha256" and not isinstance(source[key], str)]
        errors += [f"source `{name}`: `{key}` is no text; quote it" for key in sorted(words)]
    if errors:
        raise SourceError(
            *errors, hint="it is <stack>.yaml of workflows/<workflow>/stack, or of workflows/common/stack"
        )


def unpinned(sources: dict[str, dict[str, Any]], requirements: list[str]) -> list[str]:
    """What no full commit id or exact version names, as far as that can be told before anything is asked."""
    refs = {name: source["ref"] for name, source in sources.items() if source["kind"] == "git"}
    loose = [f"source `{name}` asks for `{ref}`, which is no full commit id" for name, ref in refs.items()]
    found = [told for told, ref in zip(loose, refs.values(), strict=True) if not FULL.fullmatch(ref)]
    return found + [f"requirement `{pin}` is not pinned by `==`" for pin in requirements if not PINNED.fullmatch(pin)]


def freeze_tree(root: Path, source: dict[str, Any]) -> Frozen:
    """A folder of this project. Raises SourceError for a path that leaves it."""
    path = (root / source["path"]).resolve()
    if not path.is_relative_to(root.resolve()) or not path.is_dir():
        raise SourceError(f"path `{source['path']}` is no folder of the project")
    return Frozen(facts={**NOTHING, **frozen_tree(path)}, path=None, moves=False, source=source)


def freeze_git(name: str, source: dict[str, Any], remote: Remote, home: Path, earlier: dict[str, Any] | None) -> Frozen:
    """A commit of a repository; `earlier` is what this run froze before, and stays. Raises SourceError, Unreachable."""
    url, ref, branch = source["url"], source["ref"], source.get("branch", "")
    if earlier is None:
        found = resolve(remote, url, ref, branch)
    else:
        resolve(remote, url, earlier["commit"], "")
        found = Resolved(
            commit=earlier["commit"], kind=earlier["kind"], note=moved(remote, url, ref, earlier["commit"])
        )
    body = checkout(remote, name, url, found.commit, home)
    path = Path(body.pop("path"))
    facts = {**NOTHING, **body, "kind": "git", "ref": ref, "ref_kind": found.kind, "note": found.note}
    return Frozen(facts=facts, path=path, moves=found.moves, source=source)


def moved(remote: Remote, url: str, ref: str, frozen: str) -> str:
    """What a resumed run says of a branch or tag that it froze before."""
    try:
        tip = tip_of(remote, url, ref)
    except Unreachable:
        return f"frozen in this run before; whether `{ref}` has moved since could not be asked"
    if tip == frozen:
        return ""
    now = f"is {tip} now" if tip else "is gone now"
    return f"`{ref}` has moved since this run froze it at {frozen}: it {now}"


def freeze_release(source: dict[str, Any]) -> Frozen:
    """A release of the package index; its hashes are checked by the installer."""
    hashes = source["sha256"]
    if not isinstance(hashes, list) or not hashes or not all(SHA256.fullmatch(str(one)) for one in hashes):
        raise SourceError(f"release `{source['distribution']}`: `sha256` is no list of 64 hexadecimal digits each")
    pin = f"{source['distribution']}=={source['version']}"
    if not PINNED.fullmatch(pin):
        raise SourceError(f"release `{pin}` is no exact version")
    facts = {**NOTHING, "kind": "release", "ref": pin, "sha256": ",".join(hashes), "files": len(hashes), "bytes": 0}
    return Frozen(facts=facts, path=None, moves=False, source=source)


def requirement_of(source: dict[str, Any]) -> str:
    """The line that makes an installer check a release's hashes."""
    hashes = "".join(f" --hash=sha256:{one}" for one in source["sha256"])
    return f"{source['distribution']}=={source['version']}{hashes}"


NOTHING: dict[str, Any] = {
    "url": None,
    "ref": None,
    "ref_kind": None,
    "commit": None,
    "tree": None,
    "submodules": [],
    "describe": None,
    "dirty": [],
    "note": "",
}
