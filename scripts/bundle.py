"""`make bundle`: kassay in one tar for a host without a network; there `kassay-<commit8>/install` makes it run.

    build/bundle/kassay-<commit8>.tar
      kassay-<commit8>/install install.py    scripts/bundle-install.*: all that runs there, the standard library only
                       manifest.json         commit, what the wheels are for, sha256 and bytes of each file
                       kassay.git/           the one commit, shallow, with no name of where it came from
                       wheels/               the framework's own dependencies at the versions of constraints.txt

From the environment, as make exports the words of its command line:
HOST_PYTHON  version that the wheels are for, as in 3.12; without it, that of this interpreter
HOST_ARCH    x86_64 or aarch64; without it, this machine's. Wheels are for Linux with glibc 2.28 or newer
FROM_STACK   1: only wheels of pure Python, which fit every host; compiled packages come from the stack's environment
COMMIT       what is carried though the tree has changes; without it, HEAD of a clean tree

uv resolves for the host's Python, pip fetches (uv cannot), both from whatever index or folder they are set up with.
No stack, no results and no weights but the shipped models travel; the last line on standard output is the tar.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import yaml

from kassay import digest, paths
from kassay.errors import EXIT_USAGE, ConfigError, KassayError, SourceError
from kassay.source import uv

ARCHES = ("x86_64", "aarch64")
GLIBC = (2, 28)  # RHEL 8; numpy and scipy have wheels for nothing older
# What the host is given beside the dependencies: kassay itself calls uv; pip and setuptools only install.
TOOLS = ("uv", "pip", "setuptools>=77")
PURE = "-none-any.whl"
SOURCE_ONLY = ("antlr4-python3-runtime",)  # of which there is no wheel anywhere; pure Python, built here
MODULES = "workflows/native/stack/host.yaml"  # what the first command there, native-smoke, wants of the stack
SHOWN = 8  # changed files that a refusal names
LOG_LINES = 6


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the words of the command line ask for."""

    python: str
    arch: str
    from_stack: bool
    commit: str  # empty: HEAD of a clean tree


def asked(environment: dict[str, str]) -> Asked:
    """The four words, checked. Raises ConfigError for all wrong ones together."""
    python = environment.get("HOST_PYTHON") or ".".join(platform.python_version_tuple()[:2])
    arch = environment.get("HOST_ARCH") or platform.machine()
    small = environment.get("FROM_STACK", "")
    wrong = []
    if not re.fullmatch(r"3\.\d+", python) or int(python[2:]) < 11:
        wrong.append(f"HOST_PYTHON is `{python}`, allowed is a version from 3.11 on, as in 3.12")
    if arch not in ARCHES:
        wrong.append(f"HOST_ARCH is `{arch}`, allowed is {' or '.join(ARCHES)}")
    if small not in ("", "1"):
        wrong.append(f"FROM_STACK is `{small}`, allowed is 1 or nothing")
    if wrong:
        raise ConfigError(*wrong, hint="make bundle HOST_PYTHON=3.12 HOST_ARCH=x86_64")
    return Asked(python=python, arch=arch, from_stack=bool(small), commit=environment.get("COMMIT", ""))


def run(what: str, argv: list[Any], hint: str | None = None) -> str:
    """A command's output. Raises SourceError with the last lines that it said."""
    words = [str(word) for word in argv]
    around = uv.own_environment()
    done = subprocess.run(words, cwd=ROOT, env=around, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-LOG_LINES:]
        raise SourceError(f"{what}: `{words[0]}` ended with {done.returncode}:", *said, hint=hint)
    return done.stdout


