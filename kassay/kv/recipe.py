"""Recipes: how a cache stores keys and values. The arms of every quality study.

Names of the field: K16/V16 native; A = K16/V8, R = K8/V16, S = K8/V8; F = fixed scale per layer and
component, D = dynamic scale per token and head. `16` is FP16 here; another 16-bit format would be another
recipe, not an alias.
"""

from dataclasses import dataclass
from typing import Literal

from kassay.errors import KassayError

Format = Literal["fp16", "e4m3fn"]
Policy = Literal["none", "fixed", "dynamic"]

BITS: dict[Format, int] = {"fp16": 16, "e4m3fn": 8}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to store a cache."""

    name: str
    key_format: Format
    value_format: Format
    policy: Policy  # of the 8-bit components' scales

    @property
    def title(self) -> str:
        """The name that people use, such as `K16/V8 fixed`."""
        name = f"K{BITS[self.key_format]}/V{BITS[self.value_format]}"
        return f"{name} native" if self.policy == "none" else f"{name} {self.policy}"


def _recipes() -> tuple[Recipe, ...]:
    pairs: tuple[tuple[str, Format, Format], ...] = (
        ("k16v8", "fp16", "e4m3fn"),
        ("k8v16", "e4m3fn", "fp16"),
        ("k8v8", "e4m3fn", "e4m3fn"),
    )
    policies: tuple[tuple[str, Policy], ...] = (("f", "fixed"), ("d", "dynamic"))
    native = Recipe(name="native", key_format="fp16", value_format="fp16", policy="none")
    return native, *(
        Recipe(name=f"{name}-{letter}", key_format=key, value_format=value, policy=policy)
        for name, key, value in pairs
        for letter, policy in policies
    )


RECIPES = _recipes()


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises KassayError that lists the allowed ones."""
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe
    raise KassayError(f"unknown recipe `{name}`, allowed are {', '.join(recipe.name for recipe in RECIPES)}")
