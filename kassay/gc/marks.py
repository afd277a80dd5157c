"""What shows that a folder below build/ was made by kassay: nothing without such a mark is ever deleted."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from kassay import digest, paths
from kassay.errors import SourceError
from kassay.source.address import slug
from kassay.source.command import git
from kassay.source.wheel import BUILT

MAKING = ".making-"
HALF_MADE = re.compile(r"\.(?P<name>.+)\.making-[\w-]+")
KEY = re.compile(r"[0-9a-f]{16}")
CHECKOUT = re.compile(r".+-(?P<commit>[0-9a-f]{12})-(?P<url>[0-9a-f]{6})")


def half_made(path: Path) -> bool:
    """Whether a name is one under which something is made, or taken away."""
    return HALF_MADE.fullmatch(path.name) is not None


def lock_of(path: Path) -> Path:
    """The lock that whoever makes or uses a place holds."""
    half = HALF_MADE.fullmatch(path.name)
    name = half["name"] if half else path.name
    return path.with_name(f"{name}.lock" if path.parent.name == "mirrors" else f".{name}.lock")


def stack(path: Path) -> str:
    """Why an environment is not ours; empty if it is."""
    if not KEY.fullmatch(path.name):
        return "its name is no key"
    return "" if has(path / paths.ATTESTED, "lock") else f"it has no {paths.ATTESTED}"


def wheel(path: Path) -> str:
    """The same of a built wheel."""
    return "" if has(path / BUILT, "key", path.name) else f"it has no {BUILT} of its key"


def checkout(path: Path) -> str:
    """The same of a working tree: its name says commit and url."""
    named = CHECKOUT.fullmatch(path.name)
    if named is None or (path / ".git").is_symlink() or not (path / ".git").is_dir():
        return "it is no checkout"
    try:
        head = (path / ".git" / "HEAD").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "it has no HEAD"
    fits = head.startswith(named["commit"]) and digest.of_value(origin(path)).startswith(named["url"])
    return "" if fits else "its commit or origin is not the one of its name"


def mirror(path: Path) -> str:
    """The same of a bare repository: its name follows from its url."""
    url = origin(path)
    fits = url and path.name == f"{slug(url)}-{digest.of_value(url)[:12]}.git"
    return "" if fits else "its name does not follow from its origin"


def origin(repository: Path) -> str:
    """The url that a repository was made from; empty if it cannot be told."""
    try:
        return git("config", "--default", "", "remote.origin.url", cwd=repository).strip()
    except SourceError:
        return ""


def has(path: Path, key: str, value: str | None = None) -> bool:
    """Whether a JSON object stands in a file, with that key."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(body, dict) and key in body and (value is None or body[key] == value)


FOLDERS: dict[str, Callable[[Path], str]] = {
    "stacks": stack,
    "mirror": stack,
    "wheels": wheel,
    "sources": checkout,
    "mirrors": mirror,
}
