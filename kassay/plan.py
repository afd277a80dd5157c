"""A plan: every stage fully evaluated before anything starts, and the hash of it all.

`after: all` runs a stage when all others have ended, whatever their outcome. All errors of a workflow are reported
together (kassay.entry: what an entry may hold).
"""

import functools
import heapq
import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any

from kassay import digest, paths
from kassay.config.setting import Setting
from kassay.dotted import flat
from kassay.entry import NAME, Stage, expand
from kassay.errors import ConfigError, PlanError

SCHEMA = "kassay.plan/2"
PROFILE = re.compile(r"[A-Za-z0-9][\w.+-]*")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will run, in an order in which every stage comes after those that it needs."""

    profile: str
    workflow: str
    stages: tuple[Stage, ...]
    config: dict[str, Any]  # the composed workflow without its stages: studies, models, stack

    def to_json(self) -> dict[str, Any]:
        """The content of plan.json."""
        stages = [vars(stage) for stage in self.stages]
        head = {"schema": SCHEMA, "profile": self.profile, "workflow": self.workflow}
        tail = {"protocol": self.protocol(), "hash": self.hash()}
        return {**head, "stages": stages, "config": self.config, **tail}

    def text(self) -> str:
        """The text of plan.json: a line for each stage."""
        body = self.to_json()
        stages = ",\n  ".join(json.dumps(stage, ensure_ascii=False, allow_nan=False) for stage in body.pop("stages"))
        head = json.dumps(body, ensure_ascii=False, allow_nan=False, indent=1)
        return head.removesuffix("\n}") + f',\n "stages": [\n  {stages}\n ]\n}}\n'

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Plan":
        """The plan of a plan.json's content; its hash is computed anew."""
        stages = tuple(Stage(**stage) for stage in body["stages"])
        return cls(profile=body["profile"], workflow=body["workflow"], stages=stages, config=body["config"])

    def hash(self) -> str:
        """Hex SHA-256 over everything that decides results: stages, parameters, studies. No path of this machine."""
        return self._hash

    def protocol(self) -> str | None:
        """Hex SHA-256 of the study; None for a workflow without one. The hash of the plan covers it too."""
        return protocol_hash(self.workflow, self.config["study"]) if "study" in self.config else None

    @functools.cached_property
    def _hash(self) -> str:
        return digest.of_value([self.workflow, [vars(stage) for stage in self.stages], self.config])

    def read_of(self, owner: str) -> dict[str, str]:
        """The artifacts of a stage that others read, each with one that does."""
        return self._read.get(owner, {})

    @functools.cached_property
    def _read(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for stage in reversed(self.stages):
            for reference in stage.inputs.values():
                if not reference.startswith("tree:"):
                    owner, _, artifact = reference.rpartition(".")
                    found.setdefault(owner, {})[artifact] = stage.name
        return found

    def stage(self, name: str) -> Stage:
        """The stage of that name."""
        return self._by_name[name]

    @functools.cached_property
    def _by_name(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.stages}


def protocol_hash(workflow: str, study: Any) -> str:
    """Hex SHA-256 of a study and of the workflow that is to carry it out."""
    return digest.of_value([workflow, study])


def of_settings(settings: dict[str, Setting], overrides: list[str]) -> Plan:
    """The plan of a configuration. Raises ConfigError, or PlanError with all faults at once."""
    from kassay.config.compose import compose
    from kassay.config.profiles import full_name

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
    names = {stage.name: index for index, stage in enumerate(stages)}
    broken = set(map(str, entries)) - {name.partition(".")[0] for name in names}  # reported once, not by every reader
    stages = [expand_globs(stage, list(names), broken, errors) for stage in stages]
    known = [path.stem for path in paths.entries(paths.STAGES, "*.py")]
    outputs = {stage.name: stage.outputs for stage in stages if stage.argv}
    for stage in stages:
        errors += unknown_outputs(stage, outputs)
    last = {stage.name for stage in stages if stage.after_all}
    for stage in stages:
        errors += faults(stage, known, names, broken)
        if not stage.after_all and (late := last & set(stage.needs())):
            errors.append(f"stage `{stage.name}`: it reads `{min(late)}`, which comes after all others")
    ordered = in_order(stages, errors)
    if errors:
        raise PlanError(*(f"workflow `{workflow}`: {error}" for error in errors))
    return Plan(profile=profile, workflow=workflow, stages=tuple(ordered), config=config)


def finite(value: Any) -> bool:
    """Whether JSON can hold every number of a value."""
    if isinstance(value, list | dict):
        return all(finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def expand_globs(stage: Stage, names: list[str], broken: set[str], errors: list[str]) -> Stage:
    """`group: stage.*.artifact` becomes `group.member: stage.member.artifact` for every member."""
    if not any(".*." in reference for reference in stage.inputs.values()):
        return stage
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
    return replace(stage, inputs=inputs)


def faults(stage: Stage, known: list[str], names: dict[str, int], broken: set[str]) -> list[str]:
    """What is wrong with one stage: its program, its inputs."""
    found = []
    if not stage.argv and (stage.program not in known or not NAME.fullmatch(stage.program.replace("_", "-"))):
        found.append(f"stage `{stage.name}`: unknown program `{stage.program}`, allowed are {', '.join(known)}")
    elif not stage.argv and (fault := misplaced(f"{paths.STAGES}/{stage.program}.py")):
        found.append(f"stage `{stage.name}`: program {fault}")
    for key, reference in stage.inputs.items():
        if reference.startswith("tree:"):
            if fault := misplaced(reference.removeprefix("tree:")):
                found.append(f"stage `{stage.name}`: input `{key}`: {fault}")
        elif (owner := reference.rpartition(".")[0]) not in names and owner.partition(".")[0] not in broken:
            found.append(f"stage `{stage.name}`: input `{key}` names `{reference}`, but no such stage exists")
    return found


def unknown_outputs(stage: Stage, outputs: dict[str, dict[str, str]]) -> list[str]:
    """What a stage reads of plain executables that is none of their outputs."""
    found = []
    for key, reference in stage.inputs.items():
        owner, _, artifact = reference.rpartition(".")
        if not reference.startswith("tree:") and owner in outputs and artifact not in outputs[owner]:
            allowed = ", ".join(outputs[owner]) or "none"
            found.append(f"stage `{stage.name}`: input `{key}` names `{reference}`; outputs of `{owner}`: {allowed}")
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
    """Topological order that keeps the file's order where it can; a cycle is an error that names its stages.

    What comes after all others comes last; what reads an artifact of such a stage waits for it there.
    """
    index = {stage.name: position for position, stage in enumerate(stages)}
    readers: dict[str, list[int]] = {name: [] for name in index}
    lacks = [0] * len(stages)
    for position, stage in enumerate(stages):
        for name in stage.needs():
            if name in index:
                readers[name].append(position)
                lacks[position] += 1
    ready = [(stage.after_all, position) for position, stage in enumerate(stages) if lacks[position] == 0]
    heapq.heapify(ready)
    done: list[Stage] = []
    while ready:
        _, position = heapq.heappop(ready)
        done.append(stages[position])
        for reader in readers[stages[position].name]:
            lacks[reader] -= 1
            if lacks[reader] == 0:
                heapq.heappush(ready, (stages[reader].after_all, reader))
    if len(done) < len(stages):
        waiting = [stage for position, stage in enumerate(stages) if lacks[position] > 0]
        errors.append("a cycle: " + ", ".join(f"`{stage.name}` needs {stage.needs()}" for stage in waiting))
    return done
