"""Hydra in the driver: a workflow's yaml files, Kconfig symbols as typed values, and the user's overrides.

Each group folder beside workflow.yaml (`study/`, `models/`, `stack/`) is chosen by the Kconfig symbol of its name.
`${kconfig:SYMBOL}` gives the typed value. `SET="a.b=c"` takes Hydra's own override grammar. The result is plain data:
dicts, lists and scalars, nothing of OmegaConf's.
"""

import shlex
from pathlib import Path
from typing import Any, cast

from kassay.config.kconfig import Setting
from kassay.errors import ConfigError


def compose(workflow_dir: Path, settings: dict[str, Setting], overrides: list[str]) -> dict[str, Any]:
    """The composed workflow. Raises ConfigError for a misspelt key, a bad override or a missing value (`???`)."""
    plain = composed(workflow_dir, settings, overrides)
    if overrides:
        errors = retyped(composed(workflow_dir, settings, []), plain)
        if errors:
            raise ConfigError(*(f"{workflow_dir.name}/workflow.yaml: {error}" for error in errors))
    return plain


def composed(workflow_dir: Path, settings: dict[str, Setting], overrides: list[str]) -> dict[str, Any]:
    """What Hydra makes of the files and overrides, as plain data."""
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    def symbol(name: str) -> Any:
        if name not in settings:
            raise ValueError(f"no Kconfig symbol `{name}` answers `${{kconfig:{name}}}`")
        return settings[name].value

    OmegaConf.register_new_resolver("kconfig", symbol, replace=True)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(config_dir=str(workflow_dir), version_base="1.3"):
            config = hydra_compose("workflow", overrides=[*group_choices(workflow_dir, settings), *overrides])
            plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{workflow_dir.name}/workflow.yaml: {first}",
            hint='an override reads SET="study.alpha=0.05"; quote what is not a plain word',
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{workflow_dir.name}: a file is not YAML: {' '.join(str(error).split())}") from None
    return cast(dict[str, Any], plain)


def retyped(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What the overrides gave another type than the files have; a stage's copies of a value are not told again."""
    old, new = flat(before), flat(after)
    errors = {
        key: f"`{key}` is {kind(old[key])} in the files, an override made it `{new[key]}`, which is {kind(new[key])}"
        for key in sorted(old.keys() & new.keys())
        if kind(old[key]) != kind(new[key])
        if not (isinstance(old[key], float) and kind(new[key]) == "an int")
    }
    sources = [error for key, error in errors.items() if not key.startswith("stages.")]
    return sources or list(errors.values())


def kind(value: Any) -> str:
    """The JSON type of a value, with its article."""
    names = {bool: "a bool", int: "an int", float: "a float", str: "a string", list: "a list", type(None): "null"}
    return names[type(value)]


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one with dotted keys; an empty dict is a value."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return found


def group_choices(workflow_dir: Path, settings: dict[str, Setting]) -> list[str]:
    """`group=file` for every group folder, from the Kconfig symbol of the group's name."""
    chosen = []
    for folder in sorted(path for path in workflow_dir.iterdir() if path.is_dir()):
        name = folder.name.upper()
        if name not in settings:
            raise ConfigError(f"{folder}: no Kconfig symbol `{name}` chooses a file of this group")
        chosen.append(f"{folder.name}={settings[name].value}")
    return chosen


def split_overrides(text: str) -> list[str]:
    """The overrides in `SET="a.b=c d=e"`, split as a shell would."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"SET `{text}`: {error}") from None
