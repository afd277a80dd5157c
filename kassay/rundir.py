"""Run directories: opening the one of a plan, what stands in its manifest, and setting stale things aside."""

import itertools
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import atomic, digest, host, paths
from kassay.config.setting import Setting
from kassay.earlier import STALE
from kassay.errors import RunError
from kassay.lock import held
from kassay.plan import Plan
from kassay.stage import utc_now

MAKING = ".making"  # a run directory that is not whole yet


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What the driver knows besides the plan."""

    results: Path
    settings: dict[str, Setting]
    overrides: list[str]
    interpreter: str  # of stages without a stack
    timeout_s: float  # of stages that name none
    only: frozenset[str]  # run these and what they need; all if empty
    force: frozenset[str]  # run these whatever is there
    keep: frozenset[str]  # take what is there of these, stale or not


def set_aside(directory: Path) -> Path | None:
    """Rename a stale stage directory to `.<name>.stale-<n>` and say where it is; a link to another run is taken away.

    Other runs' links to it follow, so that what they reused stays what it was.
    """
    directory.with_name(f".{directory.name}{atomic.SUFFIX}").unlink(missing_ok=True)  # a link that was not made
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        n = 1
        while (target := directory.with_name(f".{directory.name}{STALE}{n}")).exists():
            n += 1
        links = [link for link in directory.parents[2].glob(f"*/stages/{directory.name}") if points_to(link, directory)]
        directory.rename(target)
        for link in links:
            link_to(link, target)
        return target
    return None


def same_request(directory: Path, request: dict[str, Any]) -> bool:
    """Whether a directory was asked this very thing, from whatever shell."""
    try:
        before = json.loads((directory / paths.REQUEST).read_bytes())
    except (OSError, ValueError):
        return False  # it was never asked as a whole
    volatile = {"environment": None, "grant": None, "attempt": None, "timeout_s": None, "protocol": None}
    return isinstance(before, dict) and before | volatile == request | volatile


def short_of_disk(run_dir: Path, wanted_gib: float) -> str:
    """What the results folder lacks of the space that is wanted, in words; empty if it is there."""
    free_gib = shutil.disk_usage(run_dir).free / 2**30
    if free_gib >= wanted_gib:
        return ""
    return f"{paths.shown(run_dir.parent)} has {free_gib:.1f} GiB free, {wanted_gib:g} are needed"


def make_place(directory: Path) -> None:
    """Make the empty directory of a stage. Raises RunError if the run itself has been removed meanwhile."""
    run_dir = directory.parent.parent
    if not run_dir.is_dir():
        raise RunError(f"{paths.shown(run_dir)}: it was removed while the run went on", hint="make runs it anew")
    directory.parent.mkdir(exist_ok=True)
    directory.mkdir(exist_ok=True)


def points_to(link: Path, directory: Path) -> bool:
    """Whether `link` is a symbolic link to `directory`."""
    return link.is_symlink() and link.resolve() == directory.resolve()


def link_to(link: Path, directory: Path) -> None:
    """Make `link` a relative symbolic link to a stage directory of another run, in one step."""
    atomic.point(link, os.path.relpath(directory.resolve(), link.parent.resolve()))


def open_run(plan: Plan, setup: Setup) -> Path:
    """The newest run directory of this very plan and profile, or a new one with its plan and manifest."""
    results = setup.results
    if results == paths.ROOT:
        raise RunError(f"{results}: the project itself is no results folder", hint="make RESULTS=<folder>")
    try:
        if not results.is_dir():
            results.mkdir(parents=True)
            (results / ".gitignore").write_text("*\n")  # or what comes out would be part of the frozen tree
        with held(results / paths.LOCK, wait=True):
            directory = earlier_run(plan, results) or new_run(plan, setup)
            atomic.point(results / "latest", directory.name)
    except OSError as error:
        raise RunError(f"{results}: cannot be written: {error.strerror}", hint="make RESULTS=<folder>") from None
    return directory


def chosen_run(results: Path, name: str | None) -> Path:
    """The directory of a run by its id, the latest if none is given. Raises RunError if it is not there."""
    run_dir = results / (name or "latest")
    if not (run_dir / paths.PLAN).is_file():
        raise RunError(f"no run `{name or 'latest'}` in {paths.shown(results)}", hint="make runs it")
    return run_dir


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
    """A new run directory, there at once with its plan and manifest or not at all. The results folder is locked."""
    stamp = utc_now()[:19].replace("-", "").replace(":", "") + "Z"
    stamps = itertools.chain([stamp], (f"{stamp}.{number}" for number in itertools.count(2)))
    places = (setup.results / f"{plan.profile}-{one}-{plan.hash()[:8]}" for one in stamps)
    directory = next(place for place in places if not place.exists())
    making = setup.results / MAKING
    shutil.rmtree(making, ignore_errors=True)  # of a driver that was killed
    try:
        (making / "stages").mkdir(parents=True)
        digest.write_bytes(making / paths.PLAN, plan.text().encode())
        digest.write_json(making / paths.MANIFEST, manifest(plan, setup, directory.name))
        making.rename(directory)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return directory


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


def kept_of(run_dir: Path) -> dict[str, str]:
    """Stage -> in what its result, which was kept on demand, is stale."""
    try:
        told = json.loads((run_dir / paths.KEPT).read_bytes())["stages"]
        return {str(name): str(why) for name, why in told.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
