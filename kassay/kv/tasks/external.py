"""Tasks that come as a file: math problems with a worked answer, or documents of text, one JSON object a line.

    {"question": "…", "answer": "… #### 18"}      problems, as GSM8K has them: the answer ends with its labelled number
    {"text": "…"}                                 documents

A file is read whole and strictly: every line is checked, used or not, and all faults are told together. It has a digest
(SHA-256 of its bytes), and every entry has one of what it says, so that a line that says the same again is a fault.
Which entries are used follows from the seed and from what they say, not from their place: those with the smallest
SHA-256 of both. A smaller selection is part of a larger one. A file that is not there or holds too few is unmet by
name, never a smaller set.

What it does not do: it keeps no splits apart. A published test set is exposed, and its entries belong to the split that
the study names.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from kassay.errors import RecordError
from kassay.kv.tasks import gsm8k
from kassay.kv.tasks.splits import digest_of
from kassay.stage import Unmet

FAULTS_TOLD = 10
FETCH = "python scripts/fetch-tasks.py writes such files"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A math problem."""

    line: int  # in its file, from 1
    question: str  # as it stands in the file
    solution: str  # the worked answer with its label
    answer: Decimal  # the number behind the last label, exactly
    digest: str  # SHA-256 of the canonical JSON of question and solution


@dataclass(frozen=True, kw_only=True)
class Text:
    """A document."""

    line: int  # in its file, from 1
    text: str  # as it stands in the file
    digest: str  # SHA-256 of the canonical JSON of its text


Entry = TypeVar("Entry", Problem, Text)


@dataclass(frozen=True, kw_only=True)
class Problems:
    """All problems of a file."""

    name: str  # of the file, without its folder
    sha256: str  # of the file's bytes
    entries: tuple[Problem, ...]  # in the file's order


@dataclass(frozen=True, kw_only=True)
class Texts:
    """All documents of a file."""

    name: str  # of the file, without its folder
    sha256: str  # of the file's bytes
    entries: tuple[Text, ...]  # in the file's order


def problems(path: Path) -> Problems:
    """The problems of a file. Raises Unmet if it is not there, RecordError with every line that is no problem."""
    sha256, entries = read(path, problem)
    return Problems(name=path.name, sha256=sha256, entries=tuple(entries))


def texts(path: Path) -> Texts:
    """The documents of a file. Raises Unmet if it is not there, RecordError with every line that is no document."""
    sha256, entries = read(path, document)
    return Texts(name=path.name, sha256=sha256, entries=tuple(entries))


def problem(line: int, body: Any) -> Problem:
    """One line as a problem; raises ValueError with what is wrong."""
    question, solution = texts_of(body, ("question", "answer"))
    reading = gsm8k.read(solution, "stop")
    if reading.how != "label" or reading.value is None:
        raise ValueError(f"`answer` ends with no number labelled `{gsm8k.LABEL}`")
    digest = digest_of({"question": question, "answer": solution})
    return Problem(line=line, question=question, solution=solution, answer=reading.value, digest=digest)


def document(line: int, body: Any) -> Text:
    """One line as a document; raises ValueError with what is wrong."""
    (text,) = texts_of(body, ("text",))
    return Text(line=line, text=text, digest=digest_of({"text": text}))


def texts_of(body: Any, keys: Sequence[str]) -> list[str]:
    """The texts of exactly these keys; raises ValueError for any other object."""
    if not isinstance(body, dict) or sorted(body) != sorted(keys):
        got = f"keys {', '.join(sorted(body)) or 'none'}" if isinstance(body, dict) else type(body).__name__
        raise ValueError(f"is {got}, allowed is an object of {' and '.join(keys)}")
    for key in keys:
        if not isinstance(body[key], str) or not body[key].strip():
            raise ValueError(f"`{key}` is not a text with something in it")
    return [body[key] for key in keys]


def read(path: Path, make: Callable[[int, Any], Entry]) -> tuple[str, list[Entry]]:
    """The digest of a file and its entries, every line checked."""
    if not path.is_file():
        raise Unmet(f"{path.name}: no such file of tasks; {FETCH}")
    content = path.read_bytes()
    entries: dict[str, Entry] = {}
    faults = []
    for line, raw in enumerate(content.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            entry = make(line, json.loads(raw))
            if (same := entries.setdefault(entry.digest, entry)) is not entry:
                raise ValueError(f"says the same as line {same.line}")
        except ValueError as error:  # of JSON and of UTF-8 too
            faults.append(f"{path.name}:{line}: {error}")
    if faults:
        more = [f"{path.name}: {len(faults) - FAULTS_TOLD} more lines"] if len(faults) > FAULTS_TOLD else []
        raise RecordError(*faults[:FAULTS_TOLD], *more, hint=FETCH)
    return hashlib.sha256(content).hexdigest(), list(entries.values())


def selected(name: str, entries: Sequence[Entry], *, seed: int, count: int) -> list[Entry]:
    """`count` entries by seed, in the order of their lines. Raises Unmet if there are fewer."""
    if len(entries) < count:
        raise Unmet(f"{name}: {count} entries are asked for, and {len(entries)} can be used")
    return sorted(drawn(entries, seed)[:count], key=lambda entry: entry.line)


def drawn(entries: Sequence[Entry], seed: int) -> list[Entry]:
    """All entries in the order of a seed, which is that of the SHA-256 of the seed and what they say."""
    return sorted(entries, key=lambda entry: hashlib.sha256(f"{seed}|{entry.digest}".encode("ascii")).hexdigest())
