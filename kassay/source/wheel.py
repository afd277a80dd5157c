"""Wheels: each git source, built once per key under build/wheels.

    build/wheels/<key>/<wheel>  built.json     the file, and what it was made from with its SHA-256

The key is over the source (commit, tree, told version), everything installed where it is built, the Python version, the
machine, the compilers and the build variables. A source is built from a private copy of its checkout, which has to be
the frozen commit by content, so nothing that an earlier build left behind can get in: time stamps and package versions
decide nothing (astral-sh/uv#8901, #13685). `uv build` calls the source's own backend (PEP 517) with no isolation:
an isolated build would take a torch of its own choice, compile against that, and run with another.

Sources are built where no source is installed, so that the order of builds cannot matter.
"""

import json
import platform
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kassay import digest, host
from kassay.errors import SourceError
from kassay.source import checkout, contents, place, uv
from kassay.source.command import git
from kassay.source.contents import Contents
from kassay.source.pins import Pins, Source, canonical
from kassay.source.uv import Making

BUILT = "built.json"
SCM_VERSION = "SETUPTOOLS_SCM_PRETEND_VERSION"
# flash-attention's setup.py counts 9 GB for a job of four nvcc threads; one with a single thread takes less than half.
GIB_PER_JOB = 4.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Where wheels are built: an environment without any source."""

    python: Path
    python_version: str
    installed: dict[str, str | None]  # all distributions there: `name==version` -> hash of its content
    tools: dict[str, str]  # compilers
    variables: dict[str, str]
    wheels: Path  # folder of the finished ones


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """The content of built.json."""

    key: str
    file: str
    sha256: str
    distribution: str  # as the wheel's metadata says
    version: str
    commit: str
    tree: str


def made(source: Source, bench: Bench, making: Making) -> tuple[Wheel, Path]:
    """The wheel of a source and where it lies, built if it is not there. Raises SourceError with the build's words."""
    home = bench.wheels / wheel_key(source, bench)
    with place.alone(home, f"the wheel of `{source.name}`"):
        found = finished(home)
        if found is None:
            folder = place.fresh(home)
            try:
                built = build(source, bench, making, folder)
                whole = folder / "whole"
                whole.mkdir()
                shutil.move(built, whole / built.name)
                found = describe(source, home.name, whole / built.name)
                digest.write_json(whole / BUILT, asdict(found))
                place.publish(whole, home)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return found, home / found.file


def wheel_key(source: Source, bench: Bench) -> str:
    """Hex key of a wheel: all that its content depends on."""
    told = [source.identity(), bench.installed, bench.tools, bench.variables]
    return digest.of_value([told, bench.python_version, platform.machine()])[:16]


def finished(home: Path) -> Wheel | None:
    """The wheel that lies in `home`, if it is whole: a file that lost its bytes is none."""
    try:
        found = Wheel(**json.loads((home / BUILT).read_bytes()))
        whole = digest.of_file(home / found.file) == found.sha256
    except (OSError, ValueError, TypeError):
        return None
    return found if whole else None


def build(source: Source, bench: Bench, making: Making, folder: Path) -> Path:
    """Build in a private copy below `folder`; the one wheel that came out."""
    copy, out = folder / "source", folder / "out"
    making.tell(f"copying {source.name}")
    copy_of(source, copy)
    variables = {
        "SOURCE_DATE_EPOCH": git("log", "-1", "--format=%ct", source.commit, cwd=copy).strip(),
        **({} if source.version is None else {SCM_VERSION: source.version}),
        **bench.variables,
    }
    # --no-config: the config-settings of a user's uv.toml would reach the backend.
    words = ["build", "--wheel", "--no-build-isolation", "--no-config", "--no-create-gitignore"]
    where = ["--python", str(bench.python), "--out-dir", str(out), str(copy)]
    environment = uv.build_environment(bench.python, making.jobs, variables)
    uv.call(making, f"building {source.name}", [*words, *where], environment)
    wheels = list(out.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"source `{source.name}`: its build left {len(wheels)} wheels, expected is 1")
    return wheels[0]


def copy_of(source: Source, copy: Path) -> None:
    """A private, writable copy of a checkout. Raises SourceError unless it is the frozen commit, by content."""
    if not source.path.is_dir():
        raise SourceError(f"source `{source.name}`: its checkout {source.path} is gone", hint="run freeze again")
    shutil.copytree(source.path, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
    hint = f"rm -r {source.path}, then run freeze again"
    try:
        origin = git("config", "--default", "", "remote.origin.url", cwd=copy).strip()
        found = checkout.frozen(copy, origin, source.commit, depth=0)
    except SourceError as error:
        told = [message.replace(str(copy), str(source.path)) for message in error.messages]
        raise SourceError(*(f"source `{source.name}`: {message}" for message in told), hint=hint) from None
    if found["tree"] != source.tree:
        raise SourceError(
            f"source `{source.name}`: expected tree {source.tree}, found {found['tree']} in {source.path}", hint=hint
        )


def describe(source: Source, key: str, path: Path) -> Wheel:
    """What is recorded of a wheel. Raises SourceError if it is of another distribution."""
    held: Contents = contents.of_wheel(path)
    if canonical(held.name) != canonical(source.distribution):
        raise SourceError(
            f"source `{source.name}`: expected a wheel of `{source.distribution}`, found one of `{held.name}`"
        )
    return Wheel(
        key=key,
        file=path.name,
        sha256=digest.of_file(path),
        distribution=held.name,
        version=held.version,
        commit=source.commit,
        tree=source.tree,
    )


def tools(pins: Pins) -> dict[str, str]:
    """First lines of what the compilers say of themselves; empty if nothing is compiled. An absent one is `absent`."""
    if not pins.sources:
        return {}
    environment = uv.build_environment(Path(sys.executable), 1, pins.variables)
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    asked = {
        "cc": shlex.split(environment.get("CC") or "cc"),
        "c++": shlex.split(environment.get("CXX") or "c++"),
        "nvcc": [f"{home}/bin/nvcc" if home else "nvcc"],
    }
    return {name: first_words(argv, environment) for name, argv in asked.items()}


def first_words(argv: list[str], environment: dict[str, str]) -> str:
    """What a compiler says to `--version`, without the lines that tell of its licence."""
    program = shutil.which(argv[0], path=environment["PATH"])
    if program is None:
        return "absent"
    done = subprocess.run(
        [program, *argv[1:], "--version"], env=environment, capture_output=True, text=True, check=False
    )
    lines = [line.strip() for line in done.stdout.splitlines() if any(mark.isdigit() for mark in line)]
    return "; ".join(line for line in lines if "copyright" not in line.lower()) or f"exit status {done.returncode}"


def jobs(cpus: int, memory_gib: float) -> int:
    """MAX_JOBS: compilers that fit side by side into a grant."""
    return max(1, min(cpus, host.usable_cpus(), int(memory_gib / GIB_PER_JOB)))
