"""Hydra in the driver: a workflow's yaml files, Kconfig symbols as typed values, and the user's overrides.

Each group folder beside workflow.yaml (`study/`, `models/`, `stack/`) is chosen by the Kconfig symbol of its name.
`${kconfig:SYMBOL}` gives the typed value. `SET="a.b=c"` takes Hydra's own override grammar. The result is plain data:
dicts, lists and scalars, nothing of OmegaConf's.
"""

import re
import shlex
from pathlib import Path
from typing import Any, cast

from kassay import paths
from kassay.config.locate import WORKFLOW_FILE, place_of
from kassay.config.setting import Setting
from kassay.config.tree import nearest
from kassay.dotted import flat
from kassay.errors import ConfigError

MISSING = "???"  # OmegaConf's mark of a value that must be given
RAISED = "ValueError raised while resolving interpolation: "
HINT_SET = 'an override reads SET="study.alpha=0.05"; quote what is not a plain word'


def compose(workflow_dir: Path, settings: dict[str, Setting], overrides: list[str]) -> dict[str, Any]:
    """The composed workflow. Raises ConfigError for a misspelt key, a bad override or a missing value (`???`)."""
    choices = group_choices(workflow_dir, settings)
    if not overrides:
        return composed(workflow_dir, settings, choices, [])
    plain = composed(workflow_dir, settings, choices, [], lenient=True)
    try:
        changed = composed(workflow_dir, settings, choices, overrides)
    except Unoverridable as error:
        raise ConfigError(f"SET: {str(error).rstrip('.')}{suggestion(str(error), plain)}", hint=HINT_SET) from None
    if errors := retyped(plain, changed):
        raise ConfigError(*(f"{workflow_dir.name}/{WORKFLOW_FILE}: {error}" for error in errors))
    return changed


class Unoverridable(Exception):
    """Hydra does not take an override."""


def suggestion(message: str, plain: dict[str, Any]) -> str:
    """The nearest key to the one that a message of Hydra quotes."""
    quoted = re.search(r"'([\w.@-]+)'", message)
    keys = [key for key in flat(plain) if not key.startswith("stages.")]
    return nearest(quoted[1], keys) if quoted and quoted[1] not in keys else ""


def composed(
    workflow_dir: Path,
    settings: dict[str, Setting],
    choices: dict[str, str],
    overrides: list[str],
    lenient: bool = False,
) -> dict[str, Any]:
    """What Hydra makes of the files and overrides, as plain data. Raises ConfigError with all faults of the files.

    With `lenient`, a key that has no value (an override may give it) is `???` in the result.
    """
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    resolve_from(settings)
    chosen = [f"{group}={name}" for group, name in choices.items()]
    try:
        with initialize_config_dir(config_dir=str(workflow_dir), version_base="1.3"):
            config = hydra_compose("workflow", overrides=[*chosen, *overrides])
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).strip().splitlines()[0]
        if overrides:
            raise Unoverridable(first) from None
        raise ConfigError(f"{workflow_dir.name}/{WORKFLOW_FILE}: {first}") from None
    except yaml.YAMLError as error:
        said = " ".join(str(error).replace(f"{workflow_dir.parent}/", "").split())
        raise ConfigError(f"{workflow_dir.name}: a file is not YAML: {said}") from None
    faults = unresolved(config, lenient)
    if faults and not lenient:
        raise ConfigError(
            *(f"{place_of(workflow_dir, choices, key)}: `{key}`: {fault}" for key, fault in sorted(faults.items()))
        )
    for key in faults:
        OmegaConf.update(config, key, MISSING)
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=True, throw_on_missing=not lenient))


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


def unresolved(config: Any, lenient: bool, prefix: str = "") -> dict[str, str]:
    """Every key of a composed config whose value is missing or cannot be resolved, with the reason."""
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
            if not isinstance(error, InterpolationToMissingValueError):  # what is missing is told where it stands
                found[key] = str(error).strip().splitlines()[0].removeprefix(RAISED)
            elif lenient:
                found[key] = MISSING
            continue
        if isinstance(value, Container) and not OmegaConf.is_interpolation(config, word):
            found |= unresolved(value, lenient, key)
    return found


def retyped(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What the overrides gave another type than the files have; a stage's copies of a value are not told again."""
    old, new = flat(before), flat(after)
    errors = {
        key: f"`{key}` is {kind(old[key])} in the files, an override made it `{new[key]}`, which is {kind(new[key])}"
        for key in sorted(old.keys() & new.keys())
        if kind(old[key]) != kind(new[key]) and old[key] != MISSING
        if not (isinstance(old[key], float) and kind(new[key]) == "an int")
    }
    sources = [error for key, error in errors.items() if not key.startswith("stages.")]
    return sources or list(errors.values())


def kind(value: Any) -> str:
    """The JSON type of a value, with its article."""
    names = {bool: "a bool", int: "an int", float: "a float", str: "a string", list: "a list", type(None): "null"}
    return names[type(value)]


def group_choices(workflow_dir: Path, settings: dict[str, Setting]) -> dict[str, str]:
    """The chosen file of every group folder, from the Kconfig symbol of the group's name."""
    chosen = {}
    errors = []
    for folder in sorted(path for path in workflow_dir.iterdir() if path.is_dir()):
        name = folder.name.upper()
        value = str(settings[name].value) if name in settings else ""
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        if name not in settings:
            errors.append(f"{paths.shown(folder)}: no Kconfig symbol `{name}` chooses a file of this group")
        elif value not in known:
            errors.append(f"{paths.shown(folder)}: `{name}` is `{value}`, allowed are {', '.join(known)}")
        chosen[folder.name] = value
    if errors:
        raise ConfigError(*errors)
    return chosen


def split_overrides(text: str) -> list[str]:
    """The overrides in `SET="a.b=c d=e"`, split as a shell would."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"SET `{text}`: {error}") from None