def commit_of(wanted: Asked) -> str:
    """The id of what is carried. Raises SourceError for a tree with changes that were not said to stay here."""
    if not wanted.commit:
        changed = run("the tree's changes", ["git", "status", "--porcelain"]).splitlines()
        if changed:
            more = [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
            raise SourceError(
                f"the tree has changes, and only a commit is carried; {len(changed)} of `git status`:",
                *(f"  {line}" for line in [*changed[:SHOWN], *more]),
                hint="commit them, or leave them here: make bundle COMMIT=HEAD",
            )
    named = f"{wanted.commit or 'HEAD'}^{{commit}}"
    return run("COMMIT", ["git", "rev-parse", "--verify", "--end-of-options", named]).strip()


def carry_commit(commit: str, folder: Path) -> None:
    """A repository of one commit, without hooks, remotes or the name of this tree."""
    work = folder.with_suffix(".work")
    run("the repository", ["git", "init", "-q", "--template=", work])
    # Version 2 gives a commit that no branch is at; a log of refs would name this tree's folder.
    git = ["git", "-C", work, "-c", "protocol.version=2", "-c", "core.logAllRefUpdates=false"]
    run("the commit", [*git, "fetch", "-q", "--depth", "1", ROOT, f"{commit}:refs/heads/main"])
    run("the branch", [*git, "symbolic-ref", "HEAD", "refs/heads/main"])
    (work / ".git" / "FETCH_HEAD").unlink()  # as that would
    (work / ".git").rename(folder)
    work.rmdir()


def carry_wheels(commit: str, wanted: Asked, folder: Path, scratch: Path) -> list[str]:
    """Fill the folder with wheels; the names of packages that are left to the stack's environment."""
    for name in ("pyproject.toml", "constraints.txt"):
        (scratch / name).write_text(run(name, ["git", "show", f"{commit}:{name}"]))
    (scratch / "tools.in").write_text("\n".join(TOOLS))
    hint = f"an index, or a folder of PIP_FIND_LINKS, must have each for Python {wanted.python} on {wanted.arch}"
    compiling = ["pip", "compile", "-q", "--no-header", "--no-annotate", "-c", scratch / "constraints.txt"]
    target = ["--python-version", wanted.python, "--python-platform", f"{wanted.arch}-manylinux_{GLIBC[0]}_{GLIBC[1]}"]
    inputs = [scratch / "pyproject.toml", scratch / "tools.in"]
    pins = run("versions", [uv.program(), *compiling, *target, *inputs], hint).split()
    carrier = [pin for pin in pins if pin.startswith("pip==")]
    installing = [uv.program(), "pip", "install", "-q", "--no-deps", "-p", sys.executable, "--target", scratch / "pip"]
    run("pip", [*installing, *carrier], hint)
    pip = [sys.executable, scratch / "pip" / "pip", "--disable-pip-version-check", "-q"]
    built = [pin for pin in pins if pin.partition("==")[0] in SOURCE_ONLY]
    run("wheels", [*pip, "wheel", "--no-deps", "-w", folder, *built], hint)
    fetched = [pin for pin in pins if pin not in built]
    only = ["--no-deps", "--only-binary=:all:", "--python-version", wanted.python, "--implementation", "cp"]
    platforms = [word for tag in tags(wanted.arch) for word in ("--platform", tag)]
    run("wheels", [*pip, "download", "--dest", folder, *only, *platforms, *fetched], hint)
    if not wanted.from_stack:
        return []
    compiled = sorted(path for path in folder.iterdir() if not path.name.endswith(PURE))
    for path in compiled:
        path.unlink()
    return [path.name.partition("-")[0].replace("_", "-").lower() for path in compiled]


def tags(arch: str) -> list[str]:
    """The platforms whose wheels a host with this glibc takes, newest first (PEP 600 and what it followed)."""
    newer = [f"manylinux_2_{minor}_{arch}" for minor in range(GLIBC[1], 4, -1)]
    return [*newer, *(f"{older}_{arch}" for older in ("manylinux2014", "manylinux2010", "manylinux1"))]


def write_manifest(home: Path, commit: str, wanted: Asked, left: list[str]) -> None:
    """What install.py reads and holds every other file to."""
    files = sorted(path for path in home.rglob("*") if path.is_file())
    body = {
        "commit": commit,
        "wheels": None if wanted.from_stack else {"python": wanted.python, "arch": wanted.arch, "glibc": GLIBC},
        "from_stack": left,
        "modules": yaml.safe_load(run(MODULES, ["git", "show", f"{commit}:{MODULES}"]))["modules"],
        "files": {
            str(path.relative_to(home)): {"sha256": digest.of_file(path), "bytes": path.stat().st_size}
            for path in files
        },
    }
    (home / "manifest.json").write_text(json.dumps(body, indent=1) + "\n")


def write_tar(home: Path, path: Path, time_s: int) -> None:
    """The folder as a tar that says nothing of who made it, put in place at once."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = time_s
        member.mode = 0o755 if member.isdir() or member.name.endswith("/install") else 0o644
        return member

    part = path.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        tar.add(home, home.name, filter=plain)
    part.replace(path)


def bundle(wanted: Asked) -> Path:
    """Make the tar and say what it is."""
    commit = commit_of(wanted)
    what = "pure Python only" if wanted.from_stack else f"for Python {wanted.python} on {wanted.arch}"
    print(f"carrying {commit[:8]} and wheels {what} …", file=sys.stderr, flush=True)
    place = paths.build() / "bundle"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=".making-") as name:
        scratch = Path(name)
        home = scratch / f"kassay-{commit[:8]}"
        (home / "wheels").mkdir(parents=True)
        carry_commit(commit, home / "kassay.git")
        left = carry_wheels(commit, wanted, home / "wheels", scratch)
        for kind, there in ((".sh", "install"), (".py", "install.py")):
            shutil.copyfile(Path(__file__).with_name(f"bundle-install{kind}"), home / there)
        write_manifest(home, commit, wanted, left)
        path = place / f"{home.name}.tar"
        count = len(list((home / "wheels").iterdir()))
        write_tar(home, path, int(run("the commit's time", ["git", "show", "-s", "--format=%ct", commit])))
    print(f"{count} wheels, {path.stat().st_size / 1e6:.0f} MB, sha256 {digest.of_file(path)}", file=sys.stderr)
    if left:
        print(f"of the stack's environment there: {', '.join(left)}; uv must be on PATH", file=sys.stderr)
    print(f"there: tar xf {path.name} && {path.stem}/install", file=sys.stderr)
    return path


if __name__ == "__main__":
    try:
        print(os.path.relpath(bundle(asked(dict(os.environ)))))
    except KassayError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from None
