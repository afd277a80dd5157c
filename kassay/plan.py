"""A plan: every stage fully evaluated before anything starts, and the hash of it all.

Edges come from the references in `inputs`, so none can be forgotten: `stage.artifact` names what another stage leaves,
`stage.*.artifact` the same of every member of an `each`, `tree:path` a file or folder of the project or of KASSAY_PATH.
`after: all` runs a stage when all others have ended, whatever their outcome. All errors of a workflow are reported
together.
"""

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from kassay import digest, needs, paths
from kassay.config.compose import compose, flat
from kassay.config.kconfig import Setting
from kassay.config.profiles import full_name
from kassay.errors import ConfigError, PlanError

SCHEMA = "kassay.plan/1"
STAGE_KEYS = {"program", "inputs", "params", "resources", "host", "stop", "each", "after", "measures"}
MAPPINGS = ("inputs", "params", "resources", "host", "each")
ONLY = {"after": "all", "measures": "host"}
RESOURCES: dict[str, tuple[tuple[type, ...], str]] = {
    "cpus": ((int,), "a whole number from 1 on"),
    "memory_gib": ((int, float), "a number above 0"),
    "exclusive": ((bool,), "true or false"),
}
NAME = re.compile(r"[a-z][a-z0-9-]*")
PROFILE = re.compile(r"[A-Za-z0-9][\w.+-]*")


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
    host: dict[str, Any]  # what it needs of the host (kassay.needs)
    stop: str  # the predeclared rule by which this plan does not run it, in words; empty if it runs

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


def of_settings(settings: dict[str, Setting], overrides: list[str]) -> Plan:
    """The plan of a configuration. Raises ConfigError, or PlanError with all faults at once."""
    workflow = str(settings["WORKFLOW"].value)
    composed = compose(paths.place(f"{paths.WORKFLOWS}/{workflow}"), settings, overrides)
    profile = full_name(str(settings["PROFILE"].value), str(settings["FRAGMENTS"].value)) or "custom"
    return build(profile, workflow, composed)


def build(profile: str, workflow: str, composed: dict[str, Any]) -> Plan:
    """The plan of a composed workflow. Raises PlanError with all faults at once."""
    config = {key: value for key, value in composed.items() if key != "stages"}
    entries = composed.get("stages")
    errors = [f"`{key}` holds a number that is not finite" for key, item in flat(composed).items() if not finite(item)]
    if not PROFILE.fullmatch(profile):
        errors.append(f"profile `{profile}`: allowed are letters, digits, `.`, `_`, `-` and `+`")
    if not isinstance(entries, dict) or not entries:
        raise PlanError(f"workflow `{workflow}`: it has no `stages`")
    stages = [stage for name, body in entries.items() for stage in expand(str(name), body, errors)]
    names = [stage.name for stage in stages]
    broken = set(map(str, entries)) - {name.partition(".")[0] for name in names}  # reported once, not by every reader
    stages = [expand_globs(stage, names, broken, errors) for stage in stages]
    for stage in stages:
        errors += faults(stage, names, broken)
    ordered = in_order(stages, errors)
    if errors:
        raise PlanError(*(f"workflow `{workflow}`: {error}" for error in errors))
    return Plan(profile=profile, workflow=workflow, stages=tuple(ordered), config=config)


