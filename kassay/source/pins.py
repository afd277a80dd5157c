"""Pins: what a stack is made from, as freeze left it in pins.json, checked and typed.

Absent keys are empty, and `python` is ours: a stack without git sources has requirements and modules only. The key of a
stack is over all that its content depends on; neither where a checkout lies nor the order in which sources are built is
part of it.
"""

import platform
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import digest
from kassay.errors import SourceError

EXACT = re.compile(r"([\w.-]+)(\[[\w.,-]+\])?==([\w.!+-]+)((?: --hash=sha256:[0-9a-f]{64})*)")
COMMIT = re.compile(r"[0-9a-f]{40}")
FIELDS = ("commit", "tree", "path", "distribution", "module", "version")
PYTHON = re.compile(r"3\.[0-9]+\.[0-9]+")
KEYS = ("python", "requirements", "modules", "sources", "install", "build_requirements", "variables")


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One release, exactly: `name==version`, with extras and hashes if they were given."""

    name: str  # canonical
    version: str
    line: str  # as a requirements file has it, hashes included

    @property
    def pin(self) -> str:
        """The line without its hashes."""
        return self.line.partition(" ")[0]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One git source, frozen."""

    name: str
    commit: str
    tree: str
    path: Path  # the pristine checkout
    distribution: str
    module: str
    version: str | None  # what setuptools_scm is told, if anything

    def identity(self) -> dict[str, Any]:
        """All that says what the source is, without where it lies."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


@dataclass(frozen=True, kw_only=True)
class Pins:
    """What one stack is made from."""

    asked_python: str  # exact version of the interpreter, as `3.12.11`; empty: our own
    requirements: tuple[Requirement, ...]
    build_requirements: tuple[Requirement, ...]
    modules: tuple[str, ...]  # those of the sources included
    sources: tuple[Source, ...]  # in the order in which they are built
    variables: dict[str, str]  # environment of the builds

    @property
    def python(self) -> str:
        """The interpreter's version."""
        return self.asked_python or platform.python_version()

    def releases(self) -> dict[str, Requirement]:
        """Canonical name -> the one requirement of that name."""
        return {one.name: one for one in (*self.requirements, *self.build_requirements)}

    def key(self, tools: dict[str, str]) -> str:
        """Hex key of the stack; `tools` are the versions of the compilers if something is compiled."""
        made_from = {
            "requirements": [one.line for one in self.requirements],
            "build_requirements": [one.line for one in self.build_requirements],
            "modules": self.modules,
            "sources": {source.name: source.identity() for source in self.sources},
            "variables": self.variables,
        }
        return digest.of_value([made_from, self.python, platform.machine(), tools])[:16]


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(body: dict[str, Any]) -> Pins:
    """The pins of a parsed pins.json. Raises SourceError with everything that is wrong in it."""
    errors = [f"pins: unknown key `{key}`, allowed are {', '.join(KEYS)}" for key in sorted(set(body) - set(KEYS))]
    python = body.get("python") or ""
    if not isinstance(python, str) or (python and not PYTHON.fullmatch(python)):
        errors.append(f"pins: `python` is `{python}`, allowed is an exact version such as `3.12.11`")
    described = body.get("sources") or {}
    install = body.get("install") or sorted(described)
    if sorted(install) != sorted(described):
        errors.append(f"pins: `install` names {sorted(install)}, the git sources are {sorted(described)}")
    for name, facts in described.items():
        errors += wrong_source(name, facts)
    variables = body.get("variables") or {}
    errors += [f"pins: variable `{key}` is {variables[key]!r}, no text; quote it" for key in not_text(variables)]
    lines = [*body.get("requirements", []), *(body.get("build_requirements") or [])]
    errors += [f"requirement `{line}` is no exact pin, allowed is `<name>==<version>`" for line in loose(lines)]
    if not errors:
        names = [canonical(facts["distribution"]) for facts in described.values()]
        errors = twice([*names, *(f"{one.name}=={one.version}" for one in {exact(line) for line in lines})])
    if errors:
        raise SourceError(*errors, hint="change the pins of the stack in workflows/, or use another STACK_PYTHON")
    sources = tuple(
        Source(name=name, **{key: described[name][key] for key in FIELDS} | {"path": Path(described[name]["path"])})
        for name in install
    )
    return Pins(
        asked_python=python,
        requirements=tuple(exact(line) for line in body.get("requirements", [])),
        build_requirements=tuple(exact(line) for line in body.get("build_requirements") or []),
        modules=tuple(dict.fromkeys([*body.get("modules", []), *sorted(source.module for source in sources)])),
        sources=sources,
        variables=dict(variables),
    )


def wrong_source(name: str, facts: dict[str, Any]) -> list[str]:
    """What is wrong with the description of a source."""
    where = f"source `{name}`"
    errors = [f"{where} lacks `{key}`" for key in FIELDS if key not in facts]
    errors += [f"{where} has an unknown key `{key}`" for key in sorted(set(facts) - set(FIELDS))]
    for key in ("commit", "tree"):
        if key in facts and not COMMIT.fullmatch(str(facts[key])):
            errors.append(f"{where}: `{key}` is `{facts[key]}`, allowed is an id of 40 hexadecimal digits")
    if not Path(str(facts.get("path", "/"))).is_absolute():
        errors.append(f"{where}: `path` is `{facts['path']}`, allowed is a full path")
    return errors


def not_text(variables: dict[str, Any]) -> list[str]:
    """Names of the variables that an environment cannot hold."""
    return sorted(key for key, value in variables.items() if not isinstance(value, str))


def loose(lines: Iterable[str]) -> list[str]:
    """Requirements that are no exact pin."""
    return [line for line in lines if not EXACT.fullmatch(line)]


def exact(line: str) -> Requirement:
    """The parts of an exact pin."""
    found = EXACT.fullmatch(line)
    if found is None:
        raise ValueError(f"a bug: `{line}` was not checked")
    return Requirement(name=canonical(found[1]), version=found[3], line=line)


def twice(pinned: list[str]) -> list[str]:
    """Distributions that two pins name; `pinned` are names of sources and `name==version` of releases."""
    names = [pin.partition("==")[0] for pin in pinned]
    again = sorted({name for name in names if names.count(name) > 1})
    told = {name: [pin for pin in sorted(pinned) if pin.partition("==")[0] == name] for name in again}
    return [
        f"distribution `{name}` is pinned twice: {', '.join(pin if '==' in pin else 'a git source' for pin in pins)}"
        for name, pins in told.items()
    ]
