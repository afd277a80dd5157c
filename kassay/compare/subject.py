"""What of a run decides whether another may be compared with it, as plain JSON types: read once, kept in a baseline.

Everything is read from the run directory: plan, manifest, requests, and the records of what was frozen and built. Keys
name no place of a machine, so subjects of two machines, or of a folder that was moved, are the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import outcome, paths
from kassay.audit.files import Run, load
from kassay.entry import Stage
from kassay.errors import RecordError, RunError
from kassay.protocol import name_of, noted
from kassay.record import read_lines

# Symbols that say where and how a run is carried out, never what comes of it.
OF_THE_PLACE = (
    "RESULTS",
    "PROFILE",
    "FRAGMENTS",
    "COMMAND_LINE",
    "MAX_CPUS",
    "STAGE_TIMEOUT_S",
    "OFFLINE",
    "STACK_PYTHON",
)
PREFIXES = ("ENGINE", "SLURM_", "WANDB", "TRACKIO", "SOURCE_MIRROR", "NIGHTLY_")
OWN_TREE = "tree:."
JUDGED = ("kassay.gate", "kassay.direct")  # records that name the items which they were computed from
FOUNDATIONS = ("freeze", "build", "device")  # programs whose records say what was frozen, built and seen


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A run as far as comparisons ask for it."""

    run: str  # run id
    profile: str
    workflow: str
    study: str | None  # `<workflow>/<study>`; None: the workflow has none
    protocol: str | None  # hash of the study; None: there is no study
    frozen: bool  # whether that protocol was frozen as the run began
    plan_hash: str  # of everything that decides results
    split: str | None  # of generated data, `development` or `confirmation`; None: the study names none
    settings: dict[str, Any]  # symbol -> value, of those that decide results; one that is empty or off is left out
    overrides: list[str]  # values of the workflow that the command line changed
    items: dict[str, str]  # `<model> <endpoint>` -> digest of the items that were judged
    data: dict[str, str]  # `<stage>.<input>` -> digest of a file or folder of a tree, weights among them
    python: str | None  # of the stack; None: none was built
    sources: dict[str, str]  # source -> commit, or digest of a release; our own tree is none of them
    packages: dict[str, str]  # package of the stack -> version, and the digest of what is installed
    own_commit: str | None  # of kassay itself, which a comparison shows and never refuses
    host: dict[str, Any] | None  # fingerprint where a stage measures it; None: nothing of this run is bound to a host
    host_stages: list[str]  # those stages, with whatever is judged of them
    devices: list[str]  # names of the GPUs that stages found
    words: dict[str, str | None]  # stage -> outcome's word; None: it has not ended
    exit_code: int | None  # None: the run has not ended, or was interrupted, or its driver died


def subject_of(run_dir: Path) -> Subject:
    """The subject of a run directory. Raises RunError where there is no readable plan or manifest."""
    run = load(run_dir.resolve())
    told = manifest(run.directory)
    config = run.plan.config
    study = config.get("study")
    found = foundations(run)
    return Subject(
        run=str(told.get("run") or run.directory.name),  # a folder that was copied or renamed is the same run
        profile=run.plan.profile,
        workflow=run.plan.workflow,
        study=None if study is None else name_of(run.plan.workflow, study),
        protocol=run.plan.protocol(),
        frozen=frozen(run),
        plan_hash=run.plan.hash(),
        split=study.get("split") if isinstance(study, dict) else None,
        settings=deciding(told.get("settings", {})),
        overrides=list(told.get("overrides", [])),
        items=items(run),
        data=data(run),
        python=built_python(run),
        sources={
            body["name"]: body["commit"] or body["sha256"] for body in found["kassay.source"] if body["kind"] != "tree"
        },
        packages={body["name"]: packaged(body) for body in found["kassay.package"]},
        own_commit=next((body["commit"] for body in found["kassay.source"] if body["kind"] == "tree"), None),
        host=measured_host(run),
        host_stages=bound_to_host(run),
        devices=sorted({body["name"] for body in found["kassay.device"]}),
        words={name: None if ended is None else ended.word for name, ended in run.outcomes.items()},
        exit_code=exit_code(run),
    )


