"""The words of a command line: Kconfig symbols to set, and the few names that a verb or make itself takes.

`make plan TIMING_BLOCKS=8` reaches us in MAKEFLAGS, which make writes for its own sub-makes: a value arrives as it was
typed, `$` and all, and neither make nor a shell expands it. Source: GNU make manual, "Communicating Options to a
Sub-make".
"""

import os
import re
from dataclasses import dataclass

from kassay import paths
from kassay.errors import ConfigError

# Names that make itself or its recipes take; they never reach Kconfig.
OF_MAKE = {"CHECK_VENV", "KASSAY", "PIP_FIND_LINKS", "PYTHON", "TRIAL", "KILLS", "UV_FIND_LINKS", "VENV", paths.OUTSIDE}
# Arguments of single verbs.
OF_VERB = set("RUN NAME SYM SEED A B STAGE FORCE KEEP AGAIN BASELINE REASON SQL TO NOW TAR".split())
OVERRIDES = "SET"
FROM_MAKE = "KASSAY_MAKE"  # set by our Makefile's recipes: MAKEFLAGS holds words for us
ASSIGNMENT = re.compile(r"(?P<name>[^\s:+?!=]+)(?P<sign>::?:?|\+|\?|!)?=(?P<text>.*)", re.DOTALL)
ESCAPED = re.compile(r"\\(.)|\$\$", re.DOTALL)
WORD = re.compile(r"(?:\\.|[^\s\\])+", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a command line gave, by name."""

    symbols: dict[str, str]
    arguments: dict[str, str]  # of OF_VERB
    overrides: str  # the text of SET


def given(words: list[str]) -> Given:
    """`SYMBOL=value` words, variables of make's command line, and SET. Raises ConfigError for a word without `=`."""
    found = of_make() | pairs(words)
    if paths.OUTSIDE in found:
        os.environ[paths.OUTSIDE] = found[paths.OUTSIDE]
    if dotted := [name for name in found if "." in name]:
        messages = [f"command line: unknown symbol `{name}`" for name in dotted]
        raise ConfigError(*messages, hint=f'make SET="{dotted[0]}=…" overrides a value of the workflow')
    overrides = found.pop(OVERRIDES, utf8(os.environ.get(OVERRIDES, "")))
    return Given(
        symbols={name: text for name, text in found.items() if name not in OF_VERB | OF_MAKE},
        arguments={name: text for name, text in found.items() if name in OF_VERB},
        overrides=overrides,
    )


def pairs(words: list[str]) -> dict[str, str]:
    """`X=value` words by name."""
    found = {}
    for word in words:
        match = ASSIGNMENT.fullmatch(word)
        if match is None or match["sign"] not in (None, ":", "::", ":::"):
            raise ConfigError(f"`{word}` is no assignment, allowed is SYMBOL=value")
        found[match["name"]] = match["text"]
    return found


def of_make() -> dict[str, str]:
    """The variables of make's command line, if a recipe of ours called; stages do not inherit them."""
    flags = utf8(os.environ.get("MAKEFLAGS", ""))
    called = os.environ.pop(FROM_MAKE, "")
    for name in ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL"):
        os.environ.pop(name, None)
    words = WORD.findall(flags)
    if not called or "--" not in words:
        return {}
    return pairs([ESCAPED.sub(lambda match: match[1] or "$", word) for word in words[words.index("--") + 1 :]])


def utf8(text: str) -> str:
    """A word of the command line or the environment as UTF-8, whatever the locale. Raises ConfigError if it is none."""
    try:
        return os.fsencode(text).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"command line: not UTF-8: {error.object!r}") from None
