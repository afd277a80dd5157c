"""A plan: every stage fully evaluated before anything starts, and the hash of it all.

Edges come from the references in `inputs`, so none can be forgotten: `stage.artifact` names what another stage leaves,
`stage.*.artifact` the same of every member of an `each`, `tree:path` a file or folder of the project. `after: all` runs
a stage when all others have ended, whatever their outcome. All errors of a workflow are reported together.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.errors import PlanError

SCHEMA = "kassay.plan/1"
STAGE_KEYS = {"program", "inputs", "params", "resources", "each", "after", "measures"}
RESOURCES = {"cpus", "memory_gib", "exclusive"}
NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One node of the DAG."""

    name: str
    program: str  # file stages/<program>.py
    params: dict[str, Any]
    inputs: dict[str, str]  # input name -> `stage.artifact` or `tree:path`
    cpus: int
    memory_gib: float
    exclusive: bool  # nothing else of this run beside it
    after_all: bool
    measures_host: bool  # its result holds for this host only

    def needs(self) -> list[str]:
        """Names of the stages whose artifacts this one reads."""
        given = (reference for reference in self.inputs.values() if not reference.startswith("tree:"))
        return sorted({reference.rpartition(".")[0] for reference in given})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will run, in an order in which every stage comes after those that it needs."""

    profile: str
    workflow: str
    stages: tuple[Stage, ...]
    config: dict[str, Any]  # the composed workflow without its stages: studies, models, stack

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json."""
        body = {"schema": SCHEMA, **asdict(self), "hash": self.hash()}
        body["stages"] = [asdict(stage) for stage in self.stages]
        return body

    def hash(self) -> str:
        """Hex SHA-256 over everything that decides results: stages, parameters, studies. No path of this machine."""
        return digest.of_value([self.workflow, [asdict(stage) for stage in self.stages], self.config])

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return next(stage for stage in self.stages if stage.name == name)


def build(profile: str, workflow: str, composed: dict[str, Any], root: Path) -> Plan:
    """The plan of a composed workflow. Raises PlanError with all faults at once."""
    config = {key: value for key, value in composed.items() if key != "stages"}
    errors: list[str] = []
    stages = [stage for name, body in composed.get("stages", {}).items() for stage in expand(name, body, errors)]
    names = [stage.name for stage in stages]
    stages = [expand_globs(stage, names, errors) for stage in stages]
    for stage in stages:
        errors += faults(stage, names, root)
    ordered = in_order(stages, errors)
    if errors:
        raise PlanError(*(f"workflow `{workflow}`: {error}" for error in errors))
    return Plan(profile=profile, workflow=workflow, stages=tuple(ordered), config=config)


def expand(name: str, body: dict[str, Any], errors: list[str]) -> list[Stage]:
    """The stages of one entry: one, or one per member of its `each`."""
    if unknown := sorted(set(body) - STAGE_KEYS):
        errors.append(f"stage `{name}`: unknown key `{unknown[0]}`, allowed are {', '.join(sorted(STAGE_KEYS))}")
        return []
    if not NAME.fullmatch(name):
        errors.append(f"stage `{name}`: a name is lower-case letters, digits and `-`")
        return []
    each = body.get("each")
    if each is None:
        return [make(name, body, errors)]
    if not isinstance(each, dict) or len(each) != 1:
        errors.append(f"stage `{name}`: `each` names one variable and its list")
        return []
    (variable, members), rest = next(iter(each.items())), {key: body[key] for key in body if key != "each"}
    return [make(f"{name}.{member}", substitute(rest, variable, member), errors) for member in members]


def substitute(value: Any, variable: str, member: str) -> Any:
    """`value` with `{variable}` replaced by `member` in every string."""
    if isinstance(value, str):
        return value.replace("{" + variable + "}", member)
    if isinstance(value, list):
        return [substitute(item, variable, member) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variable, member) for key, item in value.items()}
    return value


def make(name: str, body: dict[str, Any], errors: list[str]) -> Stage:
    """The stage of a checked entry."""
    resources = body.get("resources") or {}
    if unknown := sorted(set(resources) - RESOURCES):
        errors.append(f"stage `{name}`: unknown resource `{unknown[0]}`, allowed are {', '.join(sorted(RESOURCES))}")
    errors.extend(
        f"stage `{name}`: resources lack `{word}`" for word in ("cpus", "memory_gib") if word not in resources
    )
    if body.get("after") not in (None, "all"):
        errors.append(f"stage `{name}`: `after` is `{body['after']}`, allowed is `all`")
    if body.get("measures") not in (None, "host"):
        errors.append(f"stage `{name}`: `measures` is `{body['measures']}`, allowed is `host`")
    return Stage(
        name=name,
        program=str(body.get("program", "")),
        params=body.get("params") or {},
        inputs=body.get("inputs") or {},
        cpus=int(resources.get("cpus", 0)),
        memory_gib=float(resources.get("memory_gib", 0)),
        exclusive=bool(resources.get("exclusive", False)),
        after_all=body.get("after") == "all",
        measures_host=body.get("measures") == "host",
    )


def expand_globs(stage: Stage, names: list[str], errors: list[str]) -> Stage:
    """`group: stage.*.artifact` becomes `group.member: stage.member.artifact` for every member."""
    inputs: dict[str, str] = {}
    for key, reference in stage.inputs.items():
        head, star, tail = reference.partition(".*.")
        if not star or reference.startswith("tree:"):
            inputs[key] = reference
            continue
        members = [name.removeprefix(head + ".") for name in names if name.startswith(head + ".")]
        if not members:
            errors.append(f"stage `{stage.name}`: input `{key}` names `{reference}`, but no stage `{head}.…` exists")
        inputs |= {f"{key}.{member}": f"{head}.{member}.{tail}" for member in members}
    return Stage(**{**{field: getattr(stage, field) for field in Stage.__dataclass_fields__}, "inputs": inputs})


def faults(stage: Stage, names: list[str], root: Path) -> list[str]:
    """What is wrong with one stage: its program, its inputs."""
    found = []
    if not (root / "stages" / f"{stage.program}.py").is_file():
        known = ", ".join(sorted(path.stem for path in (root / "stages").glob("*.py")))
        found.append(f"stage `{stage.name}`: unknown program `{stage.program}`, allowed are {known}")
    for key, reference in stage.inputs.items():
        if reference.startswith("tree:"):
            if not (root / reference.removeprefix("tree:")).exists():
                found.append(f"stage `{stage.name}`: input `{key}`: `{reference}` does not exist in the project")
        elif reference.rpartition(".")[0] not in names:
            found.append(f"stage `{stage.name}`: input `{key}` names `{reference}`, but no such stage exists")
    return found


def in_order(stages: list[Stage], errors: list[str]) -> list[Stage]:
    """Topological order that keeps the file's order where it can; a cycle is an error that names its stages."""
    names = {stage.name for stage in stages}
    done: list[Stage] = []
    waiting = list(stages)
    while waiting:
        finished = {stage.name for stage in done}
        ready = next(
            (stage for stage in waiting if not stage.after_all and set(stage.needs()) & names <= finished), None
        )
        if ready is None and all(stage.after_all for stage in waiting):
            ready = waiting[0]
        if ready is None:
            errors.append("a cycle: " + ", ".join(f"`{stage.name}` needs {stage.needs()}" for stage in waiting))
            return done
        waiting.remove(ready)
        done.append(ready)
    return done
