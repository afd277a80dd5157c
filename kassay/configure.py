"""The verbs that make, edit, save, list and explain configurations."""

import argparse
import os
import sys
import textwrap

from kassay import paths
from kassay.errors import ConfigError
from kassay.words import Given

WIDTH = 100  # columns of explanations


def do_defconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Write .config from a profile and its fragments."""
    from kassay.config import kconfig

    done = kconfig.load_profile(arguments.name, given.symbols, paths.config())
    for message in done.messages:
        say(message)
    say(f".config {'written' if done.changed else 'unchanged'}: {arguments.name}")
    return 0


def do_menuconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Edit .config in a terminal."""
    return menu("menuconfig", "default")


def do_nconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Edit .config in a terminal, in the colours of nconfig."""
    return menu("nconfig", "aquatic")


def menu(verb: str, style: str) -> int:
    """Draw the menu; .config changes only if the user saves."""
    from kassay.config import kconfig
    from kassay.config.change import StrictKconfig
    from kassay.config.tree import tree

    require_screen(verb)
    config = paths.config()
    if config.is_file():
        kconfig.load(config)  # what the menu would replace quietly is said here
    import menuconfig

    os.environ["KCONFIG_CONFIG"] = str(config)
    os.environ.setdefault("MENUCONFIG_STYLE", style)
    with tree(StrictKconfig) as kconf:
        menuconfig.menuconfig(kconf)
    return 0


def require_terminal(verb: str, hint: str) -> None:
    """Raise ConfigError unless a person can answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"{verb} needs a terminal", hint=hint)


def require_screen(verb: str) -> None:
    """Raise ConfigError unless a menu can be drawn here: curses itself would end in a traceback."""
    import curses

    hint = "make defconfig-<profile> SYMBOL=value"
    require_terminal(verb, hint)
    try:
        curses.setupterm()
        movable = curses.tigetstr("cup")
    except curses.error:
        movable = None
    if not movable:
        raise ConfigError(f"{verb} cannot draw on a terminal of TERM=`{os.environ.get('TERM', '')}`", hint=hint)


def do_oldconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Bring .config up to date with the tree and ask for each new symbol."""
    from kassay.config import change, kconfig

    kconfig.require(paths.config())
    new = change.list_new(paths.config())
    if new and not (sys.stdin.isatty() and sys.stdout.isatty()):
        words = [f"new symbol `{line}`" for line in new]
        raise ConfigError("oldconfig needs a terminal to ask", *words, hint="make olddefconfig takes the defaults")
    return refreshed(*change.refresh(paths.config(), ask=True))


def do_olddefconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Bring .config up to date with the tree; new symbols get their default."""
    from kassay.config import change, kconfig

    kconfig.require(paths.config())
    return refreshed(*change.refresh(paths.config(), ask=False))


def refreshed(changed: bool, messages: list[str]) -> int:
    """Say what bringing .config up to date did."""
    for message in messages:
        say(message)
    say(f".config {'written' if changed else 'unchanged'}")
    return 0


