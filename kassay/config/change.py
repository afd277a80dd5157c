"""Other ways to a `.config`: brought up to date with the tree, saved as a profile, made at random, compared.

`oldconfig` and `olddefconfig` say every line that they drop; a value that does not hold any more stays an error.
"""

import errno
import os
import random
import tempfile
from pathlib import Path

import kconfiglib

from kassay import paths
from kassay.config.assignments import quoted, read_assignments
from kassay.config.kconfig import BOOKKEEPING, keep_books, lines_of, write
from kassay.config.profiles import NAME, head_comment, head_lines, profile_assignments, profiles
from kassay.config.strict import apply
from kassay.config.tree import active_range, has_prompt, text_of, tree
from kassay.errors import ConfigError

NUMBERS = (kconfiglib.INT, kconfiglib.HEX)


def new_symbols(kconf: kconfiglib.Kconfig) -> list[kconfiglib.Symbol]:
    """Symbols that a user could set and the loaded configuration does not mention; of a choice only an unmade one."""
    return [
        symbol
        for symbol in kconf.unique_defined_syms
        if has_prompt(symbol) and symbol.visibility and symbol.user_value is None and symbol.name not in BOOKKEEPING
    ]


def outdated(kconf: kconfiglib.Kconfig, config: Path) -> list[str]:
    """Load `config` without the symbols that the tree no longer has; a message for each that was dropped."""
    lines = read_assignments(config, "user")
    gone = [line for line in lines if not kconf.syms.get(line.name) or not kconf.syms[line.name].nodes]
    kept = [line for line in lines if line not in gone and has_prompt(kconf.syms[line.name])]  # the others follow
    apply(kconf, kept)
    return [f"{line.where}: `{line.name}={line.text}` is dropped: no Kconfig file has this symbol" for line in gone]


def list_new(config: Path) -> list[str]:
    """`SYMBOL=default` of every symbol that `config` does not mention."""
    with tree() as kconf:
        outdated(kconf, config)
        return [f"{symbol.name}={shown_value(symbol)}" for symbol in new_symbols(kconf)]


def shown_value(symbol: kconfiglib.Symbol) -> str:
    """A symbol's value as `make SYMBOL=value` or a profile takes it."""
    return quoted(symbol.str_value) if symbol.orig_type == kconfiglib.STRING else str(symbol.str_value)


def refresh(config: Path, ask: bool) -> tuple[bool, list[str]]:
    """Bring `config` up to date: new symbols get their default, or are asked for. Whether it changed, what to say."""
    with tree() as kconf:
        messages = outdated(kconf, config)
        new = new_symbols(kconf)
        if ask and new:
            ask_for_new(kconf)
        messages += [f"new: `{symbol.name}={shown_value(symbol)}`, {symbol.nodes[0].prompt[0]}" for symbol in new]
        return write(config, text_of(kconf)), messages


def ask_for_new(kconf: kconfiglib.Kconfig) -> None:
    """Ask on the terminal for every symbol without a value, as kconfiglib's own oldconfig does."""
    import oldconfig

    kconf.warn_to_stderr = True  # it says why an answer is none
    try:
        oldconfig.conf_changed = True
        while oldconfig.conf_changed:  # an answer may bring up what stood before it
            oldconfig.conf_changed = False
            for node in kconf.node_iter():
                oldconfig.oldconfig(node)
    except EOFError:
        raise ConfigError("oldconfig: the answers ended; nothing is written", hint="make olddefconfig") from None


def save_profile(name: str, config: Path) -> tuple[Path, bool]:
    """Write the profile `name` with only what differs from the defaults; its comment head is kept, or made."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"`{name}` is no name of a profile, allowed are letters, digits, `.`, `_` and `-`")
    with tree() as kconf:
        apply(kconf, read_assignments(config, "user"))
        source = kconf.syms["PROFILE"].str_value
        folder = tree_of_workflow(kconf.syms["WORKFLOW"].str_value) / paths.DEFCONFIGS
        keep_books(kconf, dict.fromkeys(BOOKKEEPING, ""))
        with tempfile.TemporaryDirectory() as made:
            kconf.write_min_config(f"{made}/profile", header="")
            body = (Path(made) / "profile").read_text(encoding="utf-8")
    there = profiles().get(name, [])
    if len(there) > 1:
        raise ConfigError(f"profile `{name}` is in two trees: {', '.join(map(paths.shown, there))}")
    target = there[0] if there else folder / name
    text = "\n".join([*(head_lines(target) if there else [made_head(source)]), body])
    if target.is_file() and target.read_text(encoding="utf-8") == text:
        return target, False
    target.parent.mkdir(exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target, True


def made_head(source: str) -> str:
    """A first comment line for a profile that has none yet."""
    files = profiles().get(source, [])
    head = {"hardware": "unknown", "time": "unknown", **(head_comment(files[0]) if files else {})}
    return f"# purpose: made from {source or 'the defaults'}; hardware: {head['hardware']}; time: {head['time']}"


def tree_of_workflow(name: str) -> Path:
    """The tree that holds a workflow."""
    return paths.place(f"{paths.WORKFLOWS}/{name}").parent.parent


def randomize(seed: int, config: Path) -> bool:
    """Write `config` with a random value for each symbol that has a prompt and no free text; a seed gives one file."""
    draw = random.Random(seed)
    with tree() as kconf:
        for symbol in kconf.unique_defined_syms:
            if symbol.choice is not None:
                members = [member for member in symbol.choice.syms if member.visibility]
                if members and symbol is symbol.choice.syms[0]:
                    draw.choice(members).set_value("y")
            elif has_prompt(symbol) and symbol.visibility:
                if symbol.orig_type == kconfiglib.BOOL:
                    symbol.set_value(draw.choice("ny"))
                elif symbol.orig_type in NUMBERS and (bounds := active_range(symbol)):
                    base = 16 if symbol.orig_type == kconfiglib.HEX else 10
                    value = draw.randint(int(bounds[0], base), int(bounds[1], base))
                    symbol.set_value(hex(value) if base == 16 else str(value))
        return write(config, text_of(kconf))


def values_of(name: str) -> dict[str, str]:
    """Symbol -> text of a configuration file, or of `<profile>+<fragment>+…`, after strict evaluation."""
    path = Path(name)
    with tree() as kconf:
        is_file = path.is_file() and path.name not in profiles()
        apply(kconf, read_assignments(path, "user") if is_file else profile_assignments(name))
        keep_books(kconf, dict.fromkeys(BOOKKEEPING, ""))
        return lines_of(text_of(kconf))


def differences(one: str, other: str) -> list[str]:
    """`SYMBOL old -> new` of every symbol that differs; `absent` where a configuration does not have it."""
    before, after = values_of(one), values_of(other)
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, "absent"), after.get(name, "absent")
        if old != new:
            found.append(f"{name} {old} -> {new}")
    return found


class StrictKconfig(kconfiglib.Kconfig):  # type: ignore[misc]  # kconfiglib has no types
    """A tree whose menu refuses a file that does not hold strictly, where kconfiglib would load what it can."""

    def load_config(self, filename: str | None = None, replace: bool = True, verbose: bool | None = None) -> str:
        """Load a configuration. Raises OSError, which the menu shows, with the first thing that is wrong."""
        path = Path(filename or os.environ["KCONFIG_CONFIG"])
        if path.is_file():
            try:
                with tree() as scratch:
                    apply(scratch, read_assignments(path, "user"))
            except ConfigError as error:
                raise OSError(errno.EINVAL, error.messages[0]) from None
        return str(super().load_config(filename, replace, verbose))
