"""Strict assignment: a value is what was asked for, or an error with file and line; nothing is replaced quietly.

Every assignment is compared with the value that its symbol has after evaluation; all errors of a load come together.
"""

import re
from typing import Any

import kconfiglib

from kassay.config import renamed
from kassay.config.assignments import Assignment, quoted
from kassay.config.tree import HINT_UNKNOWN, active_range, has_prompt, literal, unknown_symbol
from kassay.errors import ConfigError

UNWRITABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")  # no line of a UTF-8 text file can hold them
HINT = "make menuconfig shows every symbol with its range and help"


def apply(kconf: kconfiglib.Kconfig, assignments: list[Assignment], hides: bool = False) -> None:
    """Set every assignment in order (the last one of a symbol counts) and check that each took effect.

    With `hides`, lines of .config whose symbols the later assignments took away are dropped.
    """
    errors = choice_conflicts(kconf, assignments)
    malformed: set[Assignment] = set()
    unknown: list[Assignment] = []
    for assignment in assignments:
        if found := UNWRITABLE.search(assignment.text):
            errors.append(f"{assignment.where}: the value of `{assignment.name}` holds {found[0]!r}")
            malformed.add(assignment)
            continue
        symbol = kconf.syms.get(assignment.name)
        if symbol is None or not symbol.nodes:
            unknown.append(assignment)
            errors.append(f"{assignment.where}: {unknown_symbol(kconf, assignment.name)}")
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
        raise ConfigError(*dict.fromkeys(errors), hint=hint_of(unknown))


def hint_of(unknown: list[Assignment]) -> str:
    """The next step after errors: what to write for symbols that have other names now, else where all are listed."""
    told = [renamed.lines(line.name, line.text, line.where) for line in unknown if line.name in renamed.RENAMED]
    if len(told) < len(unknown):
        told.append(HINT_UNKNOWN)
    return "; ".join(dict.fromkeys(told)) or HINT


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


def reason(symbol: kconfiglib.Symbol, wanted: str) -> str:
    """The condition that kept a value from taking effect."""
    if not has_prompt(symbol):
        return "the symbol has no prompt and follows other symbols"
    if symbol.visibility == 0:
        return f"it depends on `{kconfiglib.expr_str(symbol.direct_dep)}`, which is not met"
    if (bounds := active_range(symbol)) is not None:
        return f"allowed is {bounds[0]} to {bounds[1]}"
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
