"""The Kconfig tree: ours and those of KASSAY_PATH as one, and the facts of a symbol that it states.

kconfiglib evaluates; what it merely warns of (a symbol without a type, a reference to nothing) is an error here.
"""

import difflib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kconfiglib

from kassay import paths
from kassay.config import renamed
from kassay.config.assignments import STRING, Assignment
from kassay.config.setting import Value
from kassay.errors import ConfigError

HEADER = "# kassay configuration; edit with `make menuconfig`\n"
HINT_UNKNOWN = f"make help lists every symbol; those of a tree of your own need {paths.OUTSIDE}"
# Python's int() takes more than Kconfig means: `1_0`, spaces, digits of other scripts.
NUMBER = {kconfiglib.INT: re.compile(r"-?[0-9]+"), kconfiglib.HEX: re.compile(r"(0[xX])?[0-9a-fA-F]+")}
# What kconfiglib reads from the environment; a user's own kernel settings must not reach this tree.
AMBIENT = ("srctree", "KCONFIG_CONFIG_HEADER", "KCONFIG_WARN_UNDEF", "CONFIG_", "KCONFIG_FUNCTIONS", "KCONFIG_STRICT")


@contextmanager
def tree(kind: type[kconfiglib.Kconfig] = kconfiglib.Kconfig) -> Iterator[kconfiglib.Kconfig]:
    """The Kconfig tree of the project and of KASSAY_PATH; a fault of the tree itself is a ConfigError."""
    before = {name: os.environ.pop(name, None) for name in AMBIENT}
    os.environ |= {"srctree": str(paths.ROOT), "KCONFIG_CONFIG_HEADER": HEADER, "KCONFIG_WARN_UNDEF": "y"}
    try:
        with top_file() as top:
            kconf = kind(top, warn_to_stderr=False)
        for symbol in kconf.unique_defined_syms:
            symbol.str_value  # noqa: B018  (a default out of its range is told when it is evaluated)
        if kconf.warnings:
            raise ConfigError(*(" ".join(warning.split()) for warning in kconf.warnings))
        kconf.warn_assign_undef = True
        yield kconf
    except kconfiglib.KconfigError as error:
        raise ConfigError(" ".join(str(error).split())) from None
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def top_file() -> Iterator[str]:
    """The file to parse: ours, or one that also sources the workflows of each tree of KASSAY_PATH."""
    outside = paths.trees()[1:]
    if not outside:
        yield paths.KCONFIG
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=f".{paths.KCONFIG}") as file:
        file.write(f'source "{paths.KCONFIG}"\n')
        file.writelines(f'osource "{one}/{paths.WORKFLOWS}/*/{paths.KCONFIG}"\n' for one in outside)
        file.flush()
        yield file.name


def literal(symbol: kconfiglib.Symbol, assignment: Assignment) -> str | None:
    """The value text for kconfiglib, or None if it is malformed for the symbol's type."""
    if symbol.orig_type == kconfiglib.STRING:
        match = STRING.fullmatch(assignment.text)
        return kconfiglib.unescape(match[1]) if match else None
    if symbol.orig_type == kconfiglib.BOOL:
        return assignment.text if assignment.text in ("y", "n") else None
    return assignment.text if NUMBER[symbol.orig_type].fullmatch(assignment.text) else None


def typed(symbol: kconfiglib.Symbol) -> Value:
    """The symbol's value in the type that the Kconfig file declares; never guessed from its text."""
    if symbol.orig_type == kconfiglib.BOOL:
        return bool(symbol.tri_value)
    if symbol.orig_type == kconfiglib.STRING:
        return str(symbol.str_value)
    if not symbol.str_value:
        return ""
    return int(symbol.str_value, 16 if symbol.orig_type == kconfiglib.HEX else 10)


def has_prompt(symbol: kconfiglib.Symbol) -> bool:
    """Whether a user can set the symbol."""
    return any(node.prompt for node in symbol.nodes)


def active_range(symbol: kconfiglib.Symbol) -> tuple[str, str] | None:
    """The bounds that hold now, as texts; None if there are none."""
    for low, high, condition in symbol.ranges:
        if kconfiglib.expr_value(condition):
            return low.str_value, high.str_value
    return None


def nearest(word: str, known: list[str]) -> str:
    """`; did you mean …` with the nearest known name, or nothing."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def unknown_symbol(kconf: kconfiglib.Kconfig, name: str) -> str:
    """The message for a name that no Kconfig file defines, one that had another meaning before included."""
    near = renamed.said(name) or nearest(name, [symbol.name for symbol in kconf.unique_defined_syms])
    return f"unknown symbol `{name}`{near}"


def text_of(kconf: kconfiglib.Kconfig) -> bytes:
    """The bytes of .config as the tree stands."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "config"
        kconf.write_config(str(made), header=HEADER, save_old=False)
        return made.read_bytes()
