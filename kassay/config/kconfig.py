"""Strict Kconfig: a value is what the user asked for, or an error with file and line; nothing is replaced quietly.

Every assignment is compared with the value that its symbol has after evaluation. All errors of a load are raised
together, and .config is written only when there is none.
"""

import difflib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kconfiglib

from kassay import digest, paths
from kassay.config.assignments import STRING, Assignment, quoted, read_assignments
from kassay.config.profiles import overridden, profile_assignments
from kassay.errors import ConfigError

Value = bool | int | str
HEADER = "# kassay configuration; edit with `make menuconfig`\n"
# Python's int() takes more than Kconfig means: `1_0`, spaces, digits of other scripts.
NUMBER = {kconfiglib.INT: re.compile(r"-?[0-9]+"), kconfiglib.HEX: re.compile(r"(0[xX])?[0-9a-fA-F]+")}
UNWRITABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")  # no line of a UTF-8 text file can hold them


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The typed value of one symbol and where it came from."""

    value: Value
    origin: str  # default, profile, fragment, command line or user
    where: str  # file:line, empty for a default


@contextmanager
def tree(root: Path) -> Iterator[kconfiglib.Kconfig]:
    """The Kconfig tree of `root`; a fault of the tree itself is a ConfigError."""
    before = os.environ.get("srctree")
    os.environ["srctree"] = str(root)
    try:
        kconf = kconfiglib.Kconfig(str(root / paths.KCONFIG.name), warn_to_stderr=False)
        kconf.warn_assign_undef = True
        yield kconf
    except kconfiglib.KconfigError as error:
        raise ConfigError(str(error).strip()) from None
    finally:
        if before is None:
            os.environ.pop("srctree", None)
        else:
            os.environ["srctree"] = before


def apply(kconf: kconfiglib.Kconfig, assignments: list[Assignment], hides: bool = False) -> None:
    """Set every assignment in order (the last one of a symbol counts) and check that each took effect.

    With `hides`, lines of .config whose symbols the later assignments took away are dropped.
    """
    errors = choice_conflicts(kconf, assignments)
    malformed: set[Assignment] = set()
    for assignment in assignments:
        if found := UNWRITABLE.search(assignment.text):
            errors.append(f"{assignment.where}: the value of `{assignment.name}` holds {found[0]!r}")
            malformed.add(assignment)
            continue
        symbol = kconf.syms.get(assignment.name)
        if symbol is None or not symbol.nodes:
            errors.append(f"{assignment.where}: unknown symbol `{assignment.name}`{nearest(kconf, assignment.name)}")
            continue
        value = literal(symbol, assignment)
        if value is None or not symbol.set_value(value):
            kind = kconfiglib.TYPE_TO_STR[symbol.orig_type]
            errors.append(f"{assignment.where}: `{assignment.name}={assignment.text}` is not of type `{kind}`")
            malformed.add(assignment)
    lasts = [line for line in lasting(kconf, assignments) if line not in malformed]
    if hides:
        lasts = [line for line in lasts if line.origin != "user" or kconf.syms[line.name].visibility > 0]
    errors += [message for line in lasts if (message := ineffective(kconf, line))]
    if errors:
        raise ConfigError(*dict.fromkeys(errors), hint="make menuconfig shows every symbol with its range and help")


def lasting(kconf: kconfiglib.Kconfig, assignments: list[Assignment]) -> list[Assignment]:
    """The assignments that must hold at the end: a later one replaces an earlier one of its symbol or choice."""
    last: dict[str, Assignment] = {}
    for assignment in assignments:
        symbol = kconf.syms.get(assignment.name)
        if symbol is not None and symbol.choice is not None and assignment.text == "y":
            for member in symbol.choice.syms:
                last.pop(member.name, None)
        last[assignment.name] = assignment
    return list(last.values())


def literal(symbol: kconfiglib.Symbol, assignment: Assignment) -> str | None:
    """The value text for kconfiglib, or None if it is malformed for the symbol's type."""
    if symbol.orig_type == kconfiglib.STRING:
        match = STRING.fullmatch(assignment.text)
        return kconfiglib.unescape(match[1]) if match else None
    if symbol.orig_type == kconfiglib.BOOL:
        return assignment.text if assignment.text in ("y", "n") else None
    return assignment.text if NUMBER[symbol.orig_type].fullmatch(assignment.text) else None


