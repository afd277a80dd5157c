"""When is a stage up to date? If and only if its key is equal: nothing else is asked, no time stamp, no marker file.

A key has named parts, so that a difference can be told: the parameters, each input's digest, each project file that
the stage loaded, the interpreter's stack, and, for a measurement, the host. `explain` says the first difference.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, host, paths
from kassay.outcome import Outcome, load
from kassay.plan import Stage
from kassay.source.freeze import frozen_tree

REUSABLE = ("passed", "rejected")


@dataclass(frozen=True, kw_only=True)
class Input:
    """A resolved input: where it lies now, and what it is."""

    path: Path
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a stage is about to be asked, with every input resolved."""

    stage: Stage
    inputs: dict[str, Input]

    def parts(self) -> dict[str, Any]:
        """The parts of the key that are known before the stage runs."""
        return {
            "program": self.stage.program,
            "params": self.stage.params,
            "inputs": {name: given.sha256 for name, given in sorted(self.inputs.items())},
            "host": {**host.fingerprint(), "grant_cpus": self.stage.cpus} if self.stage.measures_host else None,
        }


def tree_input(reference: str) -> Input:
    """A `tree:path` reference; `tree:.` is the whole project as git sees it, its commit included."""
    path = paths.ROOT / reference.removeprefix("tree:")
    if path.resolve() == paths.ROOT:
        return Input(path=paths.ROOT, sha256=digest.of_value(frozen_tree(paths.ROOT)))
    return Input(path=path, sha256=digest.of_path(path))


def explain(directory: Path, wanted: Wanted) -> str | None:
    """Why the result in `directory` does not answer `wanted`, or None if it does."""
    outcome = load(directory)
    if outcome is None:
        return "never ran" if not directory.exists() else "did not finish"
    if outcome.word not in REUSABLE:
        return f"was {outcome.word}"
    request = json.loads((directory / paths.REQUEST).read_bytes())
    difference = first_difference(request["key"], wanted.parts())
    return difference or changed_code(directory) or changed_artifact(directory, outcome)


def first_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """The first part in which two keys differ, in words."""
    if old["program"] != new["program"]:
        return f"program: {old['program']} -> {new['program']}"
    for name in sorted({*flat(old["params"]), *flat(new["params"])}):
        before, after = flat(old["params"]).get(name, "absent"), flat(new["params"]).get(name, "absent")
        if before != after:
            return f"parameter {name}: {short(before)} -> {short(after)}"
    for name in sorted({*old["inputs"], *new["inputs"]}):
        if old["inputs"].get(name) != new["inputs"].get(name):
            return f"input {name} changed"
    return "host differs" if old["host"] != new["host"] else None


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one with dotted keys."""
    if not isinstance(value, dict):
        return {prefix: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found |= flat(item, f"{prefix}.{key}" if prefix else str(key))
    return found


def short(value: Any) -> str:
    """A value in at most 40 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def changed_code(directory: Path) -> str | None:
    """The first project file that the stage loaded and that is another one now."""
    receipt = json.loads((directory / paths.RECEIPT).read_bytes())
    for name, sha256 in receipt["code"].items():
        path = paths.ROOT / name
        if not path.is_file():
            return f"code {name} is gone"
        if digest.of_file(path) != sha256:
            return f"code {name} changed"
    return None


def changed_artifact(directory: Path, outcome: Outcome) -> str | None:
    """The first artifact that is gone or is not what the outcome says."""
    for artifact in outcome.artifacts.values():
        path = directory / artifact.file
        if not path.is_file() or digest.of_file(path) != artifact.sha256:
            return f"artifact {artifact.file} is gone or was changed"
    return None


def earlier_results(results: Path, stage: str) -> list[Path]:
    """Real directories of this stage in all runs, newest first; links to them and `latest` are passed over."""
    runs = [run for run in results.iterdir() if not run.is_symlink()] if results.is_dir() else []
    found = [path for run in runs if (path := paths.stage_dir(run, stage)).is_dir() and not path.is_symlink()]
    asked = {path: path / paths.REQUEST for path in found}
    return sorted(
        (path for path in found if asked[path].is_file()), key=lambda p: asked[p].stat().st_mtime, reverse=True
    )
