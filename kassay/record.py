"""Records: one JSON object a line, the form in which everything measured is kept.

Rules: UTF-8; only LF ends a record; the first key is `schema` (`kassay.<kind>/<version>`); one frozen dataclass per
kind with units in the field names; files are only ever appended to. A non-finite number is written as null and its
field is named in `nonfinite`, because a value is measured or absent, never a sentinel. A torn last line of a writing
session is set aside by `set_aside_torn_tail`; any other bad line is an error. What of a record goes together is
declared by its kind (kassay.combination) and tested whenever one is made or read.
"""

import dataclasses
import json
import math
import os
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

from kassay.combination import Combination
from kassay.errors import RecordError, VersionError


def doc(text: str) -> Any:
    """A dataclass field without default that carries its one-sentence description (unit and range included)."""
    return dataclasses.field(metadata={"doc": text})


@dataclass(frozen=True, kw_only=True)
class Record:
    """Root of all record kinds. A subclass sets `schema`, declares each field with `doc`, and what goes together."""

    schema: ClassVar[str]
    combinations: ClassVar[tuple[Combination, ...]] = ()

    def __post_init__(self) -> None:
        if broken := [one.broken(self) for one in self.combinations if not one.holds(self)]:
            raise RecordError(*(f"record of `{self.schema}`: {said}" for said in broken))

    def to_json(self) -> str:
        """One JSON line without its newline. Raises RecordError for a type or text that JSON in UTF-8 does not have."""
        body: dict[str, Any] = {"schema": self.schema}
        nonfinite: list[str] = []
        for field in fields(self):
            body[field.name] = plain(getattr(self, field.name), field.name, nonfinite)
        if nonfinite:
            body["nonfinite"] = nonfinite
        line = json.dumps(body, ensure_ascii=False, allow_nan=False)
        if not line.isascii():
            for name, value in body.items():
                require_utf8(value, name)
        return line

    @classmethod
    def from_json(cls, body: dict[str, Any], where: str = "") -> Self:
        """The record of one parsed line; `where` is its `file:line` for the message.

        Raises RecordError for another schema, a missing or an unknown field, and for what does not go together.
        """
        try:
            return cls._from_body(body)
        except RecordError as error:
            raise type(error)(*(f"{where}: {said}" if where else said for said in error.messages)) from None
        except (TypeError, AttributeError, KeyError) as error:
            said = f"record of `{cls.schema}`: a value is of another type than its field: {error}"
            raise RecordError(f"{where}: {said}" if where else said) from error

    @classmethod
    def _from_body(cls, body: dict[str, Any]) -> Self:
        require_schema(body, cls.schema)
        names = {field.name for field in fields(cls)}
        given = set(body) - {"schema", "nonfinite"}
        if given != names:
            lacking, unknown = sorted(names - given), sorted(given - names)
            raise RecordError(f"record of `{cls.schema}`: lacks {lacking}, does not know {unknown}")
        if "nonfinite" not in body:
            return cls(**{name: body[name] for name in names})
        lost = {place.partition(":")[0] for place in body["nonfinite"]} & names
        made = cls(**{name: math.nan if name in lost else body[name] for name in names})
        for name in lost:  # a number was there, which its combinations hear, and is null for a reader
            object.__setattr__(made, name, None)
        return made


def plain(value: object, where: str, nonfinite: list[str]) -> object:
    """`value` as JSON types only; a non-finite float becomes None and its place goes into `nonfinite`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        nonfinite.append(f"{where}: {value}")
        return None
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]", nonfinite) for index, item in enumerate(value)]
    if isinstance(value, dict):
        if wrong := [key for key in value if not isinstance(key, str | int) or isinstance(key, bool)]:
            raise RecordError(f"`{where}` has the key {wrong[0]!r}, allowed are text and whole numbers")
        return {str(key): plain(item, f"{where}.{key}", nonfinite) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shallow = {field.name: getattr(value, field.name) for field in fields(value)}
        return plain(shallow, where, nonfinite)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return plain(value.item(), where, nonfinite)  # numpy's scalars mean Python's; numpy itself is not needed here
    raise RecordError(f"`{where}` is of type `{type(value).__name__}`, allowed are JSON's own types")


def require_utf8(value: object, where: str) -> None:
    """Raise RecordError if UTF-8 cannot hold the text in `value`: a lone surrogate, as undecodable file names have."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"`{where}` holds {error.object[error.start]!r}, which UTF-8 cannot hold") from None


def require_schema(body: dict[str, Any], wanted: str) -> None:
    """Raise RecordError unless `body` is of the schema `wanted`, VersionError for another version of it."""
    got = str(body.get("schema"))
    if got == wanted:
        return
    kind, _, version = wanted.rpartition("/")
    got_kind, _, got_version = got.rpartition("/")
    if got_kind == kind and got_version.isdigit():
        older = "older" if int(got_version) < int(version) else "newer"
        raise VersionError(f"record of schema `{got}` is {older} than `{wanted}`, which this kassay reads")
    raise RecordError(f"record of schema `{got}` where `{wanted}` was expected")


class Writer:
    """Appends whole lines to one JSONL file and flushes each to the operating system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, record: Record) -> None:
        """Write one record as one line in one write call."""
        line = (record.to_json() + "\n").encode()
        written = os.write(self._fd, line)
        if written != len(line):
            raise RecordError(f"{self.path}: only {written} of {len(line)} bytes were written (disk full?)")
        self.count += 1

    def close(self) -> None:
        """Make the lines durable and close the file."""
        os.fsync(self._fd)
        os.close(self._fd)


def read_lines(path: Path) -> Generator[dict[str, Any], None, None]:
    """The JSON objects of a finished file, in order. Raises RecordError with file and line for a bad one."""
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            yield parse_line(raw, f"{path}:{number}")


def parse_line(raw: bytes, where: str) -> dict[str, Any]:
    """One line as a JSON object; `where` is `file:line` for the message."""
    if not raw.endswith(b"\n"):
        raise RecordError(f"{where}: the last line is torn (no newline at its end)")
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise RecordError(f"{where}: not a JSON object: {error}") from error
    if not isinstance(body, dict) or next(iter(body), None) != "schema":
        raise RecordError(f"{where}: the first key of a record is `schema`")
    return cast(dict[str, Any], body)


R = TypeVar("R", bound=Record)


def read_kind(path: Path, kind: type[R]) -> list[R]:
    """All records of one kind in a file; lines of other kinds are passed over."""
    name = kind.schema.rpartition("/")[0] + "/"
    with closing(read_lines(path)) as bodies:
        return [
            kind.from_json(body, f"{path}:{number}")
            for number, body in enumerate(bodies, start=1)
            if str(body["schema"]).startswith(name)
        ]


def set_aside_torn_tail(path: Path) -> int | None:
    """Move a torn last line of a session that died into `<name>.torn`; its line number if there was one.

    A last line that lacks nothing but its newline gets that newline: nothing is lost.
    """
    if not path.exists():
        return None
    data = path.read_bytes()
    if not data or data.endswith(b"\n"):
        return None
    kept = data.rfind(b"\n") + 1
    try:
        parse_line(data[kept:] + b"\n", str(path))
    except RecordError:
        with path.with_suffix(path.suffix + ".torn").open("ab") as torn:
            torn.write(data[kept:] + b"\n")
        os.truncate(path, kept)
        return data.count(b"\n") + 1
    with path.open("ab") as stream:
        stream.write(b"\n")
    return None
