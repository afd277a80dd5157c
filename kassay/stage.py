"""The stage side of the contract: what a program in stages/ imports.

A stage is `python stages/<name>.py <directory>`. It reads request.json, appends records.jsonl, writes artifacts beside
them, and outcome.json last. `main(run)` is the whole frame:

    def run(stage: Stage) -> Metrics | Rejection:
        stage.append(SomeRecord(...))
        stage.write_json("scales", {...})
        return {"layers": 4}

    if __name__ == "__main__":
        main(run)
"""

import datetime
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, host, loaded, paths
from kassay.errors import EXIT_CRASHED, KassayError
from kassay.outcome import EXIT_OF, Artifact, Outcome, Word
from kassay.record import Record, Writer

Metrics = dict[str, Any]
PR_SET_PDEATHSIG = 1
PROGRESS_PERIOD_S = 0.25


class Unmet(Exception):
    """The host lacks what the stage needs; the message says exactly what."""


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """The stage ran and a gate said no."""

    reason: str
    metrics: Metrics


class Stage:
    """One stage directory, seen from inside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.request: dict[str, Any] = json.loads((directory / paths.REQUEST).read_bytes())
        self.name: str = self.request["stage"]
        self.run_dir = Path(self.request["run_dir"])
        self.params: dict[str, Any] = self.request["params"]
        self.inputs = {name: Path(given["path"]) for name, given in self.request["inputs"].items()}
        self.cpus: int = self.request["grant"]["cpus"]
        self.gpus: int = self.request["grant"]["gpus"]
        self.started = time.monotonic()
        self.started_at = utc_now()
        self.artifacts: dict[str, Artifact] = {}
        self._code_of_children: dict[str, str] = {}
        self._changed_under_children: set[str] = set()
        self._foundations: dict[str, str] = {}
        self._asks_again = ""
        self._effective: dict[str, dict[str, Any]] = {}
        self._records: Writer | None = None
        self._progress_at = 0.0

    def append(self, record: Record) -> None:
        """Append one record to records.jsonl."""
        if self._records is None:
            self._records = Writer(self.directory / paths.RECORDS)
        self._records.append(record)

    def json_input(self, name: str) -> Any:
        """The parsed JSON of an input file."""
        return json.loads(self.inputs[name].read_bytes())

    def input_sha256(self, name: str) -> str:
        """The digest of an input, as the request states it."""
        return str(self.request["inputs"][name]["sha256"])

    def inputs_of(self, group: str) -> dict[str, Path]:
        """The inputs `<group>.<member>` that a `*` reference was expanded to, by member."""
        prefix = group + "."
        return {name.removeprefix(prefix): path for name, path in self.inputs.items() if name.startswith(prefix)}

    def write_json(self, name: str, value: Any) -> Path:
        """Write the artifact `<name>.json`."""
        path = self.directory / f"{name}.json"
        digest.write_json(path, value)
        return self.add_artifact(name, path)

    def write_text(self, file: str, text: str) -> Path:
        """Write a text artifact, named by its file name."""
        path = self.directory / file
        digest.write_bytes(path, text.encode())
        return self.add_artifact(file, path)

    def add_artifact(self, name: str, path: Path) -> Path:
        """Declare a file of the stage directory as an artifact; its digest goes into the outcome."""
        relative = str(path.relative_to(self.directory))
        self.artifacts[name] = Artifact(file=relative, sha256=digest.of_file(path), bytes=path.stat().st_size)
        return path

    def add_foundation(self, path: Path) -> None:
        """Declare a file outside the stage directory without which, as it is, the result is worth nothing any more."""
        self._foundations[str(path)] = digest.of_file(path)

    def ask_again(self, reason: str) -> None:
        """Say that the result holds for now only: the next run of this stage asks the world again."""
        self._asks_again = reason

    def add_child(self, receipt: dict[str, Any]) -> None:
        """Make the code that a process of this stage loaded part of the stage's identity."""
        before, code = self._code_of_children, receipt["code"]
        self._changed_under_children |= {name for name, sha256 in code.items() if before.get(name, sha256) != sha256}
        self._changed_under_children |= set(receipt["code_changed"])
        self._code_of_children = before | code

    def attest(self, arm: str, **effective: Any) -> None:
        """Say in the receipt what an engine of this stage really used, as the engine itself told it."""
        self._effective[arm] = effective

    def progress(self, done: int, total: int, what: str) -> None:
        """Tell whoever watches how far the stage is; at most four times a second reaches the disk."""
        now = time.monotonic()
        if now - self._progress_at < PROGRESS_PERIOD_S and done != total:
            return
        self._progress_at = now
        temporary = self.directory / f".{paths.PROGRESS}"
        temporary.write_text(json.dumps({"done": done, "total": total, "what": what}))
        os.replace(temporary, self.directory / paths.PROGRESS)

    def rejected(self, reason: str, **metrics: Any) -> Rejection:
        """What `run` returns when a gate says no."""
        return Rejection(reason=reason, metrics=metrics)

    def finish(self, word: Word, reason: str, metrics: Metrics) -> None:
        """Write receipt.json and then outcome.json."""
        if self._records is not None:
            self._records.close()
            self.add_artifact("records", self.directory / paths.RECORDS)
        digest.write_json(self.directory / paths.RECEIPT, self.receipt())
        Outcome(
            stage=self.name,
            run=self.request["run"],
            word=word,
            reason=reason,
            metrics=metrics,
            artifacts=self.artifacts,
            started_at=self.started_at,
            duration_s=round(time.monotonic() - self.started, 3),
            attempt=self.request["attempt"],
            grant=self.grant(),
        ).save(self.directory)

    def grant(self) -> dict[str, Any]:
        """What the stage was granted; where a cluster chose the GPUs, those that it finds."""
        given: dict[str, Any] = self.request["grant"]
        if given["gpus"] and given["gpu_ids"] is None:
            return given | {"gpu_ids": list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))}
        return given

    def receipt(self) -> dict[str, Any]:
        """What really ran: interpreter, packages, and the project files that were loaded, with their digests."""
        own = loaded.code([Path(root) for root in self.request["roots"]])
        asked_ns = (self.directory / paths.REQUEST).stat().st_mtime_ns
        changed = {name for name, path in own.items() if path.stat().st_ctime_ns > asked_ns}
        code = {name: digest.of_file(path) for name, path in own.items()}
        return {
            "schema": "kassay.receipt/1",
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "packages": loaded.packages(),
            # Where it ran: on a cluster not where it was asked for. Only measurements depend on it.
            "host": host.fingerprint(with_gpus=self.gpus > 0) if self.request.get("key", {}).get("host") else None,
            "argv_sha256": digest.of_value(sys.orig_argv),
            "shared_objects": loaded.shared_objects(),
            "jit_products": loaded.jit_products(since_ns=asked_ns),
            "code": code | self._code_of_children,
            # Files edited since the request: which of their versions ran cannot be told, so the result is not reused.
            "code_changed": sorted(changed | self._changed_under_children),
            "foundations": self._foundations,
            "asks_again": self._asks_again,
            **({"effective": self._effective} if self._effective else {}),
        }


