"""A run directory as one frozen view: what a report may say, and nothing that was not recorded.

Everything comes from plan.json, manifest.json, events.jsonl and each stage's request, records and outcome; no
result is computed here. A stage that did not end, crashed or was blocked stays visible with its reason. What
the records say is kassay.report.evidence. Stages that run after all others are the report itself: their
outcome is left out, so that rendering again from the same evidence gives the same bytes.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import outcome, paths
from kassay.entry import Stage
from kassay.errors import RunError
from kassay.events import Event
from kassay.protocol import noted
from kassay.rundir import kept_of
from kassay.study import arms_of, control_of
from kassay.tail import last_lines

NOT_RUN = "not run"
THIS_REPORT = "this report"
TAIL_LINES = 12  # of stderr.log, shown for a stage that did not pass
TAIL_BYTES = 16384


@dataclass(frozen=True, kw_only=True)
class StageFile:
    """A file that a reader may open."""

    file: str  # name inside the stage directory
    bytes: int


@dataclass(frozen=True, kw_only=True)
class StageView:
    """One planned stage and how it ended."""

    name: str
    program: str
    needs: tuple[str, ...]  # stages whose artifacts it reads; all others for a stage that runs after all
    params: dict[str, Any]
    word: str  # an outcome's word, `not run`, or `this report`
    reason: str  # empty for passed
    why: str  # why it was executed, as the orchestrator noted it; empty where it was reused
    run: str | None  # id of the run that executed it
    reused: bool  # executed by an earlier run
    stale: str  # kept on demand (KEEP=) though it does not answer what was asked: in what; empty if it answers
    attempt: int  # 1 unless earlier attempts crashed; 0 if it was not started
    started_at: str | None  # UTC, ISO 8601
    duration_s: float | None
    metrics: dict[str, Any]  # None where one was not finite
    nonfinite: tuple[str, ...]  # those metrics, each with what it was
    input_sha256: dict[str, str]  # input name -> digest
    gpus: tuple[str, ...]  # kinds of the GPUs that it measured on, by its receipt
    stderr_tail: tuple[str, ...]  # last lines of stderr.log, for a stage that did not pass
    files: tuple[StageFile, ...]

    @property
    def ended(self) -> bool:
        """Whether it has a result: passed or rejected."""
        return self.word in ("passed", "rejected")

    @property
    def origin(self) -> str:
        """Which run executed it, or why this one did; and what a reader must know of that."""
        said = f"reused from {self.run}" if self.reused else self.why
        said += f" (attempt {self.attempt})" if self.reused and self.attempt > 1 else ""
        return f"kept on demand, stale: {self.stale}; {said}" if self.stale else said

    def file(self, name: str) -> str:
        """Path of one of its files relative to the run directory."""
        return f"stages/{self.name}/{name}"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """What was planned, where it ran, and how each stage ended."""

    run: str
    profile: str
    workflow: str
    plan_hash: str
    created_at: str
    host: dict[str, Any]
    study: dict[str, Any]  # the composed study, empty for a workflow without one
    models: tuple[str, ...]
    settings: dict[str, dict[str, Any]]  # Kconfig symbol -> value, origin, where
    overrides: tuple[str, ...]
    interruptions: int
    protocol: dict[str, Any]  # hash of the study, and what was frozen whenever a driver began; empty without a study
    stages: tuple[StageView, ...]

    @property
    def arms(self) -> list[str]:
        """The arms of the study, in its order."""
        return arms_of(self.study)

    @property
    def control(self) -> str:
        """The arm that all certified ones are compared with; empty if there is no one such arm."""
        return control_of(self.study)

    def program(self, name: str) -> tuple[StageView, ...]:
        """The stages that run this program, in plan order."""
        return tuple(stage for stage in self.stages if stage.program == name)

    @property
    def gpus(self) -> list[str]:
        """Kinds of all GPUs that its stages measured on."""
        return sorted({kind for stage in self.stages for kind in stage.gpus})

    @property
    def judged(self) -> tuple[StageView, ...]:
        """All stages but the report itself."""
        return tuple(stage for stage in self.stages if stage.word != THIS_REPORT)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the run by its outcomes, None while a stage has not ended."""
        words = [stage.word for stage in self.judged]
        if NOT_RUN in words:
            return None
        return outcome.exit_code([word for word in outcome.WORDS if word in words])

    def why_absent(self, program: str) -> str:
        """Why a program's results are not there, in words."""
        stages = self.program(program)
        if not stages:
            return f"no stage of this workflow runs `{program}`"
        bad = [f"{s.name}: {s.word}{f' ({s.reason})' if s.reason else ''}" for s in stages if s.word != "passed"]
        return "; ".join(bad) or "the stage left no record of it"


