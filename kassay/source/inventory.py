"""An inventory: what an interpreter has installed and from where it imports, asked of a fresh process of it."""

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from kassay.errors import SourceError
from kassay.source import contents, probe
from kassay.source.pins import canonical

LAST_LINES = 4


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """One installed distribution."""

    name: str
    version: str
    info: Path  # its .dist-info folder, or what an older installer left
    sha256: str | None  # hash of its content, None if it has no RECORD

    @property
    def pin(self) -> str:
        """As the lock has it."""
        return f"{self.name.lower()}=={self.version}"

    @property
    def site(self) -> Path:
        """The folder that its RECORD's paths are below."""
        return self.info.parent

    def rows(self) -> dict[str, str]:
        """Its RECORD: path -> SHA-256; empty if it has none."""
        record = self.info / contents.RECORD
        return contents.recorded(record.read_text(errors="replace")) if record.is_file() else {}

    def requires(self) -> list[str]:
        """What it asks for, one requirement a line."""
        path = self.info / "METADATA"
        text = path.read_text(errors="replace") if path.is_file() else ""
        return [str(line) for line in HeaderParser().parsestr(text).get_all("Requires-Dist", [])]

    def direct_url(self) -> dict[str, Any]:
        """Where it was installed from, if not from an index (PEP 610)."""
        path = self.info / "direct_url.json"
        body = json.loads(path.read_bytes()) if path.is_file() else {}
        return body if isinstance(body, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Where one module came from."""

    file: Path | None
    version: str
    owners: tuple[str, ...]  # distributions that say that the module is theirs
    standard: bool  # part of Python
    error: tuple[str, ...]  # last lines of the traceback, empty if it was imported


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What one interpreter has."""

    python: Path
    python_version: str
    prefix: Path
    distributions: dict[str, Distribution]  # by canonical name
    modules: dict[str, Imported]

    def hashes(self) -> dict[str, str | None]:
        """The lock: `name==version` -> hash of the content."""
        return {one.pin: one.sha256 for one in sorted(self.distributions.values(), key=lambda one: one.pin)}


def take(python: Path, modules: tuple[str, ...], *, bytecode: bool) -> Inventory:
    """Ask a fresh interpreter. Raises SourceError if it dies of the question; a failed import is in the answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question.json", Path(folder) / "answer.json"
        question.write_text(json.dumps({"modules": modules}))
        flags = ["-I"] if bytecode else ["-I", "-B"]  # a user's own environment is not even given bytecode
        argv = [str(python), *flags, probe.__file__, str(question), str(answer)]
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", env=environment, check=False)
        if done.returncode != 0 or not answer.exists():
            said = done.stderr.strip().splitlines()[-LAST_LINES:]
            told = f"{python}: the pinned modules cannot be imported: exit status {done.returncode}"
            raise SourceError(told, *said)
        body = json.loads(answer.read_bytes())
    found = [distribution(one) for one in body["distributions"]]
    return Inventory(
        python=python,
        python_version=body["python_version"],
        prefix=Path(body["prefix"]),
        distributions={canonical(one.name): one for one in reversed(found)},  # the first on the path is imported
        modules={name: imported(one) for name, one in body["modules"].items()},
    )


def distribution(told: dict[str, Any]) -> Distribution:
    """A distribution as the probe tells it, with its content's hash."""
    info = Path(told["info"])
    return Distribution(name=told["name"], version=told["version"], info=info, sha256=contents.content_hash(info))


def imported(told: dict[str, Any]) -> Imported:
    """A module as the probe tells it."""
    return Imported(
        file=Path(told["file"]) if told["file"] else None,
        version=told["version"] or "unknown",
        owners=tuple(dict.fromkeys(told["owners"])),
        standard=bool(told.get("standard")),
        error=tuple(told["error"] or ()),
    )
