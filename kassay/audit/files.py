"""Are the files of a run those that it states, and did each stage get what the plan says?

Digests are taken anew. A run that reused results of another holds links to them; what is behind a link is read as if it
lay here.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kassay import digest, outcome, paths, schemas
from kassay.audit import Difference
from kassay.entry import Stage
from kassay.errors import ConfigError, RecordError, RunError
from kassay.outcome import Outcome
from kassay.plan import Plan
from kassay.record import Record, read_lines

WHOLE = "run"
GOOD_LINE = "a whole record whose values go together"
ENDED = ("passed", "rejected")  # outcomes with a result
EXPORTED = "tree"  # in an exported run: what its stages read of the trees, by digest
HEX = re.compile(r"[0-9a-f]{64}")
STAGE = re.compile(r"[a-z][a-z0-9-]*(?:\.[^/\\\x00-\x1f]+)?")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory, read."""

    directory: Path
    stated: dict[str, Any]  # plan.json
    plan: Plan
    outcomes: dict[str, Outcome | None]  # stage -> how it ended; None: not, or its outcome cannot be read
    unreadable: dict[str, str]  # stage -> why its outcome cannot be read

    def folder(self, stage: str) -> Path:
        """The directory of a stage."""
        return paths.stage_dir(self.directory, stage)

    def request(self, stage: str) -> dict[str, Any]:
        """What a stage was asked; empty where that cannot be read."""
        try:
            body = json.loads((self.folder(stage) / paths.REQUEST).read_bytes())
            return body if isinstance(body, dict) else {}
        except (OSError, ValueError):
            return {}

    def open(self, stage: Stage) -> str:
        """Why a stage left nothing that could be derived again; empty if it did."""
        ended = self.outcomes[stage.name]
        if ended is None:
            return "its outcome cannot be read" if stage.name in self.unreadable else "it has not ended"
        return "" if ended.word in ENDED else f"it was {ended.word} ({ended.reason})"

    def artifact(self, reference: str) -> Path | None:
        """The file of `stage.artifact` in this run; None where its stage did not leave it."""
        owner, _, name = reference.rpartition(".")
        ended = self.outcomes.get(owner)
        if ended is None or name not in ended.artifacts:
            return None
        return self.folder(owner) / ended.artifacts[name].file

    def of_tree(self, reference: str, sha256: object) -> Path | None:
        """The file or folder of a `tree:` input: the one that an export brought along, else the one of our trees."""
        if isinstance(sha256, str) and HEX.fullmatch(sha256):
            brought = self.directory / EXPORTED / sha256 / Path(reference).name
            if brought.exists():
                return brought
        return of_tree(reference)


def load(run_dir: Path) -> Run:
    """A run directory with its plan and outcomes. Raises RunError if its plan cannot be read."""
    try:
        stated = json.loads((run_dir / paths.PLAN).read_bytes())
        plan = Plan.from_json(stated)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{run_dir / paths.PLAN}: not a plan that can be read: {error}") from error
    if strange := [stage.name for stage in plan.stages if not planned_plainly(stage)]:
        raise RunError(f"{run_dir / paths.PLAN}: stage {strange[0]!r} is none that a plan could have")
    outcomes: dict[str, Outcome | None] = {}
    unreadable: dict[str, str] = {}
    for stage in plan.stages:
        try:
            outcomes[stage.name] = found = outcome.load(paths.stage_dir(run_dir, stage.name))
            if found is not None and (file := leaving(run_dir, stage.name, found)):
                raise RunError(f"artifact {file!r} is no file of its stage")
        except RunError as error:
            outcomes[stage.name] = None
            unreadable[stage.name] = error.messages[0].replace(f"{run_dir}/", "")
    return Run(directory=run_dir, stated=stated, plan=plan, outcomes=outcomes, unreadable=unreadable)


def planned_plainly(stage: Stage) -> bool:
    """Whether a stage has the form of one: a run may come from anybody, and its names become paths."""
    texts = (
        [stage.name, stage.program, *stage.inputs, *stage.inputs.values()] if isinstance(stage.inputs, dict) else [None]
    )
    shaped = isinstance(stage.params, dict) and isinstance(stage.argv, list) and all(isinstance(t, str) for t in texts)
    return shaped and STAGE.fullmatch(stage.name) is not None


def leaving(run_dir: Path, stage: str, found: Outcome) -> str:
    """An artifact whose file does not lie in its stage's directory, whatever it is called; empty if all do."""
    home = paths.stage_dir(run_dir, stage).resolve()
    for artifact in found.artifacts.values():
        if not isinstance(artifact.file, str) or not (home / artifact.file).resolve().is_relative_to(home):
            return str(artifact.file)
    return ""


def differences(run: Run) -> list[Difference]:
    """Everything that is not as the run states."""
    found = of_plan(run)
    planned = {stage.name for stage in run.plan.stages}
    stages = run.directory / "stages"
    for folder in sorted(stages.iterdir()) if stages.is_dir() else ():
        if not folder.name.startswith(".") and folder.name not in planned:
            found.append(different(folder.name, "directory", "presence", "there", "not planned"))
    for stage in run.plan.stages:
        if stage.after_all:
            continue  # the report is rendered from the rest, again and again
        if stage.name in run.unreadable:
            found.append(different(stage.name, paths.OUTCOME, "content", run.unreadable[stage.name], "an outcome"))
        elif (ended := run.outcomes[stage.name]) is not None:
            found += of_artifacts(run, stage, ended) + of_request(run, stage, ended)
    return found


