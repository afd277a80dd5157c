"""`make export`: one tar with everything that an audit of a run on another machine needs, and nothing else.

    <run id>/export.json               run, version of kassay, SHA-256 and size of every other file, what was left out
    <run id>/plan.json manifest.json protocol.json events.jsonl …
    <run id>/stages/<stage>/           request, outcome, receipt, records, and the artifacts that the outcome names
    <run id>/tree/<sha256>/<name>      files of the trees that a stage which judges has read

A result that was taken from another run lies in it as files, not as a link. Logs, reports and caches stay behind: an
audit reads none, and logs may hold what should not travel. Equal runs give equal bytes: members are sorted, without
times and owners, uncompressed. A file in which a secret is found stops the export (kassay.export.secrets).
"""

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import __version__, digest, paths
from kassay.audit import JUDGES
from kassay.audit.files import Run, load, of_tree
from kassay.errors import RunError
from kassay.export import secrets

SCHEMA = "kassay.export/1"
INDEX = "export.json"
TREE = "tree"
OF_RUN = (
    paths.PLAN, paths.MANIFEST, paths.PROTOCOL, paths.KEPT, paths.FROZEN, paths.EVENTS, "mirror.jsonl",
)  # fmt: skip
OF_STAGE = (paths.REQUEST, paths.OUTCOME, paths.RECEIPT, paths.RECORDS)
MODE = 0o644


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What goes into a tar."""

    files: dict[str, Path]  # name inside the run's folder -> file
    left_out: list[str]  # what an audit will lack, in words


def export(run_dir: Path, target: Path) -> Iterator[str]:
    """Write the tar of a run; gives what a user should know, in words.

    Raises RunError for a run that goes on, one that cannot be read, a target inside it, or a secret in a file.
    """
    from kassay.watch.view import View

    run = load(run_dir.resolve())
    view = View(run.directory)
    view.refresh()
    if view.live:
        raise RunError(f"run `{run.directory.name}` goes on", hint="make status; export it once it has ended")
    if target.resolve().is_relative_to(run.directory):
        raise RunError(f"{paths.shown(target)}: it lies in the run itself", hint=f"make export TO={target.name}")
    if target.suffix != ".tar":
        raise RunError(f"{paths.shown(target)}: the name of a tar ends in `.tar`")
    found = contents_of(run)
    secrets.require_none(found.files)
    write(run.directory.name, found, target)
    yield from found.left_out


def contents_of(run: Run) -> Contents:
    """The files of a run that an audit reads, and those of the trees that its judging stages read."""
    files = {name: run.directory / name for name in OF_RUN if (run.directory / name).is_file()}
    left_out: list[str] = []
    for stage in run.plan.stages:
        folder, inside = run.folder(stage.name), f"stages/{stage.name}"
        left = run.outcomes[stage.name]
        made = [] if left is None or stage.after_all else [artifact.file for artifact in left.artifacts.values()]
        for name in (*OF_STAGE, *made):
            if (folder / name).is_file():
                files[f"{inside}/{name}"] = folder / name
        if stage.program not in JUDGES:
            continue
        asked = run.request(stage.name).get("inputs", {})
        for name, reference in stage.inputs.items():
            if reference.startswith("tree:") and name in asked:
                files |= of_trees(reference, str(asked[name].get("sha256")), left_out)
    return Contents(files=dict(sorted(files.items())), left_out=left_out)


def of_trees(reference: str, sha256: str, left_out: list[str]) -> dict[str, Path]:
    """The file or folder of the trees that a stage has read, if it is that one still."""
    path = of_tree(reference)
    if path is None or digest.of_path(path) != sha256:
        left_out.append(f"left out: `{reference}` is not what the run has read any more")
        return {}
    inside = f"{TREE}/{sha256}/{path.name}"
    if path.is_file():
        return {inside: path}
    return {f"{inside}/{file.relative_to(path)}": file for file in digest.counted(path)}


def write(run: str, found: Contents, target: Path) -> None:
    """The tar, whole or not at all. Raises RunError for a file that changes while it is read."""
    index: dict[str, Any] = {"schema": SCHEMA, "run": run, "kassay": __version__, "left_out": found.left_out}
    index["files"] = {
        name: {"sha256": digest.of_file(path), "bytes": path.stat().st_size} for name, path in found.files.items()
    }
    text = (json.dumps(index, indent=1, sort_keys=True) + "\n").encode()
    fd, temporary = tempfile.mkstemp(dir=target.resolve().parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(fd, "wb") as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(member(f"{run}/{INDEX}", len(text)), io.BytesIO(text))
            for name, path in found.files.items():
                with path.open("rb") as source:
                    tar.addfile(member(f"{run}/{name}", index["files"][name]["bytes"]), source)
                if path.stat().st_size != index["files"][name]["bytes"]:
                    raise RunError(f"{paths.shown(path)}: it changed while it was exported")
        os.chmod(temporary, MODE)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def member(name: str, count: int) -> tarfile.TarInfo:
    """A regular file without times and owners."""
    made = tarfile.TarInfo(name)
    made.size, made.mode = count, MODE
    return made
