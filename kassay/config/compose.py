"""Hydra in the driver: a workflow's yaml files, Kconfig symbols as typed values, and the user's overrides.

Each group folder (`study/`, `models/`, `stack/`; where they lie says kassay.config.groups) is chosen by the Kconfig
symbol of its name.
`${kconfig:SYMBOL}` gives the typed value. `SET="a.b=c"` takes Hydra's own override grammar. The result is plain data:
dicts, lists and scalars, nothing of OmegaConf's.
"""

import re
import shlex
from pathlib import Path
from typing import Any, cast

from kassay import paths
from kassay.config import groups
from kassay.config.locate import WORKFLOW_FILE, place_of
from kassay.config.setting import Setting
from kassay.config.tree import nearest
from kassay.dotted import flat
from kassay.errors import ConfigError

MISSING = "???"  # OmegaConf's mark of a value that must be given
RAISED = "ValueError raised while resolving interpolation: "
HINT_SET = 'an override reads SET="study.alpha=0.05"; quote what is not a plain word'


def compose(
    workflow_dir: Path, settings: dict[str, Setting], overrides: list[str], only_study: bool = False
) -> dict[str, Any]:
    """The composed workflow. Raises ConfigError for a misspelt key, a bad override or a missing value (`???`).

    With `only_study` its stages may be unresolvable: the study alone is asked for.
    """
    choices = group_choices(workflow_dir, settings)
    places, hint = overridden(choices, overrides), None
    try:
        made, found = composed(workflow_dir, settings, choices, overrides)
    except Unoverridable as error:
        plain, _ = composed(workflow_dir, settings, choices, [])
        raise ConfigError(f"SET: {str(error).rstrip('.')}{suggestion(str(error), plain)}", hint=HINT_SET) from None
    if strict := bool(made.get("study_schema")):
        from kassay.config import studied

        found, hint = studied.faults(made, found, workflow_dir, places, only_study)
    if overrides and not (strict and found):
        before, _ = composed(workflow_dir, settings, places, [])
        if errors := retyped(before, made, overrides, strict):
            raise ConfigError(*(f"{workflow_dir.name}/{WORKFLOW_FILE}: {error}" for error in errors))
    if found:
        told = [f"{place_of(workflow_dir, places, key)}: `{key}`: {text}" for key, text in sorted(found.items())]
        raise ConfigError(*told, hint=hint)
    return made


class Unoverridable(Exception):
    """Hydra does not take an override."""


def suggestion(message: str, plain: dict[str, Any]) -> str:
    """The nearest key to the one that a message of Hydra quotes."""
    quoted = re.search(r"'([\w.@-]+)'", message)
    keys = [key for key in flat(plain) if not key.startswith("stages.")]
    return nearest(quoted[1], keys) if quoted and quoted[1] not in keys else ""


