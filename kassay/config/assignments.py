"""The lines of a profile, fragment or .config as assignments with their place, so that none can be lost in silence.

kconfiglib decides what a value means; this module only says which symbol was asked for which value on which line, and
refuses what kconfiglib would drop without a word (O01 to O04 of the field's bug cases).
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

from kassay import paths
from kassay.errors import ConfigError

SET = re.compile(r"CONFIG_(?P<name>\w+)=(?P<text>.*)")
UNSET = re.compile(r"# CONFIG_(?P<name>\w+) is not set")
STRING = re.compile(r'"((?:[^\\"]|\\.)*)"')


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One `CONFIG_X=…` or `# CONFIG_X is not set`."""

    name: str
    text: str  # as it stands after `=`; `n` for `is not set`
    where: str  # file:line
    origin: str  # profile, fragment, command line or user


def read_assignments(path: Path, origin: str) -> list[Assignment]:
    """All assignments of a file. Raises ConfigError with every malformed line at once."""
    return parse(path.read_bytes(), paths.shown(path), origin)


def parse(content: bytes, name: str, origin: str) -> list[Assignment]:
    """All assignments in the bytes of a file of that name."""
    try:
        text = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8").read()  # every line end becomes LF
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}:{number}: not UTF-8: byte 0x{error.object[error.start]:02x}") from None
    if text.startswith("\ufeff"):
        raise ConfigError(f"{name}:1: starts with a byte-order mark; save the file as UTF-8 without it")
    found: list[Assignment] = []
    errors: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):  # as kconfiglib does: U+2028 and the like end no line
        where = f"{name}:{number}"
        if match := UNSET.fullmatch(line.rstrip()):
            found.append(Assignment(name=match["name"], text="n", where=where, origin=origin))
        elif match := SET.fullmatch(line):
            found.append(Assignment(name=match["name"], text=match["text"], where=where, origin=origin))
        elif line.strip() and not line.startswith("#"):
            errors.append(f"{where}: `{line}` is no assignment, allowed is `CONFIG_<SYMBOL>=<value>` or a comment")
    errors += twice(found)
    if errors:
        raise ConfigError(*errors)
    return found


def twice(assignments: list[Assignment]) -> list[str]:
    """A symbol that one file sets to two values: an error, because a pick by line order is a silent pick."""
    first: dict[str, Assignment] = {}
    errors = []
    for line in assignments:
        other = first.setdefault(line.name, line)
        if other.text != line.text:
            errors.append(f"{line.where}: `{line.name}={line.text}`, but {other.where} says `{other.text}`")
    return errors


def quoted(value: str) -> str:
    """`value` as a Kconfig string literal."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
