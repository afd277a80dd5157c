"""One entry of a workflow's `stages`: its form, what `each` makes of it, and the stage that it becomes.

An entry names a stage program (`program: quality` is stages/quality.py) or a plain executable with what it leaves:

    count:
      argv: [sh, -c, "wc -w < {in.text} > count.txt"]
      inputs: {text: "tree:data/a.txt"}
      outputs: {words: count.txt}
      resources: {cpus: 1, memory_gib: 0.1}

Edges come from the references in `inputs`, so none can be forgotten: `stage.artifact` names what another stage leaves,
`stage.*.artifact` the same of every member of an `each`, `tree:path` a file or folder of the project or of KASSAY_PATH,
or, by its absolute path, one of neither: its digest counts, not its place.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from kassay import needs, paths

KEYS = set("program argv outputs inputs params resources host stop each after measures timeout_s retries".split())
OF_PROGRAMS = ("params", "host", "measures")  # a plain executable takes none of these
MAPPINGS = ("inputs", "outputs", "params", "resources", "host", "each")
ONLY = {"after": "all", "measures": "host"}
RESOURCES: dict[str, tuple[tuple[type, ...], str]] = {
    "cpus": ((int,), "a whole number from 1 on"),
    "memory_gib": ((int, float), "a number above 0"),
    "gpus": ((int,), "a whole number from 0 on"),
    "disk_gib": ((int, float), "a number above 0"),
    "exclusive": ((bool,), "true or false"),
}
MUST_BE_TOLD = ("cpus", "memory_gib")
NAME = re.compile(r"[a-z][a-z0-9-]*")
IN_ARGV = re.compile(r"\{in\.([^{}]+)\}")  # the path of an input
OWN_FILES = {paths.REQUEST, paths.RECEIPT, paths.OUTCOME, paths.PROGRESS, paths.STDOUT, paths.STDERR}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One node of the DAG."""

    name: str
    program: str  # file stages/<program>.py; empty for a plain executable
    argv: list[str]  # of a plain executable, `{in.<input>}` standing for the path of an input
    outputs: dict[str, str]  # artifact -> file that a plain executable leaves in its directory
    params: dict[str, Any]
    inputs: dict[str, str]  # input name -> `stage.artifact` or `tree:path`
    cpus: int
    memory_gib: float
    gpus: int
    disk_gib: float  # what must be free where results are written
    exclusive: bool  # nothing else on the host beside it
    timeout_s: float | None  # None: the setting STAGE_TIMEOUT_S
    retries: int  # how often it is started again after a crash
    after_all: bool
    measures_host: bool  # its result holds for this host only
    host: dict[str, Any]  # what it needs of the host (kassay.needs)
    stop: str  # the predeclared rule by which this plan does not run it, in words; empty if it runs

    def needs(self) -> list[str]:
        """Names of the stages whose artifacts this one reads."""
        given = (reference for reference in self.inputs.values() if not reference.startswith("tree:"))
        return sorted({reference.rpartition(".")[0] for reference in given})

    def host_needs(self) -> dict[str, Any]:
        """What it needs of the host it runs on, the GPUs that it is granted included."""
        return {**self.host, "gpus": self.gpus} if self.gpus else self.host


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
        return [made(name, body)]
    (variable, members), rest = next(iter(body["each"].items())), {k: v for k, v in body.items() if k != "each"}
    return [made(f"{name}.{member}", substitute(rest, "{" + variable + "}", member)) for member in members]


def malformed(body: dict[str, Any]) -> list[str]:
    """What is wrong with the form of one entry."""
    found = [f"unknown key `{key}`, allowed are {', '.join(sorted(KEYS))}" for key in sorted(set(body) - KEYS)]
    found += [f"`{key}` is no mapping" for key in MAPPINGS if not isinstance(body.get(key, {}), dict)]
    given = {key: body[key] for key in ONLY if key in body}
    found += [f"`{key}` is `{value}`, allowed is `{ONLY[key]}`" for key, value in given.items() if value != ONLY[key]]
    inputs = body.get("inputs", {})
    if isinstance(inputs, dict):
        found += [f"input `{key}` is `{value}`, not a reference" for key, value in inputs.items() if not is_text(value)]
    found += malformed_each(body.get("each", {"one": ["member"]}))
    if not isinstance(body.get("stop") or "", str):
        found.append(f"`stop` is `{body['stop']}`, allowed is the rule in words, or nothing")
    if isinstance(host := body.get("host", {}), dict):
        found += needs.malformed(host)
    found += malformed_policy(body)
    if "argv" in body or "outputs" in body:
        found += malformed_executable(body)
    resources = body.get("resources", {})
    if not isinstance(resources, dict):
        return found
    if (
        isinstance(host, dict)
        and (of_gpus := sorted({"gpu_memory_gib", "capability"} & set(host)))
        and "gpus" not in resources
    ):
        found.append(f"need `{of_gpus[0]}` is about GPUs, and its resources name no `gpus`")
    return found + malformed_resources(resources)