def utc_now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def require(needed: dict[str, Any]) -> None:
    """Raise Unmet with everything that this host lacks of what the stage needs."""
    from kassay import needs

    if lacks := needs.lacks(needed):
        raise Unmet("; ".join(lacks))


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, so that no stage outlives its driver."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(run: Callable[[Stage], Metrics | Rejection]) -> None:
    """Run a stage program: exit 0 passed, 3 rejected, 4 unmet; anything else is a crash with its traceback."""
    die_with_parent()
    if len(sys.argv) != 2:
        print(f"usage: {Path(sys.argv[0]).name} <stage directory>", file=sys.stderr)
        raise SystemExit(2)
    stage = Stage(Path(sys.argv[1]).resolve())
    word: Word = "passed"
    reason = ""
    metrics: Metrics = {}
    try:
        if needed := stage.request.get("host"):
            require(needed)
        ended = run(stage)
        if isinstance(ended, Rejection):
            word, reason, metrics = "rejected", ended.reason, ended.metrics
        else:
            metrics = ended
    except Unmet as lack:
        word, reason = "unmet", str(lack)
    except KassayError as error:
        print(f"error: {error}", file=sys.stderr)
        stage.finish("crashed", str(error), {})
        raise SystemExit(EXIT_CRASHED) from None
    except Exception as error:  # the one place where any error is recorded as a crash
        traceback.print_exc()
        stage.finish("crashed", f"{type(error).__name__}: {error}", {})
        raise SystemExit(EXIT_CRASHED) from None
    stage.finish(word, reason, metrics)
    raise SystemExit(EXIT_OF[word])