def composed(
    workflow_dir: Path, settings: dict[str, Setting], choices: dict[str, str], overrides: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What Hydra makes of the files and overrides, as plain data, and what is wrong with each key that is `???` in it.

    A key that takes a missing value of another one is `???` too, and is not told.
    """
    from omegaconf import OmegaConf

    config = of_hydra(workflow_dir, settings, choices, overrides)
    found = unresolved(config)
    for key in found:
        OmegaConf.update(config, key, MISSING)
    plain = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=False))
    return plain, {key: fault for key, fault in found.items() if fault != MISSING}


def overridden(choices: dict[str, str], overrides: list[str]) -> dict[str, str]:
    """The chosen files where overrides such as `study=smoke` choose others."""
    words = (word.partition("=") for word in overrides)
    return choices | {name: file for name, _, file in words if name in choices}


def of_hydra(workflow_dir: Path, settings: dict[str, Setting], choices: dict[str, str], overrides: list[str]) -> Any:
    """The composed config, nothing of it resolved. Raises ConfigError, or Unoverridable where overrides may be why."""
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    resolve_from(settings)
    chosen = [f"{group}={name}" for group, name in choices.items()]
    try:
        with initialize_config_dir(config_dir=str(workflow_dir), version_base="1.3"):
            return hydra_compose("workflow", overrides=[*groups.search_path(workflow_dir), *chosen, *overrides])
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).strip().splitlines()[0]
        if overrides:
            raise Unoverridable(first) from None
        raise ConfigError(f"{workflow_dir.name}/{WORKFLOW_FILE}: {first}") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).replace(f"{workflow_dir.parent}/", "").split())
        raise ConfigError(f"{workflow_dir.name}: a file is not YAML: {said}") from None


def resolve_from(settings: dict[str, Setting]) -> None:
    """Let `${kconfig:SYMBOL}` be the typed value of a setting, and nothing of the environment be a value."""
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    def symbol(name: str) -> Any:
        """The value of one symbol."""
        if name not in settings:
            raise ValueError(f"no Kconfig symbol `{name}` answers `${{kconfig:{name}}}`")
        return settings[name].value

    OmegaConf.register_new_resolver("kconfig", symbol, replace=True)
    OmegaConf.clear_resolver("oc.env")  # it would have no provenance
    GlobalHydra.instance().clear()


def unresolved(config: Any, prefix: str = "") -> dict[str, str]:
    """Every key of a composed config whose value is missing or cannot be resolved, with the reason.

    What takes a missing value of another key has `???` as its reason: it is told where it is missing.
    """
    from omegaconf import Container, ListConfig, OmegaConf
    from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

    found: dict[str, str] = {}
    for word in range(len(config)) if isinstance(config, ListConfig) else list(config):
        key = f"{prefix}[{word}]" if isinstance(config, ListConfig) else f"{prefix}.{word}".removeprefix(".")
        if OmegaConf.is_missing(config, word):
            found[key] = f"has no value: `{MISSING}` marks one that must be given"
            continue
        try:
            value = config[word]
        except OmegaConfBaseException as error:
            missing = isinstance(error, InterpolationToMissingValueError)
            found[key] = MISSING if missing else str(error).strip().splitlines()[0].removeprefix(RAISED)
            continue
        if isinstance(value, Container) and not OmegaConf.is_interpolation(config, word):
            found |= unresolved(value, key)
    return found


def retyped(before: dict[str, Any], after: dict[str, Any], overrides: list[str], strict: bool) -> list[str]:
    """What the overrides gave another type than the files have; a stage's copies of a value are not told again.

    A study that is read strictly has types of its own.
    """
    old, new = flat(before), flat(after)
    of_stages = any(word.lstrip("+~").startswith("stages.") for word in overrides)
    errors = {
        key: f"`{key}` is {kind(old[key])} in the files, an override made it `{new[key]}`, which is {kind(new[key])}"
        for key in sorted(old.keys() & new.keys())
        if kind(old[key]) != kind(new[key]) and MISSING not in (old[key], new[key])
        if not (isinstance(old[key], float) and kind(new[key]) == "an int")
        if not (strict and key.startswith("study."))
        if of_stages or not (strict and key.startswith("stages."))
    }
    sources = [error for key, error in errors.items() if not key.startswith("stages.")]
    return sources or list(errors.values())


def kind(value: Any) -> str:
    """The JSON type of a value, with its article."""
    names = {bool: "a bool", int: "an int", float: "a float", str: "a string", list: "a list", dict: "a mapping"}
    return names.get(type(value), "null")


def group_choices(workflow_dir: Path, settings: dict[str, Setting]) -> dict[str, str]:
    """The chosen file of every group folder, from the Kconfig symbol of the group's name."""
    chosen = {}
    errors = []
    for group, folder in groups.folders(workflow_dir).items():
        name = group.upper()
        value = str(settings[name].value) if name in settings else ""
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        if name not in settings:
            errors.append(f"{paths.shown(folder)}: no Kconfig symbol `{name}` chooses a file of this group")
        elif value not in known:
            errors.append(f"{paths.shown(folder)}: `{name}` is `{value}`, allowed are {', '.join(known)}")
        chosen[group] = value
    if errors:
        raise ConfigError(*errors)
    return chosen


def split_overrides(text: str) -> list[str]:
    """The overrides in `SET="a.b=c d=e"`, split as a shell would."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"SET `{text}`: {error}") from None
