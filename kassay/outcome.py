"""How a stage ended: one of five words that are never merged, and what it left.

passed    it ran and every gate of its own said yes
rejected  it ran, and a gate said no: a result, not an error
unmet     the host lacks what it needs; nothing was measured; asked again at the next run
blocked   an upstream stage is not usable, or a predeclared rule gates it off; the reason says which
crashed   everything else, a missing outcome included
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from kassay import digest, paths
from kassay.errors import EXIT_CRASHED, EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET, RecordError, RunError
from kassay.record import plain, require_schema

Word = Literal["passed", "rejected", "unmet", "blocked", "crashed"]
WORDS: tuple[Word, ...] = get_args(Word)
SCHEMA = "kassay.outcome/2"

# A stage program's exit status for each outcome that it can declare itself.
EXIT_OF: dict[Word, int] = {"passed": EXIT_PASSED, "rejected": EXIT_REJECTED, "unmet": EXIT_UNMET}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that a stage left for others."""

    file: str  # name inside the stage directory
    sha256: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The content of outcome.json."""

    stage: str
    run: str  # id of the run in which the stage was executed
    word: Word
    reason: str  # empty for passed, else what exactly said no, lacked, blocked or broke
    metrics: dict[str, Any]  # small named results, for people and the report
    artifacts: dict[str, Artifact]
    started_at: str  # UTC, ISO 8601
    duration_s: float
    attempt: int  # 1, and one more for every retry after a crash; 0 if it was not started
    grant: dict[str, Any] | None  # cores, memory, GPUs that it had; None if it was not started

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise RunError(f"stage `{self.stage}`: `{self.word}` is no outcome, allowed are {', '.join(WORDS)}")
        if not isinstance(self.duration_s, int | float) or not isinstance(self.attempt, int):
            raise RunError(f"stage `{self.stage}`: its duration or attempt is no number")
        if (self.word == "passed") != (self.reason == ""):
            raise RunError(f"stage `{self.stage}`: outcome `{self.word}` with reason `{self.reason}`")
        left = [name for name in ("metrics", "artifacts", "grant") if getattr(self, name)]
        if self.attempt == 0 and (left or self.word in ("passed", "rejected")):
            raise RunError(
                f"stage `{self.stage}`: it was not started (attempt 0) and is `{self.word}` with "
                f"{', '.join(left) or 'nothing'}, allowed are unmet, blocked or crashed without any of them"
            )

    @property
    def usable(self) -> bool:
        """Whether stages below may read what this one left."""
        return self.word == "passed"

    def lacks(self, read: dict[str, str]) -> str:
        """What others read (artifact -> reader) and it did not leave though it passed, in words."""
        gone = [] if not self.usable else [name for name in read if name not in self.artifacts]
        return "; ".join(f"left no `{name}`, which `{read[name]}` reads" for name in gone)

    def body(self) -> dict[str, Any]:
        """All fields as JSON has them."""
        return {**vars(self), "artifacts": {name: vars(artifact) for name, artifact in self.artifacts.items()}}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> "Outcome":
        """The outcome of `body`. Raises KeyError or TypeError if it lacks a field."""
        named = {name: body[name] for name in cls.__dataclass_fields__}
        named["artifacts"] = {name: Artifact(**artifact) for name, artifact in body["artifacts"].items()}
        return cls(**named)

    def save(self, directory: Path, durable: bool = True) -> None:
        """Write outcome.json, as the last file of the stage; one that is not durable yet is so after `digest.sync`."""
        body: dict[str, Any] = {"schema": SCHEMA, **self.body()}
        nonfinite: list[str] = []
        body["metrics"] = plain(self.metrics, "metrics", nonfinite)
        body["nonfinite"] = nonfinite
        (digest.write_json if durable else digest.write_soon)(directory / paths.OUTCOME, body)


def load(directory: Path) -> Outcome | None:
    """The outcome of a stage directory, or None if the stage has not ended. Raises RunError for a broken file."""
    path = directory / paths.OUTCOME
    try:
        body = json.loads(path.read_bytes())
        require_schema(body, SCHEMA)
        return Outcome.from_body(body)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecordError, RunError) as error:
        raise RunError(
            f"{path}: not a readable outcome: {error}", hint=f"move {directory} away and run make again"
        ) from error


def exit_code(words: list[Word]) -> int:
    """Exit code of a whole run: a crash outranks a rejection, which outranks what was unmet or blocked."""
    if "crashed" in words:
        return EXIT_CRASHED
    if "rejected" in words:
        return EXIT_REJECTED
    if "unmet" in words or "blocked" in words:
        return EXIT_UNMET
    return EXIT_PASSED
