"""The plan of the present .config, composed anew only if something that it is composed of has changed.

Kconfig and Hydra take most of the time of a `make` that has nothing to do. What they read is small: its digest names a
file under build/plans that holds the plan and the settings. Another .config, workflow file, override, version of
kassay or of a library is another digest.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import atomic, cache, paths
from kassay.config.setting import Setting
from kassay.errors import ConfigError
from kassay.plan import Plan
from kassay.words import Given

KEPT_PLANS = 50  # a plan of twenty stages has 40 kB


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What a command line and the .config ask for."""

    plan: Plan
    settings: dict[str, Setting]
    overrides: list[str]


def planned(given: Given) -> Planned:
    """The plan of .config with the symbols and overrides of the command line. Raises ConfigError, PlanError."""
    if given.symbols and paths.config().is_file():
        from kassay.config import kconfig

        kconfig.set_variables(given.symbols, paths.config())
    place = paths.plans() / f"{key_of(given.overrides)}.json"
    if (told := cache.read(place)) is not None:
        plan = Plan.from_json(told["plan"])
        if all(path == "." or paths.are(path) == 1 for path in trees_read(plan)):
            settings = {name: Setting(**setting) for name, setting in told["settings"].items()}
            return Planned(plan=plan, settings=settings, overrides=told["overrides"])
    made = composed(given.overrides)
    keep(place, made)
    return made


def trees_read(plan: Plan) -> set[str]:
    """The files and folders of the trees that stages read."""
    references = {reference for stage in plan.stages for reference in stage.inputs.values()}
    return {reference.removeprefix("tree:") for reference in references if reference.startswith("tree:")}


def composed(text: str) -> Planned:
    """The plan by way of Kconfig and Hydra."""
    from kassay import plan
    from kassay.config import compose, kconfig

    settings = kconfig.load(paths.config())
    overrides = compose.split_overrides(text)
    return Planned(plan=plan.of_settings(settings, overrides), settings=settings, overrides=overrides)


def study_of(given: Given) -> tuple[str, dict[str, Any], Path]:
    """Workflow, composed study and results folder of .config; the stages need not be resolvable.

    Raises ConfigError for a study that is not whole, and for a workflow without one.
    """
    from kassay.config import compose, kconfig

    if given.symbols and paths.config().is_file():
        kconfig.set_variables(given.symbols, paths.config())
    settings = kconfig.load(paths.config())
    workflow = str(settings["WORKFLOW"].value)
    folder = paths.place(f"{paths.WORKFLOWS}/{workflow}")
    made = compose.compose(folder, settings, compose.split_overrides(given.overrides), only_study=True)
    if not isinstance(study := made.get("study"), dict):
        raise ConfigError(f"workflow `{workflow}` has no study to freeze", hint="make listdefconfigs")
    return workflow, study, paths.results_dir(str(settings["RESULTS"].value))


def keep(place: Path, made: Planned) -> None:
    """Write a plan down and forget the oldest of too many."""
    settings = {name: asdict(setting) for name, setting in made.settings.items()}
    cache.write(place, {"plan": made.plan.to_json(), "settings": settings, "overrides": made.overrides})
    others = sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [*others[KEPT_PLANS:], *place.parent.glob(f".*{atomic.SUFFIX}")]:
        path.unlink(missing_ok=True)  # what a killed writer left of another plan nobody would take over


def key_of(overrides: str) -> str:
    """Hex SHA-256 over everything that a plan is composed of: names and bytes of files, names of programs, versions."""
    summed = hashlib.sha256(repr((overrides, sys.version, libraries(), programs())).encode(errors="surrogateescape"))
    for path in ingredients():
        summed.update(str(path).encode(errors="surrogateescape") + b"\0")
        try:
            data = path.read_bytes()
        except OSError:
            data = b"absent"
        summed.update(hashlib.sha256(data).digest())
    return summed.hexdigest()


def ingredients() -> Iterator[Path]:
    """The files that are read on the way from .config to a plan, in a fixed order."""
    yield paths.config()
    for tree in paths.trees():
        yield from [tree / paths.KCONFIG, *sorted((tree / paths.STAGES).glob("Kconfig.*"))]
        for folder in (paths.WORKFLOWS, paths.DEFCONFIGS):
            yield from (path for path in sorted((tree / folder).rglob("*")) if path.is_file())
    own = Path(__file__).parent
    yield from sorted([*own.glob("*.py"), *(own / "config").glob("*.py"), *(own / "study").glob("*.py")])
    yield own / "kv" / "recipe.py"  # a study's arms are recipes


def programs() -> list[list[str]]:
    """Names of the stage programs in each tree, and the trees."""
    return [[str(tree), *sorted(path.name for path in (tree / paths.STAGES).glob("*.py"))] for tree in paths.trees()]


def libraries() -> list[str]:
    """Installed distributions beside kconfiglib, by the names of their folders, which hold their versions."""
    found = importlib.util.find_spec("kconfiglib")
    if found is None or found.origin is None:
        raise ConfigError("the framework's environment has no kconfiglib", hint="make setup")
    return sorted(name for name in os.listdir(Path(found.origin).parent) if name.endswith(".dist-info"))