def ineffective(kconf: kconfiglib.Kconfig, assignment: Assignment) -> str | None:
    """Why the symbol's value after evaluation is not the one asked for, or None if it is."""
    symbol = kconf.syms.get(assignment.name)
    if symbol is None or not symbol.nodes:
        return None
    wanted = literal(symbol, assignment)
    if wanted is None or same(symbol, wanted):
        return None
    got = symbol.str_value or "(none)"
    return f"{assignment.where}: `{assignment.name}={assignment.text}` would become `{got}`: {reason(symbol, wanted)}"


def same(symbol: kconfiglib.Symbol, wanted: str) -> bool:
    """Whether `wanted` is the symbol's value, compared by its type (016 is the int 16)."""
    if symbol.orig_type in (kconfiglib.INT, kconfiglib.HEX):
        base = 16 if symbol.orig_type == kconfiglib.HEX else 10
        return bool(symbol.str_value) and int(symbol.str_value, base) == int(wanted, base)
    return bool(symbol.str_value == wanted) and (symbol.visibility > 0 or wanted == "n" or bool(symbol.str_value))


def has_prompt(kconf: kconfiglib.Kconfig, name: str) -> bool:
    """Whether a user can set the symbol."""
    return any(node.prompt for node in kconf.syms[name].nodes)


def reason(symbol: kconfiglib.Symbol, wanted: str) -> str:
    """The condition that kept a value from taking effect."""
    if not any(node.prompt for node in symbol.nodes):
        return "the symbol has no prompt and follows other symbols"
    if symbol.visibility == 0:
        return f"it depends on `{kconfiglib.expr_str(symbol.direct_dep)}`, which is not met"
    for low, high, condition in symbol.ranges:
        if kconfiglib.expr_value(condition):
            return f"allowed is {low.str_value} to {high.str_value}"
    if symbol.choice is not None:
        picked = symbol.choice.selection
        return f"the choice picked `{picked.name if picked else 'nothing'}`; set the wanted member to y instead"
    return f"`{wanted}` is not a value of the symbol"


def choice_conflicts(kconf: kconfiglib.Kconfig, assignments: list[Assignment]) -> list[str]:
    """Two members of one choice set to y in one file: an error, because a pick by line order is a silent pick."""
    errors: list[str] = []
    picked: dict[tuple[Any, str], Assignment] = {}
    for assignment in assignments:
        symbol = kconf.syms.get(assignment.name)
        if symbol is None or symbol.choice is None or assignment.text != "y":
            continue
        key = (symbol.choice, assignment.where.rpartition(":")[0])
        other = picked.setdefault(key, assignment)
        if other.name != assignment.name:
            errors.append(
                f"{assignment.where}: `{assignment.name}=y` picks a second member of one choice; "
                f"{other.where} picked `{other.name}`"
            )
    return errors


def nearest(kconf: kconfiglib.Kconfig, name: str) -> str:
    """`, did you mean …` with the nearest known symbol, or nothing."""
    close = difflib.get_close_matches(name, [symbol.name for symbol in kconf.unique_defined_syms], n=1)
    return f"; did you mean `{close[0]}`?" if close else ""


def typed(symbol: kconfiglib.Symbol) -> Value:
    """The symbol's value in the type that the Kconfig file declares; never guessed from its text."""
    if symbol.orig_type == kconfiglib.BOOL:
        return bool(symbol.tri_value)
    if symbol.orig_type == kconfiglib.STRING:
        return str(symbol.str_value)
    if not symbol.str_value:
        return ""
    return int(symbol.str_value, 16 if symbol.orig_type == kconfiglib.HEX else 10)


