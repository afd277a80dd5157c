"""Run directories: opening the one of a plan, what stands in its manifest, and setting stale things aside."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock

from kassay import digest, host, paths
from kassay.config.kconfig import Setting
from kassay.errors import RunError
from kassay.plan import Plan
from kassay.stage import utc_now


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What the driver knows besides the plan."""

    results: Path
    settings: dict[str, Setting]
    overrides: list[str]
    interpreter: str  # of stages without a stack
    timeout_s: float


def set_aside(directory: Path) -> None:
    """Rename a stale stage directory to `.<name>.stale-<n>`; a link to another run's is only taken away.

    Other runs' links to it follow, so that what they reused stays what it was.
    """
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        n = 1
        while (target := directory.with_name(f".{directory.name}.stale-{n}")).exists():
            n += 1
        links = [link for link in directory.parents[2].glob(f"*/stages/{directory.name}") if points_to(link, directory)]
        directory.rename(target)
        for link in links:
            link_to(link, target)


def same_request(directory: Path, request: dict[str, Any]) -> bool:
    """Whether a directory was asked this very thing, from whatever shell."""
    try:
        before = json.loads((directory / paths.REQUEST).read_bytes())
    except (OSError, ValueError):
        return False  # it was never asked as a whole
    return isinstance(before, dict) and before | {"environment": None} == request | {"environment": None}


def points_to(link: Path, directory: Path) -> bool:
    """Whether `link` is a symbolic link to `directory`."""
    return link.is_symlink() and link.resolve() == directory.resolve()


def link_to(link: Path, directory: Path) -> None:
    """Make `link` a relative symbolic link to a stage directory of another run, in one step."""
    temporary = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    temporary.symlink_to(os.path.relpath(directory.resolve(), link.parent.resolve()), target_is_directory=True)
    temporary.replace(link)


def open_run(plan: Plan, setup: Setup) -> Path:
    """The newest run directory of this very plan and profile, or a new one with its plan and manifest."""
    results = setup.results
    if results == paths.ROOT:
        raise RunError(f"{results}: the project itself is no results folder", hint="make RESULTS=<folder>")
    try:
        if not results.is_dir():
            results.mkdir(parents=True)
            (results / ".gitignore").write_text("*\n")  # or what comes out would be part of the frozen tree
        with filelock.FileLock(results / paths.LOCK):
            directory = earlier_run(plan, results) or new_run(plan, setup)
            point_latest(results, directory.name)
    except OSError as error:
        raise RunError(f"{results}: cannot be written: {error.strerror}", hint="make RESULTS=<folder>") from None
    return directory


def earlier_run(plan: Plan, results: Path) -> Path | None:
    """The newest run by its own record that has this plan and profile; a folder without that record is none."""
    found: list[tuple[str, Path]] = []
    for path in results.glob(f"*-{plan.hash()[:8]}"):
        try:
            planned, told = (json.loads((path / name).read_bytes()) for name in (paths.PLAN, paths.MANIFEST))
            if (planned["hash"], planned["profile"], told["run"]) == (plan.hash(), plan.profile, path.name):
                found.append((told["created_at"], path))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # whatever it is, nothing of it is resumed
    return max(found)[1] if found else None


def new_run(plan: Plan, setup: Setup) -> Path:
    """A new run directory, there at once with its plan and manifest or not at all."""
    stamp = utc_now()[:19].replace("-", "").replace(":", "")
    directory = setup.results / f"{plan.profile}-{stamp}Z-{plan.hash()[:8]}"
    making = setup.results / f".{directory.name}.{secrets.token_hex(4)}"
    (making / "stages").mkdir(parents=True)
    digest.write_json(making / paths.PLAN, plan.to_json())
    digest.write_json(making / paths.MANIFEST, manifest(plan, setup, directory.name))
    making.rename(directory)
    return directory


def point_latest(results: Path, name: str) -> None:
    """Make `latest` point to the run, in one step."""
    temporary = results / f".latest.{secrets.token_hex(4)}"
    temporary.symlink_to(name, target_is_directory=True)
    temporary.replace(results / "latest")


def manifest(plan: Plan, setup: Setup, run: str) -> dict[str, Any]:
    """What was asked, and where it runs."""
    return {
        "schema": "kassay.manifest/1",
        "run": run,
        "plan_hash": plan.hash(),
        "created_at": utc_now(),
        "host": host.describe(),
        "settings": {name: asdict(setting) for name, setting in setup.settings.items()},
        "overrides": setup.overrides,
    }
