"""Stack environments: one per key under build/stacks, made by uv, attested in a fresh interpreter, renamed when whole.

The key is over the pins, the Python version and the machine. A failed or killed build keeps its temporary name and is
never mistaken for a finished one; two builds of one key wait for each other.
"""

import json
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock

from kassay import digest
from kassay.errors import SourceError

ATTEST = """
import importlib, importlib.metadata as metadata, json, platform, sys
owners = metadata.packages_distributions()
owner = {name: owners[name.partition(".")[0]][0] for name in sys.argv[1:] if name.partition(".")[0] in owners}
modules, files = {}, []
for name in sys.argv[1:]:
    own = getattr(importlib.import_module(name), "__version__", None)
    modules[name] = own if isinstance(own, str) else metadata.version(owner[name]) if name in owner else "unknown"
    found = metadata.files(owner[name]) if name in owner else None
    files += [str(file.locate()) for file in found or [] if file.name == "METADATA"]
lock = sorted({f"{one.metadata['Name'].lower()}=={one.version}" for one in metadata.distributions()})
print(json.dumps([{"python_version": platform.python_version(), "modules": modules, "lock": lock}, files]))
"""
LOCK_WAIT_S = 1800.0
ATTESTED = "attested.json"
Built = tuple[dict[str, Any], list[Path]]  # a stack, and files without which it is that stack no more


def stack_key(pins: dict[str, Any]) -> str:
    """Hex key of an environment: its pins, this Python's version, this machine's kind."""
    return digest.of_value([pins, platform.python_version(), platform.machine()])[:16]


def made(pins: dict[str, Any], stacks: Path, log: Path, offline: bool = False) -> Built:
    """The attested stack of these pins, built if it is not there. Raises SourceError with uv's last words."""
    key = stack_key(pins)
    home = stacks / key
    stacks.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(stacks / f".{key}.lock", timeout=LOCK_WAIT_S):
        if not (home / ATTESTED).is_file():
            for left in stacks.glob(f".{key}.making-*"):
                shutil.rmtree(left, ignore_errors=True)
            # A name of its own: an installer that outlived a killed build may still write into the old one.
            making = stacks / f".{key}.making-{secrets.token_hex(4)}"
            install(pins["requirements"], making, log, offline)
            attested, _ = attest(making / "bin" / "python", pins)
            digest.write_json(making / ATTESTED, attested)
            shutil.rmtree(home, ignore_errors=True)
            making.rename(home)
        attested = json.loads((home / ATTESTED).read_bytes())
        return {"key": key, "python": str(home / "bin" / "python"), **attested}, [home / ATTESTED]


def existing(python: str, pins: dict[str, Any]) -> Built:
    """A user's own environment, attested and left untouched. Raises SourceError if it lacks a module."""
    if not (Path(python).is_absolute() and Path(python).is_file() and os.access(python, os.X_OK)):
        raise SourceError(f"STACK_PYTHON `{python}` is no executable file with a full path")
    attested, files = attest(Path(python), pins)
    return {"key": "existing", "python": python, **attested}, files


def install(requirements: list[str], home: Path, log: Path, offline: bool = False) -> None:
    """A new environment with the requirements; everything uv says goes to the log."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    python = sys.executable
    network = ["--offline"] if offline else []
    commands = [
        [uv, "venv", "--relocatable", "--python", python, str(home)],
        [uv, "pip", "install", *network, "--python", str(home / "bin" / "python"), *requirements],
    ]
    environment = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    environment.setdefault("UV_FIND_LINKS", environment.get("PIP_FIND_LINKS", ""))
    environment.pop("PYTHONPATH", None)
    with log.open("wb") as stream:
        for argv in commands:
            done = subprocess.run(argv, stdout=stream, stderr=subprocess.STDOUT, env=environment, check=False)
            if done.returncode != 0:
                stream.flush()
                said = log.read_text(errors="replace").strip().splitlines()[-12:]
                raise SourceError(
                    f"`uv {argv[1]}` ended with {done.returncode}:", *said, hint="an index or find-links may be missing"
                )


def attest(python: Path, pins: dict[str, Any]) -> Built:
    """Import every pinned module in a fresh interpreter and compare what is installed with the pins."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    argv = [str(python), "-I", "-c", ATTEST, *pins["modules"]]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SourceError(f"{python}: the pinned modules cannot be imported:", *done.stderr.strip().splitlines()[-4:])
    attested, files = json.loads(done.stdout.splitlines()[-1])
    installed = {canonical(name): version for name, _, version in (line.partition("==") for line in attested["lock"])}
    errors = []
    for pin in pins["requirements"]:
        name, _, wanted = pin.partition("==")
        if not wanted:
            raise SourceError(f"requirement `{pin}` is no exact pin, allowed is `<name>==<version>`")
        version = installed.get(canonical(name), "absent")
        if wanted not in (version, version.partition("+")[0]):
            errors.append(f"{python}: `{name}` is {version}, the pin is {wanted}")
    if errors:
        raise SourceError(*errors, hint="change the pins of workflows/decode/stack, or use another STACK_PYTHON")
    return attested, [Path(file) for file in files]


def canonical(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