def command_line_assignments(kconf: kconfiglib.Kconfig, variables: dict[str, str]) -> list[Assignment]:
    """`X=value` of the command line; a string symbol takes the bare text."""
    made = []
    for name, text in variables.items():
        symbol = kconf.syms.get(name)
        is_string = symbol is not None and symbol.orig_type == kconfiglib.STRING
        made.append(
            Assignment(
                name=name,
                text=quoted(text) if is_string else text,
                where=f"command line: {name}",
                origin="command line",
            )
        )
    return made


def load_profile(name: str, variables: dict[str, str], root: Path, target: Path) -> tuple[bool, list[str]]:
    """Write `target` from a profile, its fragments and command-line variables.

    Returns whether its content changed, and a message for each value that a fragment overrides.
    """
    with tree(root) as kconf:
        profile, _, fragments = name.partition("+")
        asked = profile_assignments(name, root)
        apply(kconf, [*asked, *command_line_assignments(kconf, variables)])
        kconf.syms["PROFILE"].set_value(profile)
        kconf.syms["FRAGMENTS"].set_value(fragments)
        return save(kconf, target), overridden(kconf, asked)


def set_variables(variables: dict[str, str], root: Path, target: Path) -> bool:
    """Change symbols of an existing .config, as `make TIMING_BLOCKS=8` does; true if its content changed."""
    with tree(root) as kconf:
        before = read_assignments(target, "user")
        apply(kconf, before)
        before = [line for line in before if has_prompt(kconf, line.name)]  # the others follow what changes
        apply(kconf, [*before, *command_line_assignments(kconf, variables)], hides=True)
        return save(kconf, target)


def save(kconf: kconfiglib.Kconfig, target: Path) -> bool:
    """Write .config atomically if its content differs; an edited one that is replaced is kept as .config.old."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".config-") as folder:
        made = Path(folder) / "config"
        kconf.write_config(str(made), header=HEADER, save_old=False)
        content = made.read_bytes()
    if target.is_file():
        before = target.read_bytes()
        if before == content:
            return False
        digest.write_bytes(target.with_name(target.name + ".old"), before)
    digest.write_bytes(target, content)
    return True


def load(root: Path, config: Path) -> dict[str, Setting]:
    """Typed settings of .config with their provenance. Raises ConfigError if it is missing or not strictly valid."""
    if not config.is_file():
        raise ConfigError(
            f"no configuration: {paths.shown(config)} does not exist",
            hint="make defconfig-decode-cpu (or another of make listdefconfigs)",
        )
    with tree(root) as kconf:
        defaults = {symbol.name: symbol.str_value for symbol in kconf.unique_defined_syms}
        assignments = read_assignments(config, "user")
        apply(kconf, assignments)
        named = "+".join(filter(None, (kconf.syms["PROFILE"].str_value, kconf.syms["FRAGMENTS"].str_value)))
        known = profile_origins(kconf, named, root)
        return {
            symbol.name: Setting(value=typed(symbol), origin=origin, where=where)
            for symbol in kconf.unique_defined_syms
            for origin, where in [provenance(symbol, defaults[symbol.name], known)]
        }


def profile_origins(kconf: kconfiglib.Kconfig, named: str, root: Path) -> dict[tuple[str, str], Assignment]:
    """(symbol, value text) -> the profile's or fragment's assignment that asks for it; empty without a profile."""
    if not named:
        return {}
    found = {}
    for line in profile_assignments(named, root):
        symbol = kconf.syms.get(line.name)
        value = literal(symbol, line) if symbol is not None else None
        if value is not None:
            found[line.name, value] = line
    return found


def provenance(symbol: kconfiglib.Symbol, default: str, known: dict[tuple[str, str], Assignment]) -> tuple[str, str]:
    """Origin and place of a symbol's value."""
    line = known.get((symbol.name, symbol.str_value))
    if line is None and symbol.choice is not None and symbol.str_value == "n" and symbol.choice.selection is not None:
        line = known.get((symbol.choice.selection.name, "y"))  # it is off because its sibling was picked there
    if line is not None:
        return line.origin, line.where
    if symbol.str_value == default or not any(node.prompt for node in symbol.nodes):
        return "default", ""
    return ("profile", "") if symbol.name in ("PROFILE", "FRAGMENTS") else ("user", paths.CONFIG.name)