def do_savedefconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Save .config as the profile NAME: only what differs from the defaults."""
    from kassay.config import change, kconfig

    kconfig.require(paths.config())
    path, written = change.save_profile(required(arguments.name, "savedefconfig", "NAME", "my-profile"), paths.config())
    say(f"{paths.shown(path)} {'written' if written else 'unchanged'}; its first line says purpose, hardware and time")
    return 0


def required(word: str | None, verb: str, name: str, example: str) -> str:
    """The argument that a verb cannot do without."""
    if not word:
        raise ConfigError(f"{verb} needs {name}", hint=f"make {verb} {name}={example}")
    return word


def do_listdefconfigs(arguments: argparse.Namespace, given: Given) -> int:
    """List profiles and fragments with their purpose, hardware and time."""
    from kassay.config import profiles

    listed = [("", profiles.profiles()), ("+", profiles.fragments())]
    for mark, found in listed:
        for name, files in found.items():
            head = profiles.head_comment(files[0])
            print("\t".join([f"{mark}{name}", *(head.get(key, "") for key in ("purpose", "hardware", "time"))]))
    return 0


def do_listnewconfig(arguments: argparse.Namespace, given: Given) -> int:
    """List the symbols that .config does not mention, with their defaults."""
    from kassay.config import change, kconfig

    kconfig.require(paths.config())
    for line in change.list_new(paths.config()):
        print(line)
    return 0


def do_randconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Write a .config with random values within their ranges; the same SEED gives the same."""
    from kassay.config import change

    seed = required(arguments.seed, "randconfig", "SEED", "1")
    if not seed.isascii() or not seed.isdigit():
        raise ConfigError(f"SEED is `{seed}`, allowed is a whole number", hint="make randconfig SEED=1")
    change.randomize(int(seed), paths.config())
    say(f".config written: random, seed {seed}")
    return 0


def do_diffconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Compare two configurations: files, or profiles with fragments (A: .config.old, B: .config)."""
    from kassay.config import change

    for line in change.differences(arguments.a or ".config.old", arguments.b or ".config"):
        print(line)
    return 0


def do_helpconfig(arguments: argparse.Namespace, given: Given) -> int:
    """Explain the symbol SYM: meaning, type, range, default, value, where it is defined and used."""
    from kassay.config import kconfig
    from kassay.config.explain import explain
    from kassay.config.tree import tree

    name = required(arguments.sym, "helpconfig", "SYM", "MAX_CPUS").removeprefix("CONFIG_")
    with tree() as kconf:
        facts = explain(kconf, name)
    value = ""
    if paths.config().is_file():
        setting = kconfig.load(paths.config())[name]
        text = ("y" if setting.value else "n") if facts.kind == "bool" else setting.value
        place = f", {setting.where}" if setting.where else ""
        value = f"{text} ({setting.origin}{place})"
    rows = {
        "value": value,
        "default": facts.default,
        "range": facts.bounds,
        "depends": facts.depends,
        "menu": facts.menu,
        "defined": "\n".join(facts.defined),
        "used": "\n".join(facts.used),
    }
    print(f"{facts.name} ({facts.kind}): {facts.prompt or 'no prompt, it follows other symbols'}")
    for key, text in rows.items():
        if text:
            print(textwrap.indent(text, " " * 11).replace(" " * 11, f"  {key:9}", 1))
    if facts.help:
        print("\n" + textwrap.fill(facts.help, WIDTH, initial_indent="  ", subsequent_indent="  "))
    return 0


def do_help(arguments: argparse.Namespace, given: Given) -> int:
    """Explain the make targets and the symbols of the selected workflow."""
    from kassay.config import explain
    from kassay.config.assignments import read_assignments
    from kassay.config.strict import apply
    from kassay.config.tree import tree

    head = (paths.ROOT / "Makefile").read_text(encoding="utf-8").split("\n\n", 1)[0]
    print("\n".join(line.removeprefix("#").removeprefix(" ") for line in head.splitlines()))
    with tree() as kconf:
        if paths.config().is_file():
            apply(kconf, read_assignments(paths.config(), "user"))
        workflow = kconf.syms["WORKFLOW"].str_value
        print(f"\nSymbols of workflow {workflow} (make … SYMBOL=value; make helpconfig SYM=<symbol>)")
        for title, symbols in explain.by_menu(kconf, visible_only=True).items():
            print(f"\n{title}:")
            for symbol in symbols:
                prompt = next(node.prompt[0] for node in symbol.nodes if node.prompt)
                print(f"  {symbol.name:28} {prompt}")
    return 0


def say(line: str) -> None:
    """One line of talk on standard error; if nobody can hear it, that changes nothing."""
    try:
        print(line, file=sys.stderr)
    except OSError:
        pass