def manifest(run_dir: Path) -> dict[str, Any]:
    """What manifest.json says. Raises RunError where it cannot be read."""
    try:
        body = json.loads((run_dir / paths.MANIFEST).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{paths.shown(run_dir / paths.MANIFEST)}: it cannot be read: {error}") from None
    if not isinstance(body, dict):
        raise RunError(f"{paths.shown(run_dir / paths.MANIFEST)}: it is no manifest")
    return body


def deciding(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that are on or say something, but for those of the place."""
    return {
        name: setting["value"]
        for name, setting in settings.items()
        if setting["value"] not in ("", False) and name not in OF_THE_PLACE and not name.startswith(PREFIXES)
    }


def frozen(run: Run) -> bool:
    """Whether the run's own protocol was frozen when it began."""
    notes = noted(run.directory).get("notes", [])
    return bool(notes) and notes[0].get("frozen") == run.plan.protocol() is not None


def ended(run: Run, stage: Stage) -> bool:
    """Whether a stage left a result."""
    return not run.open(stage)


def bodies(run: Run, stage: Stage) -> Iterator[dict[str, Any]]:
    """The records of a stage. Raises RecordError for a bad line, naming it."""
    path = run.folder(stage.name) / paths.RECORDS
    return read_lines(path) if path.exists() else iter(())


def foundations(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Kind -> records of what was frozen, built and seen."""
    found: dict[str, list[dict[str, Any]]] = {"kassay.source": [], "kassay.package": [], "kassay.device": []}
    for stage in run.plan.stages:
        if stage.program in FOUNDATIONS and ended(run, stage):
            for body in bodies(run, stage):
                kind = str(body["schema"]).rpartition("/")[0]
                if kind in found:
                    found[kind].append(body)
    return found


def packaged(body: dict[str, Any]) -> str:
    """A package as one text: its version, and the digest of what is installed where there is one."""
    return f"{body['version']} {body['sha256'][:12]}" if body.get("sha256") else str(body["version"])


def items(run: Run) -> dict[str, str]:
    """`<model> <endpoint>` -> digest of the items. Raises RecordError if two judgements name different ones."""
    found: dict[str, str] = {}
    for stage in run.plan.stages:
        if stage.program not in ("certify", "direct") or not ended(run, stage):
            continue
        for body in bodies(run, stage):
            if str(body["schema"]).rpartition("/")[0] in JUDGED:
                key = f"{body['model']} {body['endpoint']}"
                if found.setdefault(key, body["items_sha256"]) != body["items_sha256"]:
                    raise RecordError(f"{run.directory.name}: {key} was judged on two sets of items")
    return found


def data(run: Run) -> dict[str, str]:
    """`<stage>.<input>` -> digest of what a stage read of a tree; our own tree, which is code, is none of it."""
    found = {}
    for stage in run.plan.stages:
        asked = run.request(stage.name).get("inputs", {})
        for name, reference in stage.inputs.items():
            if reference.startswith("tree:") and reference != OWN_TREE and name in asked:
                found[f"{stage.name}.{name}"] = str(asked[name].get("sha256"))
    return found


def built_python(run: Run) -> str | None:
    """The Python version of the stack, by what the build says."""
    for stage in run.plan.stages:
        left = run.outcomes[stage.name]
        if stage.program == "build" and left is not None and left.usable:
            return str(left.metrics["python"]) if "python" in left.metrics else None
    return None


def bound_to_host(run: Run) -> list[str]:
    """Stages that measure their host, and those that read what such a stage left, however far below."""
    bound: list[str] = []
    for stage in run.plan.stages:
        if not stage.after_all and (stage.measures_host or set(stage.needs()) & set(bound)):
            bound.append(stage.name)
    return bound


def measured_host(run: Run) -> dict[str, Any] | None:
    """The fingerprint that the receipts of measuring stages name. Raises RunError if they name different ones."""
    found: dict[str, Any] = {}
    for stage in run.plan.stages:
        if not stage.measures_host or not ended(run, stage):
            continue
        there: dict[str, Any] = receipt(run, stage.name).get("host") or {}
        if any(there[name] != found[name] for name in set(found) & set(there)):
            raise RunError(f"{run.directory.name}: its stages were measured on two hosts: {found}, {there}")
        found |= there  # GPUs are told where a stage had some
    return found or None


def receipt(run: Run, stage: str) -> dict[str, Any]:
    """What really ran; empty where that cannot be read."""
    try:
        body = json.loads((run.folder(stage) / paths.RECEIPT).read_bytes())
        return body if isinstance(body, dict) else {}
    except (OSError, ValueError):
        return {}


def exit_code(run: Run) -> int | None:
    """The exit code of a run that has ended; None of every other."""
    from kassay.watch.view import View

    view = View(run.directory)
    view.refresh()
    if view.state != "ended":
        return None
    words = [found.word for found in run.outcomes.values() if found is not None]
    return outcome.exit_code(words) if len(words) == len(run.outcomes) else None
