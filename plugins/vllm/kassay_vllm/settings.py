"""What a user says of the cache: `additional_config={"kassay": {...}}` of a vLLM engine.

recipe      name of a recipe, such as k16v8-d: kassay.kv.recipe
scales      path of a calibration's scales.json, which a fixed recipe needs; a unit scale is never a fallback
continued   what a prefill behind stored tokens does: `refuse`, or `gather` its stored tokens to 16 bits first
lengths     of the sequences of a batch: `uneven`, or `equal`, as in a study of one length (kassay.kernels.split)
cuts        path of a book of measured cuts (kassay.kernels.tuning), optional
observe     numbers of the layers whose operands are kept for the oracle, none by default
calibrate   whether the largest absolute operands are folded; on `native` only
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay.errors import KassayError
from kassay.kv.calibrate import SCHEMA
from kassay.kv.recipe import SEVEN_ARMS, Recipe, recipe_named

KEY = "kassay"
ALLOWED = ("recipe", "scales", "continued", "lengths", "cuts", "observe", "calibrate")
CHOICES = {"continued": ("refuse", "gather"), "lengths": ("uneven", "equal")}
ARMS = tuple(recipe.name for recipe in SEVEN_ARMS)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One engine's cache."""

    recipe: Recipe
    key_scales: tuple[float, ...] | None  # one a layer, of a fixed recipe with 8-bit keys
    value_scales: tuple[float, ...] | None
    continued: str
    lengths: str
    cuts: str | None
    observe: tuple[int, ...]
    calibrate: bool


def read(additional: Mapping[str, Any] | None, sixteen: str, layers: int) -> Settings:
    """The settings of an engine whose model is in `sixteen`. Raises KassayError that names everything wrong."""
    given = (additional or {}).get(KEY)
    if not isinstance(given, Mapping) or "recipe" not in given:
        raise KassayError(
            "attention backend CUSTOM is kassay_vllm's, which needs a recipe",
            hint='additional_config={"kassay": {"recipe": "k16v8-d"}}',
        )
    found = [f"`{KEY}.{name}` is unknown, allowed are {', '.join(ALLOWED)}" for name in given if name not in ALLOWED]
    name = given["recipe"]
    chosen = {choice: given.get(choice, allowed[0]) for choice, allowed in CHOICES.items()}
    if name not in ARMS:
        found.append(f"`{KEY}.recipe` is `{name}`, allowed are {', '.join(ARMS)}")
    for choice, allowed in CHOICES.items():
        if chosen[choice] not in allowed:
            found.append(f"`{KEY}.{choice}` is `{chosen[choice]}`, allowed are {', '.join(allowed)}")
    observe = tuple(given.get("observe", ()))
    if wrong := [index for index in observe if not isinstance(index, int) or not 0 <= index < layers]:
        found.append(f"`{KEY}.observe` names layer {wrong[0]}, allowed are 0 to {layers - 1}")
    if given.get("calibrate", False) and name != "native":
        found.append(f"`{KEY}.calibrate` folds operands on recipe `native`, not on `{name}`")
    if found:
        raise KassayError(*found)
    recipe = recipe_named(name, sixteen)
    keys, values = scales_of(recipe, given.get("scales"), layers)
    return Settings(
        recipe=recipe, key_scales=keys, value_scales=values, cuts=given.get("cuts"),
        observe=observe, calibrate=bool(given.get("calibrate", False)), **chosen,
    )  # fmt: skip


def scales_of(
    recipe: Recipe, path: str | None, layers: int
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Fixed scales of keys and of values, a number a layer; None for a component that has none.

    Raises KassayError for a fixed recipe without a file, for a file of another version, 16-bit format or number of
    layers, and for scales beside a recipe that takes none.
    """
    wanted = [name for name, stored in (("k", recipe.key_format), ("v", recipe.value_format))
              if recipe.policy_of(stored) == "fixed"]  # fmt: skip
    if not wanted:
        if path is not None:
            raise KassayError(f"recipe `{recipe.name}` has no fixed scales, and `{KEY}.scales` names a file of them")
        return None, None
    if path is None:
        raise KassayError(
            f"recipe `{recipe.name}` has fixed scales, and `{KEY}.scales` names no file: no scale of 1 replaces it",
            hint="calibrate first (docs/vllm.md), or take the recipe's dynamic form",
        )
    try:
        held = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise KassayError(f"{path}: no calibration's scales ({error})") from error
    if not isinstance(held, dict) or held.get("schema") != SCHEMA:
        raise KassayError(f"{path}: the scales are no {SCHEMA}", hint="calibrate again")
    if held["sixteen"] != recipe.sixteen:
        raise KassayError(f"{path}: scales of {held['sixteen']} operands, the model's are {recipe.sixteen}")
    found: dict[str, tuple[float, ...]] = {}
    for component in wanted:
        row = tuple(float(one) for one in held["scales"].get(component, ()))
        if len(row) != layers or not all(0 < one < float("inf") for one in row):
            raise KassayError(f"{path}: component `{component}` has {len(row)} scales, {layers} above 0 are needed")
        found[component] = row
    return found.get("k"), found.get("v")
