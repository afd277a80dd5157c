"""Stack environments: one per key under build/stacks, made by uv, attested in a fresh interpreter, renamed when whole.

Order: the pinned releases and what the builds need; then each source's wheel, built there (kassay.source.wheel); then
all wheels and their dependencies in one resolution in which every pin is an override. So whatever a package asks for,
a pinned source or release is never replaced, and the order of builds has no part in it (vllm-project/vllm#49804).
A failed or killed build keeps its temporary name; two builds of one key wait for each other.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kassay import digest, paths
from kassay.errors import SourceError
from kassay.source import place, uv, wheel
from kassay.source.attest import Wheels, attest, kept
from kassay.source.inventory import Inventory, take
from kassay.source.pins import Pins, canonical, parse
from kassay.source.uv import Making

WHEELS = "wheels"  # beside the folder of the stacks
REQUIREMENTS, OVERRIDES = "requirements.txt", "overrides.txt"
WITH_EXTRAS = re.compile(r"\s*([\w.-]+)\s*\[([^\]]*)\]")
BEHIND_EXTRA = re.compile(r"\bextra\s*==")
CONFLICT = "The package `"  # how each line of `uv pip check` starts that tells of one
Built = tuple[dict[str, Any], list[Path]]  # a stack, and files without which it is that stack no more


def silent(what: str) -> None:
    """Nobody listens."""


def made(
    body: dict[str, Any],
    stacks: Path,
    log: Path,
    offline: bool = False,
    jobs: int = 1,
    tell: Callable[[str], None] = silent,
) -> Built:
    """The attested stack of these pins, built if it is not there. Raises SourceError with uv's last words."""
    pins = parse(body)
    tools = wheel.tools(pins)
    home = stacks / pins.key(tools)
    making = Making(log=log, offline=offline, jobs=jobs, tell=tell)
    with place.alone(home, f"stack {home.name}"):
        if not (home / paths.ATTESTED).is_file():
            log.write_bytes(b"")
            folder = place.fresh(home)
            attested = fill(folder, pins, tools, stacks.with_name(WHEELS), making)
            digest.write_json(folder / paths.ATTESTED, attested)
            place.publish(folder, home)
        attested = json.loads((home / paths.ATTESTED).read_bytes())
        if attested["sources"]:
            require_kept(home, attested)
    records = [home / facts["record"] for _, facts in sorted(attested["sources"].items())]
    return {"key": home.name, "python": str(home / "bin" / "python"), **attested}, [home / paths.ATTESTED, *records]


def existing(python: str, body: dict[str, Any]) -> Built:
    """A user's own environment, attested and left untouched. Raises SourceError if it is not what the pins say."""
    if not (Path(python).is_absolute() and Path(python).is_file() and os.access(python, os.X_OK)):
        raise SourceError(f"STACK_PYTHON `{python}` is no executable file with a full path")
    pins = parse(body)
    found = take(Path(python), pins.modules, bytecode=False)
    attested = attest(found, pins, {}, {}) | {"conflicts": conflicts(Path(python)), "tools": {}}
    owners = {canonical(owner) for one in found.modules.values() for owner in one.owners}
    there = [found.distributions[owner] for owner in sorted(owners & set(found.distributions))]
    files = [one.info / "METADATA" for one in there if (one.info / "METADATA").is_file()]
    files += [one.info / "RECORD" for one in there if (one.info / "RECORD").is_file()]
    return {"key": "existing", "python": python, **attested}, files


def fill(folder: Path, pins: Pins, tools: dict[str, str], wheels: Path, making: Making) -> dict[str, Any]:
    """Make the environment in `folder`, all of it, and say what it is."""
    python = folder / "bin" / "python"
    install(pins, folder, making)
    before = take(python, (), bytecode=True).hashes() if pins.sources else {}
    bench = wheel.Bench(
        python=python,
        python_version=pins.python,
        installed=before,
        tools=tools,
        variables=pins.variables,
        wheels=wheels,
    )
    built: Wheels = {source.name: wheel.made(source, bench, making) for source in pins.sources}
    if built:
        install_wheels(built, folder, pins, making)
    making.tell("attesting")
    attested = attest(take(python, pins.modules, bytecode=True), pins, built, before)
    return attested | {"conflicts": conflicts(python), "tools": tools}