def load_run(run_dir: Path) -> RunView:
    """The view of a run directory without its records. Raises RunError if it is no run directory."""
    plan, manifest = read_object(run_dir / paths.PLAN), read_object(run_dir / paths.MANIFEST)
    try:
        stages = [Stage(**body) for body in plan["stages"]]
        whys, interruptions = read_events(run_dir / paths.EVENTS)
        stale = kept_of(run_dir)
        config = plan["config"]
        run = str(manifest["run"])  # not the folder's name: a run is read wherever it was copied to
        return RunView(
            run=run,
            profile=str(plan["profile"]),
            workflow=str(plan["workflow"]),
            plan_hash=str(plan["hash"]),
            created_at=str(manifest["created_at"]),
            host=dict(manifest["host"]),
            study=dict(config.get("study", {})),
            models=tuple(config.get("models", {}).get("names", ())),
            settings=dict(manifest["settings"]),
            overrides=tuple(manifest["overrides"]),
            interruptions=interruptions,
            protocol=noted(run_dir),
            stages=tuple(load_stage(run_dir, run, stage, stages, whys, stale) for stage in stages),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{run_dir}: plan.json or manifest.json lacks or does not know {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises RunError if there is none."""
    try:
        body = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RunError(f"{path}: no such file: not a run directory", hint="make report RUN=<run id>") from None
    except ValueError as error:
        raise RunError(f"{path}: not a JSON object: {error}") from error
    if not isinstance(body, dict):
        raise RunError(f"{path}: not a JSON object")
    return body


def read_events(path: Path) -> tuple[dict[str, str], int]:
    """Why each stage was last started, and how often the run was interrupted."""
    whys: dict[str, str] = {}
    interruptions = 0
    for event in all_events(path):
        if event.event == "stage_started" and event.stage is not None:
            whys[event.stage] = event.why
        interruptions += event.event == "run_interrupted"
    return whys, interruptions


def all_events(path: Path) -> list[Event]:
    """The events of a run; a torn last line, which a driver that died leaves, is passed over."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [Event.from_json(json.loads(line)) for line in whole.split(b"\n") if line]


def load_stage(
    run_dir: Path, run: str, stage: Stage, planned: list[Stage], whys: dict[str, str], stale: dict[str, str]
) -> StageView:
    """One stage of the plan as it lies in the run directory."""
    directory = paths.stage_dir(run_dir, stage.name)
    ended = None if stage.after_all else outcome.load(directory)
    word = ended.word if ended else THIS_REPORT if stage.after_all else NOT_RUN
    here = ended is not None and ended.run == run
    return StageView(
        name=stage.name,
        program=stage.program or stage.argv[0],
        needs=tuple(s.name for s in planned if not s.after_all) if stage.after_all else tuple(stage.needs()),
        params=stage.params,
        word=word,
        reason=ended.reason if ended else "" if stage.after_all else unfinished(directory),
        why=whys.get(stage.name, "") if here else "",
        run=ended.run if ended else None,
        reused=ended is not None and not here,
        stale=stale.get(stage.name, "") if ended else "",
        attempt=ended.attempt if ended else 0,
        started_at=ended.started_at if ended else None,
        duration_s=ended.duration_s if ended else None,
        metrics=ended.metrics if ended else {},
        nonfinite=nonfinite_metrics(directory) if ended else (),
        input_sha256=input_digests(directory / paths.REQUEST) if ended else {},
        gpus=gpus_of(directory / paths.RECEIPT),
        stderr_tail=()
        if word in ("passed", THIS_REPORT)
        else tuple(last_lines(directory / paths.STDERR, TAIL_BYTES)[-TAIL_LINES:]),
        files=() if stage.after_all else stage_files(directory, ended),
    )


def unfinished(directory: Path) -> str:
    """Why a stage has no outcome; a reused one is a link into the run that executed it, which may be gone."""
    if directory.is_symlink() and not directory.exists():
        return f"it was reused from `{directory.readlink()}`, which is not here"
    return "it was started and did not finish" if directory.exists() else "it was never started"


def nonfinite_metrics(directory: Path) -> tuple[str, ...]:
    """Which metrics of an ended stage were not finite: `ratio: nan`."""
    told = read_object(directory / paths.OUTCOME).get("nonfinite", [])
    return tuple(str(text).removeprefix("metrics.") for text in told)


def input_digests(path: Path) -> dict[str, str]:
    """Digest of every input that a stage was given; a blocked stage has no request."""
    if not path.exists():
        return {}
    return {name: str(given["sha256"]) for name, given in read_object(path)["inputs"].items()}


def gpus_of(path: Path) -> tuple[str, ...]:
    """What a receipt says of the GPUs; a stage that did not end, or measured none, says nothing."""
    host = read_object(path).get("host") if path.exists() else None
    return tuple(str(kind) for kind in host.get("gpus", [])) if isinstance(host, dict) else ()


def stage_files(directory: Path, ended: outcome.Outcome | None) -> tuple[StageFile, ...]:
    """The artifacts and the orchestrator's own files of a stage, those that exist."""
    names = [artifact.file for artifact in ended.artifacts.values()] if ended else []
    own = [paths.OUTCOME, paths.REQUEST, paths.RECEIPT, paths.STDERR, paths.STDOUT]
    found = dict.fromkeys(name for name in [*names, *own] if (directory / name).is_file())
    return tuple(StageFile(file=name, bytes=(directory / name).stat().st_size) for name in found)
