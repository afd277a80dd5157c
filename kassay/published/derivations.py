"""The derivations by name, as facts call them."""

import inspect
from collections.abc import Iterable
from types import ModuleType

from kassay.published import arithmetic, curves, serving, verdicts
from kassay.published.consistency import Derivation

MODULES = (arithmetic, curves, serving, verdicts)


def of_module(module: ModuleType) -> dict[str, Derivation]:
    """The public functions that a module defines itself: whatever facts may name."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {name: made for name, made in found if made.__module__ == module.__name__ and name[0] != "_"}


DERIVATIONS: dict[str, Derivation] = {name: made for module in MODULES for name, made in of_module(module).items()}


def misfit(name: str, inputs: Iterable[str]) -> str:
    """Why a derivation cannot take inputs of these names, in words; empty if it can."""
    if name not in DERIVATIONS:
        return f"no derivation is called `{name}`"
    try:
        inspect.signature(DERIVATIONS[name]).bind(**dict.fromkeys(inputs))
    except TypeError as error:
        return f"derivation `{name}`: {error}"
    return ""
