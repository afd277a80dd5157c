"""Which project the command line works on: the clone that this kassay lies in, or, for an installed one, the user's.

A project is a clone: Kconfig, workflows, stages and the very kassay that its results are keyed by. An installed kassay
(`pipx install`, `uv tool install`) therefore runs nothing by itself: it finds the clone around the working folder and
hands over to the kassay of that clone's environment.
"""

import os
from pathlib import Path

from kassay import paths
from kassay.errors import ConfigError

FREE = ("completion", "kv")  # verbs that need no project
OWN = Path(".venv/bin/kassay")
MARKS = (paths.KCONFIG, paths.WORKFLOWS, paths.STAGES)


def require(verb: str, words: list[str]) -> None:
    """Return where there is a project; else become the kassay of the one around. Raises ConfigError without one."""
    if verb in FREE or is_project(paths.ROOT):
        return
    here = Path.cwd()
    around = next((folder for folder in (here, *here.parents) if is_project(folder)), None)
    if around is None:
        raise ConfigError(
            f"no project: neither {here} nor a folder above it holds {', '.join(MARKS)}",
            hint="cd into a clone of kassay; this one is installed, and only hands over to that of a clone",
        )
    if not (around / OWN).is_file():
        raise ConfigError(
            f"{around} has no environment of its own: {OWN} does not exist", hint=f"make -C {around} setup"
        )
    os.execv(around / OWN, [str(around / OWN), *words])


def is_project(folder: Path) -> bool:
    """Whether a folder is a project."""
    return all((folder / mark).exists() for mark in MARKS)
