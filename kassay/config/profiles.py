"""Profiles: the files that `<profile>+<fragment>+…` names, their assignments, and what a later file overrides."""

import difflib
import re
from pathlib import Path

import kconfiglib

from kassay import paths
from kassay.config.assignments import Assignment, read_assignments
from kassay.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
SUFFIX = ".config"  # of a fragment


def profile_files(name: str, root: Path) -> list[tuple[Path, str]]:
    """Files of `<profile>+<fragment>+…` with their origin. Raises ConfigError for a name that does not exist."""
    profile, *fragments = name.split("+")
    folder = root / paths.DEFCONFIGS.name
    wanted = [(profile, folder, "", "profile")]
    wanted += [(fragment, folder / paths.FRAGMENTS.name, SUFFIX, "fragment") for fragment in fragments]
    errors = []
    for word, place, suffix, origin in wanted:
        if not NAME.fullmatch(word) or not (place / f"{word}{suffix}").is_file():
            known = sorted(file.name.removesuffix(suffix) for file in place.iterdir() if file.is_file())
            close = difflib.get_close_matches(word, known, n=1)
            guess = f"; did you mean `{close[0]}`?" if close else ""
            errors.append(f"unknown {origin} `{word}`{guess}")
    if errors:
        raise ConfigError(*errors, hint="make listdefconfigs")
    return [(place / f"{word}{suffix}", origin) for word, place, suffix, origin in wanted]


def profile_assignments(name: str, root: Path) -> list[Assignment]:
    """All assignments of a profile and its fragments, left to right."""
    return [line for path, origin in profile_files(name, root) for line in read_assignments(path, origin)]


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
