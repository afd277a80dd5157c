"""Shell completion: verbs, profiles and fragments, stages, runs, Kconfig symbols; `eval "$(kassay completion bash)"`.

The shell calls kassay at each TAB (argcomplete's protocol); only what is asked for is read. Nothing is locked or
written, and an error gives no words: completion never speaks.
"""

import argparse
import json
from collections.abc import Callable, Iterable

from kassay import paths
from kassay.errors import ConfigError, KassayError

SHELLS = ("bash", "zsh", "fish")
RESULTS = "results"  # where runs are by default; .config is not read at every TAB
QUIET = (KassayError, OSError, ValueError, KeyError, TypeError)


def script(shell: str) -> str:
    """What a shell evaluates. Raises ConfigError for one that is not supported."""
    from argcomplete.shell_integration import shellcode

    if shell not in SHELLS:
        raise ConfigError(
            f"shell `{shell}` is not known, allowed are {', '.join(SHELLS)}", hint="kassay completion bash"
        )
    return shellcode(["kassay"], shell=shell)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end, if it asks."""
    import argcomplete

    for action in arguments_of(parser):
        if action.dest in WORDS:
            action.completer = quiet(WORDS[action.dest])  # type: ignore[attr-defined]  # argcomplete's own attribute
    argcomplete.autocomplete(parser, always_complete_options=False)


def arguments_of(parser: argparse.ArgumentParser) -> Iterable[argparse.Action]:
    """The arguments of all verbs."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for made in action.choices.values():
                yield from made._actions


def quiet(words: Callable[[str], Iterable[str]]) -> Callable[..., list[str]]:
    """The words that begin with what was typed; none where they cannot be read."""

    def found(prefix: str, **_: object) -> list[str]:
        try:
            return [word for word in words(prefix) if word.startswith(prefix)]
        except QUIET:
            return []

    return found


def profiles(prefix: str) -> Iterable[str]:
    """Profiles, and behind a `+` fragments that are not there yet."""
    from kassay.config import profiles

    head, plus, _ = prefix.rpartition("+")
    if not plus:
        return profiles.profiles()
    return [f"{head}+{name}" for name in profiles.fragments() if name not in head.split("+")]


def runs(prefix: str) -> Iterable[str]:
    """Runs, the newest link included."""
    return sorted(path.parent.name for path in paths.results_dir(RESULTS).glob(f"*/{paths.PLAN}"))


def stages(prefix: str) -> Iterable[str]:
    """Stages of the newest run."""
    plan = json.loads((paths.results_dir(RESULTS) / "latest" / paths.PLAN).read_bytes())
    return [str(stage["name"]) for stage in plan["stages"]]


def symbols(prefix: str) -> Iterable[str]:
    """Symbols that a user can set, each with its `=`."""
    return [f"{name}=" for name in names()]


def names(prefix: str = "") -> list[str]:
    """Symbols that a user can set."""
    from kassay.config.tree import has_prompt, tree

    with tree() as kconf:
        return sorted(symbol.name for symbol in kconf.unique_defined_syms if has_prompt(symbol))


def shells(prefix: str) -> Iterable[str]:
    """Shells."""
    return SHELLS


WORDS: dict[str, Callable[[str], Iterable[str]]] = {
    "name": profiles,
    "run": runs,
    "a": runs,
    "b": runs,
    "stage": stages,
    "sym": names,
    "variables": symbols,
    "shell": shells,
}
