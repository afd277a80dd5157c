"""When is a stage up to date? If and only if its key is equal: nothing else is asked, no time stamp, no marker file.

A key has named parts, so that a difference can be told: the parameters, each input's digest, each project file that
the stage loaded, the interpreter's stack, and, for a measurement, the host. `explain` says the first difference.
"""

import functools
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, gpus, host, paths
from kassay.dotted import flat
from kassay.entry import Stage
from kassay.errors import RunError
from kassay.outcome import Outcome, load

REUSABLE = ("passed", "rejected")
NEVER_RAN = "never ran"
# What reading files gives that are not what we wrote.
UNREADABLE = (RunError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


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
        stage = self.stage
        return {
            "program": stage.program,
            "params": {"argv": stage.argv, "outputs": stage.outputs} if stage.argv else stage.params,
            "inputs": {name: given.sha256 for name, given in sorted(self.inputs.items())},
            "host": self.host() if stage.measures_host else None,
        }

    def host(self) -> dict[str, Any]:
        """Where a measurement holds: this host, with the cores that are granted, and its GPUs if it asks for some."""
        return {**host.fingerprint(with_gpus=self.stage.gpus > 0), "grant_cpus": self.stage.cpus}


def tree_input(reference: str) -> Input:
    """A `tree:path` reference; `tree:.` is the whole project as git sees it, its commit included.

    An absolute path may lead out of the trees; raises RunError if what lies there changes while it is read.
    """
    name = reference.removeprefix("tree:")
    if name == ".":
        from kassay.source.tree import frozen_tree

        return Input(path=paths.ROOT, sha256=digest.of_value(frozen_tree(paths.ROOT)))
    path = paths.place(name)
    return Input(path=path, sha256=digest.of_unchanging(path) if os.path.isabs(name) else digest.of_path(path))


def resolve(stage: Stage, left: dict[str, tuple[Path, Outcome]]) -> dict[str, Input]:
    """Paths and digests of a stage's inputs; `left` has the directory and the outcome of every stage that it needs."""
    found = {}
    for name, reference in stage.inputs.items():
        if reference.startswith("tree:"):
            found[name] = tree_input(reference)
            continue
        owner, _, artifact_name = reference.rpartition(".")
        directory, outcome = left[owner]
        artifact = outcome.artifacts[artifact_name]
        found[name] = Input(path=directory / artifact.file, sha256=artifact.sha256)
    return found


def unusable(stage: Stage, outcomes: dict[str, Outcome]) -> str:
    """Why what the stage needs cannot be read, or an empty string."""
    return "; ".join(f"`{name}` was {outcomes[name].word}" for name in stage.needs() if not outcomes[name].usable)


def measured_elsewhere(directory: Path) -> str | None:
    """Where another run's measurement was made, if not on a host like this one; its own run keeps it all the same."""
    there = json.loads((directory / paths.RECEIPT).read_bytes()).get("host")
    if there is None:
        return None
    devices = there.get("gpus", [])
    if there == host.fingerprint(with_gpus="gpus" in there) and not any(gpus.NOT_TOLD in kind for kind in devices):
        return None
    told = "; ".join([f"{there['processor']}, {there['cpus']} cores", *devices])
    return f"was measured on another host ({told})"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A result that is there, as far as it can be read, and why it does not answer what is wanted."""

    directory: Path
    outcome: Outcome | None
    receipt: dict[str, Any]
    why: str | None  # None: it answers

    def made(self) -> Outcome:
        """The outcome of a result that is there."""
        assert self.outcome is not None, "a bug: nothing was found"
        return self.outcome

    def intact(self) -> bool:
        """Whether it ended as a result, and its artifacts are what it left, whatever else has changed."""
        try:
            return self.outcome is not None and changed_file(self.directory, self.outcome, self.receipt) is None
        except UNREADABLE:
            return False


def explain(directory: Path, wanted: Wanted) -> str | None:
    """Why the result in `directory` does not answer `wanted`, or None if it does."""
    return examine(directory, wanted).why


def examine(directory: Path, wanted: Wanted) -> Found:
    """The result in `directory` beside what is wanted."""
    try:
        outcome = load(directory)
        if outcome is None:
            return nothing(directory, NEVER_RAN if not directory.exists() else "did not finish")
        if outcome.word not in REUSABLE:
            return nothing(directory, f"was {outcome.word}")
        key = json.loads((directory / paths.REQUEST).read_bytes())["key"]
        receipt = json.loads((directory / paths.RECEIPT).read_bytes())
        why = (
            first_difference(key, wanted.parts())
            or str(receipt.get("asks_again", ""))
            or changed_code(receipt)
            or ("" if "stack" in wanted.inputs else changed_environment(receipt))
            or changed_file(directory, outcome, receipt)
        )
        return Found(directory=directory, outcome=outcome, receipt=receipt, why=why)
    except UNREADABLE as error:
        return nothing(directory, f"its files cannot be read: {type(error).__name__}")  # it is set aside, not lost


def nothing(directory: Path, why: str) -> Found:
    """No result, and why."""
    return Found(directory=directory, outcome=None, receipt={}, why=why)


def first_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """The first part in which two keys differ, in words."""
    if old["program"] != new["program"]:
        return f"program: {old['program']} -> {new['program']}"
    for name in sorted({*flat(old["params"]), *flat(new["params"])}):
        before, after = flat(old["params"]).get(name, "absent"), flat(new["params"]).get(name, "absent")
        if digest.of_value(before) != digest.of_value(after):  # to Python, 1 and True and 1.0 are equal
            return f"parameter {name}: {short(before)} -> {short(after)}"
    if digest.of_value(old["params"]) != digest.of_value(new["params"]):
        return "parameters changed"
    for name in sorted({*old["inputs"], *new["inputs"]}):
        if old["inputs"].get(name) != new["inputs"].get(name):
            return f"input {name} changed"
    return host_difference(old["host"], new["host"])


def host_difference(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str | None:
    """In what two hosts differ, None if in nothing; one of them is none where the stage measures none."""
    if old == new:
        return None
    differing = sorted(name for name in {*(old or {}), *(new or {})} if (old or {}).get(name) != (new or {}).get(name))
    return f"host differs: {', '.join(differing)}" if old and new else "host differs"


def short(value: Any) -> str:
    """A value in at most 40 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def changed_code(receipt: dict[str, Any]) -> str | None:
    """The first project file that the stage loaded and that is another one now."""
    for name in receipt["code_changed"]:
        return f"code {name} changed while it ran"
    for name, sha256 in receipt["code"].items():
        found = paths.places(name)
        if not found:
            return f"code {name} is gone"
        if len(found) > 1 or digest.of_file(found[0]) != sha256:
            return f"code {name} changed"
    return None


def changed_environment(receipt: dict[str, Any]) -> str | None:
    """What differs in this process's own environment, in which a stage without a stack runs."""
    if receipt["python"] is None:  # a plain executable
        now, before = which(receipt["argv0"]), receipt["executable"]
        return None if now == before else f"executable {before} -> {now or 'absent'}"
    if receipt["python"] != (now := sys.version.split()[0]):
        return f"Python {receipt['python']} -> {now}"
    for name, version in receipt["packages"].items():
        if (now := installed(name)) != version:
            return f"package {name} {version} -> {now}"
    return None


which = functools.cache(shutil.which)


@functools.cache
def installed(name: str) -> str:
    """The version of a distribution of this environment, or `absent`."""
    import importlib.metadata  # it takes as long as all of ours together

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def changed_file(directory: Path, outcome: Outcome, receipt: dict[str, Any]) -> str | None:
    """The first artifact or foundation that is gone or is not what the stage left."""
    files = {directory / artifact.file: artifact.sha256 for artifact in outcome.artifacts.values()}
    for path, sha256 in [*files.items(), *((Path(file), sha256) for file, sha256 in receipt["foundations"].items())]:
        if not path.is_file() or digest.of_file(path) != sha256:
            return f"{'artifact ' + path.name if path in files else path} is gone or was changed"
    return None
