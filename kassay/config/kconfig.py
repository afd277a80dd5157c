"""The `.config` of the project: made from a profile, changed by variables, read as typed settings with provenance.

It is written only when there is no error, and only if its content differs; what an edit had set is never lost unsaid.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import kconfiglib

from kassay import digest, paths
from kassay.config.assignments import Assignment, parse, read_assignments
from kassay.config.profiles import full_name, overridden, profile_assignments
from kassay.config.setting import Setting
from kassay.config.strict import apply, command_line_assignments
from kassay.config.tree import has_prompt, literal, text_of, tree, typed
from kassay.errors import ConfigError

# Symbols that say where a configuration came from; they are written here and by nobody else.
BOOKKEEPING = ("PROFILE", "FRAGMENTS", "COMMAND_LINE")


@dataclass(frozen=True, kw_only=True)
class Written:
    """What writing .config did."""

    changed: bool
    messages: tuple[str, ...]  # what a fragment overrode; what of an edited .config was replaced


def load_profile(name: str, variables: dict[str, str], target: Path) -> Written:
    """Write `target` from a profile, its fragments and command-line variables. Raises ConfigError with all errors."""
    with tree() as kconf:
        asked = profile_assignments(name)
        given = command_line_assignments(kconf, variables)
        apply(kconf, [*asked, *given])
        profile, _, fragments = name.partition("+")
        keep_books(kconf, {"PROFILE": profile, "FRAGMENTS": fragments, "COMMAND_LINE": shlex_of(variables)})
        content = text_of(kconf)
    lost = replaced_edits(target, content) if target.is_file() else []
    return Written(changed=write(target, content), messages=(*overridden(kconf, asked), *lost))


def set_variables(variables: dict[str, str], target: Path) -> bool:
    """Change symbols of an existing .config, as `make TIMING_BLOCKS=8` does; true if its content changed."""
    with tree() as kconf:
        before = read_assignments(target, "user")
        apply(kconf, before)
        before = [line for line in before if has_prompt(kconf.syms[line.name])]  # the others follow what changes
        apply(kconf, [*before, *command_line_assignments(kconf, variables)], hides=True)
        keep_books(kconf, {"COMMAND_LINE": shlex_of(remembered(kconf) | variables)})
        return write(target, text_of(kconf))


def keep_books(kconf: kconfiglib.Kconfig, books: dict[str, str]) -> None:
    """Note where the configuration came from, in the configuration."""
    for name, text in books.items():
        if not kconf.syms[name].set_value(text):
            raise ConfigError(f"a bug: `{name}` does not take `{text}`")


def shlex_of(variables: dict[str, str]) -> str:
    """Variables as one line that a shell would split again."""
    return shlex.join(f"{name}={text}" for name, text in variables.items())


def remembered(kconf: kconfiglib.Kconfig) -> dict[str, str]:
    """The command-line variables that a configuration remembers."""
    parts = (word.partition("=") for word in shlex.split(kconf.syms["COMMAND_LINE"].str_value))
    return {name: text for name, _, text in parts}


def write(target: Path, content: bytes) -> bool:
    """Write .config atomically if its content differs; the one that is replaced is kept as .config.old."""
    if target.is_file():
        before = target.read_bytes()
        if before == content:
            return False
        digest.write_bytes(target.with_name(target.name + ".old"), before)
    digest.write_bytes(target, content)
    return True


def replaced_edits(target: Path, content: bytes) -> list[str]:
    """What a user had set in `target`, by menu, editor or command line, and `content` sets otherwise."""
    old = f"{paths.shown(target)}.old"
    try:
        before = lines_of(target.read_bytes())
        edited = before.items() - lines_of(as_its_profile_gives(before)).items()
    except ConfigError as error:
        return [f"{old} keeps the configuration that was there; it is no longer valid: {error.messages[0]}"]
    after = lines_of(content)
    return [
        f"{old} keeps `{name}={text}`; it is `{after.get(name, 'absent')}` now"
        for name, text in sorted(edited)
        if after.get(name) != text and name not in BOOKKEEPING
    ]


def as_its_profile_gives(before: dict[str, str]) -> bytes:
    """The .config that the profile and fragments named in a .config give by themselves."""
    with tree() as kconf:
        named = (literal(kconf.syms[name], line(name, before.get(name, '""'))) for name in BOOKKEEPING[:2])
        if profile := full_name(*(name or "" for name in named)):
            apply(kconf, profile_assignments(profile))
        return text_of(kconf)


def line(name: str, text: str) -> Assignment:
    """An assignment of no file."""
    return Assignment(name=name, text=text, where="", origin="user")


def lines_of(content: bytes) -> dict[str, str]:
    """Symbol -> text of a .config's bytes."""
    return {one.name: one.text for one in parse(content, paths.config().name, "user")}


def require(config: Path) -> None:
    """Raise ConfigError if there is no .config yet."""
    if not config.is_file():
        raise ConfigError(
            f"no configuration: {paths.shown(config)} does not exist",
            hint="make defconfig-decode-cpu (or another of make listdefconfigs)",
        )


def load(config: Path) -> dict[str, Setting]:
    """Typed settings of .config with their provenance. Raises ConfigError if it is missing or not strictly valid."""
    require(config)
    with tree() as kconf:
        apply(kconf, read_assignments(config, "user"))
        named = full_name(kconf.syms["PROFILE"].str_value, kconf.syms["FRAGMENTS"].str_value)
        known = known_origins(kconf, named)
        defaults = default_values(kconf)
        return {
            symbol.name: Setting(value=typed(symbol), origin=origin, where=where)
            for symbol in kconf.unique_defined_syms
            for origin, where in [provenance(symbol, defaults[symbol.name], known)]
        }


def default_values(kconf: kconfiglib.Kconfig) -> dict[str, str]:
    """Of each symbol the text that it would have if it alone were not set, all others being what they are."""
    found: dict[str, str] = {}
    for choice in kconf.unique_choices:
        picked = choice.user_selection
        choice.unset_value()
        found |= {member.name: "y" if member is choice.selection else "n" for member in choice.syms}
        if picked is not None:
            picked.set_value("y")
    for symbol in kconf.unique_defined_syms:
        if symbol.choice is None:
            value = symbol.user_value
            symbol.unset_value()
            found[symbol.name] = symbol.str_value
            if value is not None:
                symbol.set_value(value)
    return found


def known_origins(kconf: kconfiglib.Kconfig, named: str) -> dict[tuple[str, str], Assignment]:
    """(symbol, value text) -> the profile's, fragment's or command line's assignment that asks for it."""
    asked = profile_assignments(named) if named else []
    found = {}
    for one in [*asked, *command_line_assignments(kconf, remembered(kconf))]:
        symbol = kconf.syms.get(one.name)
        value = literal(symbol, one) if symbol is not None else None
        if value is not None:
            found[one.name, value] = one
    return found


def provenance(symbol: kconfiglib.Symbol, default: str, known: dict[tuple[str, str], Assignment]) -> tuple[str, str]:
    """Origin and place of a symbol's value."""
    asked = known.get((symbol.name, symbol.str_value))
    if asked is None and symbol.choice is not None and symbol.str_value == "n" and symbol.choice.selection is not None:
        asked = known.get((symbol.choice.selection.name, "y"))  # it is off because its sibling was picked there
    if asked is not None:
        return asked.origin, "" if asked.origin == "command line" else asked.where
    if symbol.str_value == default or not has_prompt(symbol):
        return "default", ""
    if symbol.name in BOOKKEEPING:
        return ("command line", "") if symbol.name == "COMMAND_LINE" else ("profile", "")
    return "user", paths.config().name
