"""Profiles: the files that `<profile>+<fragment>+…` names, their heads and lines, and what a later file overrides."""

import re
from pathlib import Path

import kconfiglib

from kassay import paths
from kassay.config.assignments import Assignment, read_assignments
from kassay.config.tree import nearest
from kassay.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
SUFFIX = ".config"  # of a fragment


def profiles() -> dict[str, list[Path]]:
    """Name -> files of every profile in all trees; a name with two files is an error where it is used."""
    return by_name([path for path in paths.entries(paths.DEFCONFIGS) if path.is_file()], "")


def fragments() -> dict[str, list[Path]]:
    """Name -> files of every fragment in all trees."""
    return by_name(paths.entries(paths.FRAGMENTS, f"[!.]*{SUFFIX}"), SUFFIX)


def by_name(files: list[Path], suffix: str) -> dict[str, list[Path]]:
    """Files by what a user calls them."""
    found: dict[str, list[Path]] = {}
    for path in files:
        found.setdefault(path.name.removesuffix(suffix), []).append(path)
    return found


def profile_files(name: str) -> list[tuple[Path, str]]:
    """Files of `<profile>+<fragment>+…` with their origin. Raises ConfigError for a name that no or two trees have."""
    profile, *more = name.split("+")
    found: list[tuple[Path, str]] = []
    errors = []
    asked = [(profile, profiles(), "profile"), *((fragment, fragments(), "fragment") for fragment in more)]
    for word, known, origin in asked:
        files = known.get(word, []) if NAME.fullmatch(word) else []
        if not files:
            errors.append(f"unknown {origin} `{word}`{nearest(word, list(known))}")
        elif len(files) > 1:
            errors.append(f"{origin} `{word}` is in two trees: {', '.join(map(paths.shown, files))}")
        else:
            found.append((files[0], origin))
    if errors:
        raise ConfigError(*errors, hint="make listdefconfigs")
    return found


def full_name(profile: str, fragments: str) -> str:
    """`<profile>+<fragment>+…` of the two names that a configuration keeps; empty if it came from no profile."""
    return "+".join(filter(None, (profile, fragments)))


def profile_assignments(name: str) -> list[Assignment]:
    """All assignments of a profile and its fragments, left to right."""
    return [line for path, origin in profile_files(name) for line in read_assignments(path, origin)]


def head_lines(path: Path) -> list[str]:
    """The comment lines before the first assignment of a profile."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#") or line.startswith("# CONFIG_"):
            break
        lines.append(line)
    return lines


def head_comment(path: Path) -> dict[str, str]:
    """The `purpose: …; hardware: …; time: …` of a profile's first comment line."""
    first = next(iter(head_lines(path)), "").lstrip("# ")
    parts = (part.partition(":") for part in first.split(";"))
    return {key.strip(): text.strip() for key, _, text in parts if key.strip()}


def overridden(kconf: kconfiglib.Kconfig, assignments: list[Assignment]) -> list[str]:
    """A message for each symbol or choice that a later file sets otherwise than an earlier one: the last wins."""
    standing: dict[object, Assignment] = {}
    messages = []
    for line in assignments:
        symbol = kconf.syms.get(line.name)
        if symbol is None or (symbol.choice is not None and line.text != "y"):
            continue
        key = symbol.choice if symbol.choice is not None else line.name
        before = standing.get(key)
        if before is not None and (before.name, before.text) != (line.name, line.text):
            messages.append(
                f"{line.where}: `{line.name}={line.text}` overrides `{before.name}={before.text}` of {before.where}"
            )
        standing[key] = line
    return messages