def different(stage: str, record: str, field: str, recorded: object, derived: object) -> Difference:
    """A difference of two values as JSON has them."""
    return Difference(stage=stage, record=record, field=field, recorded=shown(recorded), derived=shown(derived))


def shown(value: object) -> str:
    """A value on one line, short."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else f"{text[:197]}..."


def of_plan(run: Run) -> list[Difference]:
    """Hashes of the plan and of its study, where the run states them."""
    stated, plan = run.stated, run.plan
    pairs = [
        (paths.PLAN, "hash", stated.get("hash"), plan.hash()),
        (paths.PLAN, "protocol", stated.get("protocol"), plan.protocol()),
        (paths.MANIFEST, "plan_hash", read(run.directory / paths.MANIFEST).get("plan_hash"), plan.hash()),
    ]
    if (run.directory / paths.PROTOCOL).exists():
        noted = read(run.directory / paths.PROTOCOL).get("sha256")
        pairs.append((paths.PROTOCOL, "sha256", noted, plan.protocol()))
    return [different(WHOLE, file, field, was, now) for file, field, was, now in pairs if was != now]


def read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        body = json.loads(path.read_bytes())
        return body if isinstance(body, dict) else {}
    except (OSError, ValueError):
        return {}


def of_artifacts(run: Run, stage: Stage, ended: Outcome) -> list[Difference]:
    """Files that are not the stated ones, records that cannot be read, and records that nobody states."""
    folder = run.folder(stage.name)
    found = []
    if ended.stage != stage.name:
        found.append(different(stage.name, paths.OUTCOME, "stage", ended.stage, stage.name))
    for artifact in ended.artifacts.values():
        path = folder / artifact.file
        if not path.is_file():
            found.append(different(stage.name, artifact.file, "presence", "stated", "no such file"))
            continue
        now = (path.stat().st_size, digest.of_file(path))
        if now != (artifact.bytes, artifact.sha256):
            found.append(different(stage.name, artifact.file, "sha256", artifact.sha256, now[1]))
    records = folder / paths.RECORDS
    if records.exists():
        if paths.RECORDS not in {artifact.file for artifact in ended.artifacts.values()}:
            found.append(different(stage.name, paths.RECORDS, "presence", "there", "not stated in the outcome"))
        found += [different(stage.name, paths.RECORDS, "line", said, GOOD_LINE) for said in bad_lines(records)]
    return found


def bad_lines(records: Path) -> list[str]:
    """Lines that are no whole JSON object, and those of our kinds whose values contradict each other, in words."""
    kinds = {kind.schema: kind for kind in schemas.kinds()}
    found: list[str] = []
    try:
        for number, body in enumerate(read_lines(records), start=1):
            if (kind := kinds.get(str(body["schema"]))) is not None:
                found += contradictions(kind, body, f"{records}:{number}")
    except RecordError as error:
        found += error.messages
    return [said.removeprefix(f"{records.parent}/") for said in found]


def contradictions(kind: type[Record], body: dict[str, Any], where: str) -> tuple[str, ...]:
    """What keeps a line from being a record of its kind, in words."""
    try:
        kind.from_json(body, where)
    except RecordError as error:
        return error.messages
    return ()


def of_request(run: Run, stage: Stage, ended: Outcome) -> list[Difference]:
    """What a stage was asked, against the plan and against what its inputs left."""
    if ended.word not in ENDED or stage.argv:
        return []
    request = run.request(stage.name)
    found = []
    asked = {key: request.get(key) for key in ("stage", "params")} | {"inputs": sorted(request.get("inputs", {}))}
    planned = {"stage": stage.name, "params": stage.params, "inputs": sorted(stage.inputs)}
    for key, was in asked.items():
        found += [different(stage.name, paths.REQUEST, *one) for one in changes(key, was, planned[key])]
    for name, reference in stage.inputs.items():
        given = request.get("inputs", {}).get(name, {}).get("sha256")
        if (left := sha256_of(run, reference)) is not None and given != left:
            found.append(different(stage.name, paths.REQUEST, f"inputs.{name}.sha256", given, left))
    return found


def changes(field: str, was: Any, now: Any) -> list[tuple[str, Any, Any]]:
    """Where two values differ, down to the keys."""
    if not isinstance(was, dict) or not isinstance(now, dict):
        return [] if digest.of_value(was) == digest.of_value(now) else [(field, was, now)]
    keys = sorted({*was, *now})
    return [one for key in keys for one in changes(f"{field}.{key}", was.get(key, "absent"), now.get(key, "absent"))]


def sha256_of(run: Run, reference: str) -> str | None:
    """The digest of an input as it lies in the run now; None for what is of a tree, of which a run holds no copy."""
    if reference.startswith("tree:"):
        return None
    path = run.artifact(reference)
    return digest.of_file(path) if path is not None and path.is_file() else "no such file"


def of_tree(reference: str) -> Path | None:
    """The file of a `tree:` input; None where it is not there."""
    try:
        return paths.place(reference.removeprefix("tree:"))
    except ConfigError:
        return None