def install(pins: Pins, folder: Path, making: Making) -> None:
    """A new environment with the releases."""
    ours = not pins.asked_python
    venv = ["venv", "--relocatable", "--python", sys.executable if ours else pins.python, str(folder)]
    around = uv.own_environment(no_downloads=ours or making.offline)
    uv.call(making, f"making the environment with Python {pins.python}", venv, around)
    releases = pins.releases().values()
    (folder / REQUIREMENTS).write_text("".join(f"{one.line}\n" for one in releases))
    if releases:
        words = ["pip", "install", "--python", str(folder / "bin" / "python"), "-r", str(folder / REQUIREMENTS)]
        uv.call(making, f"installing {len(releases)} releases", words, uv.own_environment())


def install_wheels(built: Wheels, folder: Path, pins: Pins, making: Making) -> None:
    """The wheels and what they need, at once: every pin overrides what any package asks for of that name.

    An override takes the place of a requirement with its extras too, so the extras that are asked for are given to it.
    """
    python, names = folder / "bin" / "python", sorted(one.distribution for one, _ in built.values())
    # Copies: a file that is edited in one stack must not change in uv's cache, and so in others.
    words = ["pip", "install", "--python", str(python), "--link-mode", "copy", "--overrides", str(folder / OVERRIDES)]
    extras: dict[str, set[str]] = {}
    while True:
        (folder / OVERRIDES).write_text("".join(f"{line}\n" for line in overrides(built, pins, extras)))
        given = ["-r", str(folder / REQUIREMENTS), *names]
        uv.call(making, f"installing {', '.join(names)}", [*words, *given], uv.own_environment())
        asked = extras_asked(take(python, (), bytecode=True))
        more = {name: asked.get(name, set()) | extras.get(name, set()) for name in {*asked, *extras}}
        if more == extras:
            return
        extras = more


def overrides(built: Wheels, pins: Pins, extras: dict[str, set[str]]) -> list[str]:
    """The lines of the overrides file: a wheel's url or a release's pin for each pinned name."""
    lines = []
    for one, path in built.values():
        url = f"{path.resolve().as_uri()}#sha256={one.sha256}"
        lines.append(f"{one.distribution}{listed(extras.get(canonical(one.distribution), set()))} @ {url}")
    for release in pins.releases().values():
        name, _, version = release.pin.partition("==")
        name, _, own = name.rstrip("]").partition("[")
        more = extras.get(release.name, set()) | set(filter(None, own.split(",")))
        lines.append(f"{name}{listed(more)}=={version}")
    return sorted(lines)


def listed(extras: set[str]) -> str:
    """Extras as a requirement has them."""
    return f"[{','.join(sorted(extras))}]" if extras else ""


def extras_asked(found: Inventory) -> dict[str, set[str]]:
    """Canonical name -> extras that installed packages ask for; what is itself behind an extra does not count."""
    asked: dict[str, set[str]] = {}
    for one in found.distributions.values():
        for line in one.requires():
            wanted = WITH_EXTRAS.match(line)
            if wanted and not BEHIND_EXTRA.search(line.partition(";")[2]):
                names = {name.strip() for name in wanted[2].split(",") if name.strip()}
                asked[canonical(wanted[1])] = asked.get(canonical(wanted[1]), set()) | names
    return asked


def conflicts(python: Path) -> list[str]:
    """What packages ask for and do not get. Raises SourceError if uv cannot tell."""
    argv = [uv.program(), "pip", "check", "--offline", "--color", "never", "--python", str(python)]
    done = subprocess.run(argv, capture_output=True, text=True, env=uv.own_environment(), check=False)
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    found = sorted(line for line in lines if line.startswith(CONFLICT))
    if done.returncode != 0 and not found:
        raise SourceError(f"`uv pip check` ended with {done.returncode}:", *lines[-4:])
    return found


def require_kept(home: Path, attested: dict[str, Any]) -> None:
    """Raise SourceError if a stack is not what was attested of it any more."""
    found = take(home / "bin" / "python", (), bytecode=True)
    if errors := kept(found, attested):
        raise SourceError(*(f"{home}: {error}" for error in errors), hint=f"rm -r {home}; it is made again")