def malformed_each(each: Any) -> list[str]:
    """What is wrong with an `each`."""
    if not isinstance(each, dict):
        return []  # told already: no mapping
    members = next(iter(each.values()), None)
    if len(each) != 1 or not isinstance(members, list) or not members or not all(map(is_text, members)):
        return ["`each` names one variable and its list of names"]
    return ["`each` has a name twice"] if len(set(members)) != len(members) else []


def malformed_policy(body: dict[str, Any]) -> list[str]:
    """What is wrong with the time-out and the retries."""
    found = []
    timeout_s, retries = body.get("timeout_s", 1), body.get("retries", 0)
    if type(timeout_s) not in (int, float) or not 0 < timeout_s < math.inf:
        found.append(f"`timeout_s` is `{timeout_s}`, allowed is a number above 0")
    if type(retries) is not int or retries < 0:
        found.append(f"`retries` is `{retries}`, allowed is a whole number from 0 on")
    return found


def malformed_executable(body: dict[str, Any]) -> list[str]:
    """What is wrong with an entry that starts a plain executable."""
    argv, outputs = body.get("argv"), body.get("outputs", {})
    found = [f"`{key}` and `argv` exclude each other" for key in ("program", *OF_PROGRAMS) if key in body]
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:
        return [*found, f"`argv` is `{argv}`, allowed is a list of texts, the program first"]
    asked = {name for word in argv for name in IN_ARGV.findall(word)}
    inputs = body.get("inputs", {})
    given = {name.partition(".")[0] for name in inputs} if isinstance(inputs, dict) else set()
    found += [
        f"`argv` names `{{in.{n}}}`, but no such input exists"
        for n in sorted(asked)
        if n.partition(".")[0] not in given
    ]
    for name, file in outputs.items() if isinstance(outputs, dict) else ():
        parts = file.split("/") if isinstance(file, str) else [".."]
        if not all(parts) or {".", ".."} & set(parts) or parts[0].startswith(".") or file in OWN_FILES:
            found.append(f"output `{name}` is `{file}`, allowed is a file of its own below the stage's directory")
    if isinstance(resources := body.get("resources", {}), dict) and "gpus" in resources:
        found.append("a plain executable cannot say what it lacks of a GPU; `gpus` needs a `program`")
    return found


def malformed_resources(resources: dict[str, Any]) -> list[str]:
    """What is wrong with the resources of one entry; cores and memory must be told."""
    found = [
        f"unknown resource `{word}`, allowed are {', '.join(sorted(RESOURCES))}"
        for word in sorted(set(resources) - set(RESOURCES))
    ]
    found += [f"resources lack `{word}`" for word in MUST_BE_TOLD if resources.get(word) is None]
    for word, (kinds, allowed) in RESOURCES.items():
        value = resources.get(word)
        if value is not None and (type(value) not in kinds or not (kinds == (bool,) or holds(word, value))):
            found.append(f"resource `{word}` is `{value}`, allowed is {allowed}")
    return found


def holds(word: str, value: float) -> bool:
    """Whether an amount of a resource may be asked for: none but GPUs may be 0, where a setting says how many."""
    return 0 < value < math.inf or (word == "gpus" and value == 0)


def is_text(value: Any) -> bool:
    """Whether a value is a text that is not empty."""
    return isinstance(value, str) and value != ""


def substitute(value: Any, placeholder: str, member: str) -> Any:
    """`value` with the placeholder replaced by `member` in every string."""
    if isinstance(value, str):
        return value.replace(placeholder, member)
    if isinstance(value, list):
        return [substitute(item, placeholder, member) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, placeholder, member) for key, item in value.items()}
    return value


def made(name: str, body: dict[str, Any]) -> Stage:
    """The stage of a well-formed entry."""
    resources = body["resources"]
    timeout_s = body.get("timeout_s")
    return Stage(
        name=name,
        program=str(body.get("program", "")),
        argv=body.get("argv", []),
        outputs=body.get("outputs", {}),
        params=body.get("params", {}),
        inputs=body.get("inputs", {}),
        cpus=resources["cpus"],
        memory_gib=float(resources["memory_gib"]),
        gpus=resources.get("gpus", 0),
        disk_gib=float(resources.get("disk_gib", 0)),
        exclusive=resources.get("exclusive", False),
        timeout_s=None if timeout_s is None else float(timeout_s),
        retries=body.get("retries", 0),
        after_all="after" in body,
        measures_host="measures" in body,
        host=body.get("host", {}),
        stop=body.get("stop") or "",
    )
