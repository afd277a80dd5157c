"""A symbol explained: what it is, what bounds it, where it is defined and where its value is used."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kconfiglib

from kassay import paths
from kassay.config.kconfig import BOOKKEEPING
from kassay.config.tree import HINT_UNKNOWN, active_range, has_prompt, unknown_symbol
from kassay.errors import ConfigError

REFERENCE = re.compile(r"\$\{kconfig:(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Explained:
    """The facts of one symbol that do not depend on a configuration."""

    name: str
    kind: str  # bool, int, hex or string
    prompt: str  # empty: it follows other symbols
    help: str
    default: str
    bounds: str  # `1 to 64`, or empty
    depends: str  # expression, or empty
    menu: str  # `Decode study > Timing blocks`
    defined: tuple[str, ...]  # file:line
    used: tuple[str, ...]  # file:line of what reads it


def explain(kconf: kconfiglib.Kconfig, name: str) -> Explained:
    """The facts of a symbol. Raises ConfigError for an unknown one."""
    symbol = kconf.syms.get(name)
    if symbol is None or not symbol.nodes:
        raise ConfigError(unknown_symbol(kconf, name), hint=HINT_UNKNOWN)
    stated = [(low.str_value, high.str_value) for low, high, _ in symbol.ranges]
    bounds = active_range(symbol) or next(iter(stated), None)
    node = next((node for node in symbol.nodes if node.prompt), symbol.nodes[0])
    depends = kconfiglib.expr_str((symbol.choice or symbol).direct_dep)
    return Explained(
        name=name,
        kind=kconfiglib.TYPE_TO_STR[symbol.orig_type],
        prompt=node.prompt[0] if node.prompt else "",
        help=next((" ".join(node.help.split()) for node in symbol.nodes if node.help), ""),
        default=default_text(symbol),
        bounds=" to ".join(bounds) if bounds else "",
        depends="" if depends == "y" else depends,
        menu=" > ".join(menus(node)),
        defined=tuple(f"{shown(node.filename)}:{node.linenr}" for node in symbol.nodes),
        used=tuple(used(kconf, symbol)),
    )


def default_text(symbol: kconfiglib.Symbol) -> str:
    """Defaults as they stand in Kconfig, in order; of a choice's member whether the choice picks it."""
    if symbol.choice is not None:
        return "y" if symbol is symbol.choice._selection_from_defaults() else "n"
    everywhere = [id(node.dep) for node in symbol.nodes]  # a file sourced by several workflows says it for each
    found: list[tuple[str, str, bool]] = []  # value, condition in words, and whether that is only the workflow
    for value, condition in symbol.defaults:
        bare = condition[1] if isinstance(condition, tuple) and condition[0] is kconfiglib.AND else condition
        own = condition is symbol.direct_dep or bare is symbol.direct_dep or kconfiglib.expr_str(bare) == "y"
        when = "" if own else f" if {kconfiglib.expr_str(bare)}"
        found.append((kconfiglib.expr_str(value), when, own or id(condition) in everywhere))
    if len({value for value, _, _ in found}) == 1 and all(plain for _, _, plain in found):
        return found[0][0]
    nothing = '""' if symbol.orig_type == kconfiglib.STRING else "n"
    return ", ".join(value + when for value, when, _ in found) or nothing


def menus(node: kconfiglib.MenuNode) -> list[str]:
    """Titles of the menus and choices around a node, outermost first."""
    found: list[str] = []
    while (node := node.parent) is not None and node.parent is not None:
        if isinstance(node.item, kconfiglib.Choice):
            found.insert(0, next(one.prompt[0] for one in node.item.nodes if one.prompt))
        elif node.prompt and node.item == kconfiglib.MENU:
            found.insert(0, node.prompt[0])
    return found


def used(kconf: kconfiglib.Kconfig, symbol: kconfiglib.Symbol) -> list[str]:
    """What reads a symbol: `${kconfig:X}` in a workflow, a Hydra group of its name, its name in code, Kconfig."""
    found = [place for place, name in references() if name == symbol.name]
    found += [shown(str(folder)) for folder in groups() if folder.name.upper() == symbol.name]
    found += code_places().get(symbol.name, [])
    for other in [*kconf.unique_defined_syms, *kconf.unique_choices]:
        if other is not symbol and other is not symbol.choice:
            found += [f"{shown(n.filename)}:{n.linenr}" for n in other.nodes if symbol in n.referenced]
    return list(dict.fromkeys(found))


def references() -> Iterator[tuple[str, str]]:
    """(file:line, symbol) of every `${kconfig:X}` in the workflows of all trees."""
    for tree in paths.trees():
        for path in sorted((tree / paths.WORKFLOWS).rglob("*.yaml")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                for name in REFERENCE.findall(line):
                    yield f"{shown(str(path))}:{number}", name


def groups() -> list[Path]:
    """The Hydra group folders of all workflows."""
    found = [path for tree in paths.trees() for path in (tree / paths.WORKFLOWS).glob("*/*")]
    return sorted(path for path in found if path.is_dir())


def code_places() -> dict[str, list[str]]:
    """Symbol -> file:line where the framework names it in quotes."""
    found: dict[str, list[str]] = {}
    for path in sorted((paths.ROOT / "kassay").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for name in re.findall(r"[\"']([A-Z][A-Z0-9_]*)[\"']", line):
                found.setdefault(name, []).append(f"{shown(str(path))}:{number}")
    return found


def unread(kconf: kconfiglib.Kconfig) -> list[str]:
    """Symbols that nothing reads."""
    asked = {name for _, name in references()} | {folder.name.upper() for folder in groups()} | set(code_places())
    nodes = [node for item in [*kconf.unique_defined_syms, *kconf.unique_choices] for node in item.nodes]
    in_kconfig = {symbol.name for node in nodes for symbol in node.referenced if symbol is not node.item}
    return sorted(s.name for s in kconf.unique_defined_syms if s.name not in asked | in_kconfig)


def unanswered(kconf: kconfiglib.Kconfig) -> list[str]:
    """`${kconfig:X}` that no symbol answers, with file:line."""
    known = {symbol.name for symbol in kconf.unique_defined_syms}
    return [f"{place}: ${{kconfig:{name}}}" for place, name in references() if name not in known]


def shown(name: str) -> str:
    """A file's name relative to its tree."""
    path = Path(os.path.normpath(name))
    tree = next((one for one in paths.trees() if path.is_relative_to(one)), None)
    return str(path.relative_to(tree)) if tree is not None else str(path)


def by_menu(kconf: kconfiglib.Kconfig, visible_only: bool) -> dict[str, list[kconfiglib.Symbol]]:
    """Symbols that a user can set, by their menu, in the order of the files."""
    found: dict[str, list[kconfiglib.Symbol]] = {}
    for symbol in kconf.unique_defined_syms:
        if has_prompt(symbol) and symbol.name not in BOOKKEEPING and (symbol.visibility or not visible_only):
            node = next(node for node in symbol.nodes if node.prompt)
            found.setdefault(" > ".join(menus(node)), []).append(symbol)
    return found