def finite(value: Any) -> bool:
    """Whether JSON can hold every number of a value."""
    if isinstance(value, list | dict):
        return all(finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def expand(name: str, body: Any, errors: list[str]) -> list[Stage]:
    """The stages of one entry: one, or one per member of its `each`; none of an entry that is malformed."""
    if not NAME.fullmatch(name):
        errors.append(f"stage `{name}`: a name is lower-case letters, digits and `-`")
        return []
    if not isinstance(body, dict):
        errors.append(f"stage `{name}`: it has no content")
        return []
    if found := malformed(body):
        errors.extend(f"stage `{name}`: {message}" for message in found)
        return []
    if "each" not in body:
        return [make(name, body)]
    (variable, members), rest = next(iter(body["each"].items())), {k: v for k, v in body.items() if k != "each"}
    return [make(f"{name}.{member}", substitute(rest, variable, member)) for member in members]


def malformed(body: dict[str, Any]) -> list[str]:
    """What is wrong with the form of one entry."""
    found = [
        f"unknown key `{key}`, allowed are {', '.join(sorted(STAGE_KEYS))}" for key in sorted(set(body) - STAGE_KEYS)
    ]
    found += [f"`{key}` is no mapping" for key in MAPPINGS if not isinstance(body.get(key, {}), dict)]
    given = {key: body[key] for key in ONLY if key in body}
    found += [f"`{key}` is `{value}`, allowed is `{ONLY[key]}`" for key, value in given.items() if value != ONLY[key]]
    inputs = body.get("inputs", {})
    if isinstance(inputs, dict):
        found += [f"input `{key}` is `{value}`, not a reference" for key, value in inputs.items() if not is_text(value)]
    each = body.get("each", {"one": ["member"]})
    if isinstance(each, dict):
        members = next(iter(each.values()), None)
        if len(each) != 1 or not isinstance(members, list) or not members or not all(map(is_text, members)):
            found.append("`each` names one variable and its list of names")
        elif len(set(members)) != len(members):
            found.append("`each` has a name twice")
    if not isinstance(body.get("stop") or "", str):
        found.append(f"`stop` is `{body['stop']}`, allowed is the rule in words, or nothing")
    if isinstance(body.get("host", {}), dict):
        found += needs.malformed(body.get("host", {}))
    resources = body.get("resources", {})
    return found + (malformed_resources(resources) if isinstance(resources, dict) else [])


def malformed_resources(resources: dict[str, Any]) -> list[str]:
    """What is wrong with the resources of one entry; cores and memory must be told."""
    found = [
        f"unknown resource `{word}`, allowed are {', '.join(sorted(RESOURCES))}"
        for word in sorted(set(resources) - set(RESOURCES))
    ]
    for word, (kinds, allowed) in RESOURCES.items():
        value = resources.get(word, False if word == "exclusive" else None)
        if value is None:
            found.append(f"resources lack `{word}`")
        elif type(value) not in kinds or (word != "exclusive" and not 0 < value < math.inf):
            found.append(f"resource `{word}` is `{value}`, allowed is {allowed}")
    return found


def is_text(value: Any) -> bool:
    """Whether a value is a text that is not empty."""
    return isinstance(value, str) and value != ""


def substitute(value: Any, variable: str, member: str) -> Any:
    """`value` with `{variable}` replaced by `member` in every string."""
    if isinstance(value, str):
        return value.replace("{" + variable + "}", member)
    if isinstance(value, list):
        return [substitute(item, variable, member) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variable, member) for key, item in value.items()}
    return value


def make(name: str, body: dict[str, Any]) -> Stage:
    """The stage of a well-formed entry."""
    resources = body["resources"]
    return Stage(
        name=name,
        program=str(body.get("program", "")),
        params=body.get("params", {}),
        inputs=body.get("inputs", {}),
        cpus=resources["cpus"],
        memory_gib=float(resources["memory_gib"]),
        exclusive=resources.get("exclusive", False),
        after_all="after" in body,
        measures_host="measures" in body,
        host=body.get("host", {}),
        stop=body.get("stop") or "",
    )


def expand_globs(stage: Stage, names: list[str], broken: set[str], errors: list[str]) -> Stage:
    """`group: stage.*.artifact` becomes `group.member: stage.member.artifact` for every member."""
    inputs: dict[str, str] = {}
    for key, reference in stage.inputs.items():
        head, star, tail = reference.partition(".*.")
        if not star or reference.startswith("tree:"):
            inputs[key] = reference
            continue
        members = [name.removeprefix(head + ".") for name in names if name.startswith(head + ".")]
        if not members and head not in broken:
            errors.append(f"stage `{stage.name}`: input `{key}` names `{reference}`, but no stage `{head}.…` exists")
        inputs |= {f"{key}.{member}": f"{head}.{member}.{tail}" for member in members}
    return Stage(**{**{field: getattr(stage, field) for field in Stage.__dataclass_fields__}, "inputs": inputs})


def faults(stage: Stage, names: list[str], broken: set[str]) -> list[str]:
    """What is wrong with one stage: its program, its inputs."""
    found = []
    known = [path.stem for path in paths.entries(paths.STAGES, "*.py")]
    if stage.program not in known or not NAME.fullmatch(stage.program.replace("_", "-")):
        found.append(f"stage `{stage.name}`: unknown program `{stage.program}`, allowed are {', '.join(known)}")
    elif fault := misplaced(f"{paths.STAGES}/{stage.program}.py"):
        found.append(f"stage `{stage.name}`: program {fault}")
    for key, reference in stage.inputs.items():
        if reference.startswith("tree:"):
            if fault := misplaced(reference.removeprefix("tree:")):
                found.append(f"stage `{stage.name}`: input `{key}`: {fault}")
        elif (owner := reference.rpartition(".")[0]) not in names and owner.partition(".")[0] not in broken:
            found.append(f"stage `{stage.name}`: input `{key}` names `{reference}`, but no such stage exists")
    return found


def misplaced(relative: str) -> str:
    """Why a path does not name one thing of the trees, or an empty string; `.` is our own tree."""
    try:
        if relative != ".":
            paths.place(relative)
    except ConfigError as error:
        return error.messages[0]
    return ""


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
