"""Recipes: how a cache stores keys and values. The arms of every quality study.

Names of the field: K16/V16 native; A = K16/V8, R = K8/V16, S = K8/V8. 8 stands for E4M3FN, i8 and i6 for
INT8 and INT6, 4 for INT4.
The suffix says what one FP32 scale is for:

    f     one layer's keys or values, from calibration (fixed)
    d     one token of one head (dynamic)
    t     all tokens and heads that one sequence writes at once (tensor): the only one whose codes depend on how a
          text is cut into writes. A probe, no serving recipe
    g32   32 neighbours along the head dim of one token and head (group)

`prebias` recipes subtract the rotated bias of the key projection before they quantize and add it again when they
reconstruct: kassay.kv.prebias. The 16-bit format, FP16 or BF16, is a field of the recipe and no alias: it is what K16
stores, and what every operand is rounded to before it is quantized.
"""

from dataclasses import dataclass, replace
from typing import Literal

from kassay.errors import KassayError

Format = Literal["fp16", "bf16", "e4m3fn", "int8", "int6", "int4", "int4-g32"]
Sixteen = Literal["fp16", "bf16"]
Policy = Literal["none", "fixed", "dynamic", "tensor", "group"]

# Stored bits of one element: an INT6 code takes a byte.
BITS: dict[Format, int] = {"fp16": 16, "bf16": 16, "e4m3fn": 8, "int8": 8, "int6": 8, "int4": 4, "int4-g32": 4}
SIXTEEN: tuple[Sixteen, ...] = ("fp16", "bf16")
GROUP = 32  # elements of a group of int4-g32
SHOWN = {"int8": "i8", "int6": "i6"}  # where the bits alone would not say the format


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to store a cache."""

    name: str
    key_format: Format
    value_format: Format
    policy: Policy  # of the scales of components of fewer than 16 bits
    prebias: bool = False
    sixteen: Sixteen = "fp16"

    @property
    def title(self) -> str:
        """The name that people use, such as `K16/V8 fixed`."""
        keys, values = (SHOWN.get(stored, str(BITS[stored])) for stored in (self.key_format, self.value_format))
        words = [f"K{keys}/V{values}", "native" if self.policy == "none" else self.policy]
        words += ["pre-bias"] if self.prebias else []
        return " ".join(words) + (f", {self.sixteen.upper()}" if self.sixteen != "fp16" else "")

    def policy_of(self, stored: Format) -> Policy:
        """The scale policy of a component in that format: a 16-bit one has none."""
        return "none" if BITS[stored] == 16 else self.policy

    def giving_back_fault(self) -> str:
        """Why its cache cannot give rejected tokens back; empty if it can."""
        if self.policy != "tensor":
            return ""
        return f"recipe `{self.name}` scales what one write brings: its codes would depend on what was drafted"

    def on(self, sixteen: str) -> "Recipe":
        """The recipe on another 16-bit format, under the same name. Raises KassayError for an unknown one."""
        if sixteen not in SIXTEEN:
            raise KassayError(f"unknown 16-bit format `{sixteen}`, allowed are {', '.join(SIXTEEN)}")
        keys, values = (sixteen if BITS[one] == 16 else one for one in (self.key_format, self.value_format))
        return replace(self, key_format=keys, value_format=values, sixteen=sixteen)


LAYOUTS: tuple[tuple[str, Format, Format], ...] = (
    ("k16v8", "fp16", "e4m3fn"),
    ("k8v16", "e4m3fn", "fp16"),
    ("k8v8", "e4m3fn", "e4m3fn"),
)
LETTERS: dict[str, Policy] = {"f": "fixed", "d": "dynamic", "t": "tensor", "g32": "group"}


def _recipe(stem: str, keys: Format, values: Format, letter: str, *, prebias: bool = False) -> Recipe:
    name = f"{'prebias-' if prebias else ''}{stem}-{letter}"
    return Recipe(name=name, key_format=keys, value_format=values, policy=LETTERS[letter], prebias=prebias)


NATIVE = Recipe(name="native", key_format="fp16", value_format="fp16", policy="none")
SEVEN_ARMS = (NATIVE, *(_recipe(*layout, letter) for layout in LAYOUTS for letter in "fd"))
RECIPES = (
    *SEVEN_ARMS,
    *(_recipe(*layout, "t") for layout in LAYOUTS),
    *(_recipe(*layout, letter, prebias=True) for layout in LAYOUTS[1:] for letter in "fd"),
    _recipe("k16vi8", "fp16", "int8", "d"),
    _recipe("ki8v16", "int8", "fp16", "d"),
    _recipe("ki8vi8", "int8", "int8", "d"),
    _recipe("ki8v4", "int8", "int4", "d"),
    _recipe("ki6v4", "int6", "int4", "d"),
    _recipe("k16v4", "fp16", "int4", "d"),
    _recipe("k8v4", "e4m3fn", "int4", "d"),
    _recipe("k4v4", "int4", "int4", "d"),
    _recipe("k16v4", "fp16", "int4-g32", "g32"),
    _recipe("k4v4", "int4-g32", "int4-g32", "g32"),
)


def recipe_named(name: str, sixteen: str = "fp16") -> Recipe:
    """The recipe of that name on a 16-bit format. Raises KassayError that lists the allowed ones."""
    for recipe in RECIPES:
        if recipe.name == name:
            return recipe.on(sixteen)
    raise KassayError(f"unknown recipe `{name}`, allowed are {', '.join(recipe.name for recipe in RECIPES)}")
