"""Install kassay from the bundle that this file lies in; `install` starts it with the stack's interpreter, isolated.

    install.py [--check] [STACK_PYTHON=<python>] [TO=<folder>]

First every file is held to its sha256 in manifest.json and the host is asked what it has; nothing is written before
both are right. Then come the clone (TO) and its .venv: of the carried wheels alone or, where compiled packages were
left to the stack's environment, with a stack.pth that names the folders of that environment. pip runs from its wheel:
neither it nor ensurepip need be there. The clone is renamed and .venv stamped last, so a second call ends what a first
began. The last line on standard output is the next command. The standard library only.
"""

import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
MANIFEST, WHEELS, COMMIT = HERE / "manifest.json", HERE / "wheels", HERE / "kassay.git"
USAGE = f"{HERE / 'install'} [--check] [STACK_PYTHON=<python>] [TO=<folder>]"
ELSEWHERE = f"{HERE / 'install'} TO=<folder>"
AGAIN = "carry the bundle again and unpack it into an empty folder"
ANOTHER = "another STACK_PYTHON=, or another bundle: make bundle HOST_PYTHON=… HOST_ARCH=…, without FROM_STACK"
MARK, READY = ".from-bundle", ".ready"  # ours, and the stamp that the Makefile asks for
IMPORTS = "import kassay.cli, kconfiglib, hydra, git, matplotlib, numpy, psutil, scipy.stats"
# What a caller may have set for git, pip or Python is not for us: no index is ever asked.
BENDING = ("GIT_", "PIP_", "PYTHON", "UV_", "VIRTUAL_ENV")
PATIENCE_S = 20  # for nvidia-smi
LOG_LINES = 8


class Fact(NamedTuple):
    """One thing that this host has or lacks."""

    name: str
    told: str  # what was found, or why it is none
    there: bool
    needed: bool = True  # by the framework; otherwise by stages only


def fail(*messages, hint):
    """One message and exit 2."""
    sys.exit(print("error: " + "\n".join(messages) + f"\nhint: {hint}", file=sys.stderr) or 2)


def say(text):
    """Talk, which is no data."""
    print(text, file=sys.stderr, flush=True)


def called(argv):
    """Run a command with nothing of the caller's settings and no index."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(BENDING)}
    kept |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    return subprocess.run([str(word) for word in argv], env=kept, capture_output=True, text=True, check=False)


def call(what, argv, hint):
    """A command's output; on failure what it said last, and the end."""
    done = called(argv)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-LOG_LINES:]
        fail(f"{what}: `{argv[0]}` ended with {done.returncode}:", *said, hint=hint)
    return done.stdout.strip()


def words(argv):
    """Whether to check only, and where the clone goes; `install` has read STACK_PYTHON."""
    check, to = False, "kassay"
    for word in argv:
        name, _, text = word.partition("=")
        if word == "--check":
            check = True
        elif name == "TO" and text:
            to = text
        elif not (name == "STACK_PYTHON" and text):
            fail(f"`{word}` is not known", hint=USAGE)
    return check, Path(to).absolute()


def verified():
    """The manifest, after every carried file was found to be what it says."""
    try:
        manifest = json.loads(MANIFEST.read_bytes())
        carried = manifest["files"]
    except (OSError, ValueError, KeyError) as error:
        fail(f"{MANIFEST} cannot be read: {error}", hint=AGAIN)
    wrong = []
    for name, facts in carried.items():
        path = HERE / name
        if not path.is_file():
            wrong.append(f"  {name} is not there")
        elif (found := hashlib.sha256(path.read_bytes()).hexdigest()) != facts["sha256"]:
            size = f"{path.stat().st_size} bytes of {facts['bytes']}"
            wrong.append(f"  {name} has sha256 {found[:16]}…, not {facts['sha256'][:16]}… ({size})")
    there = [str(path.relative_to(HERE)) for part in (WHEELS, COMMIT) for path in part.rglob("*") if not path.is_dir()]
    wrong += [f"  {name} was not carried" for name in sorted(there) if name not in carried]
    if wrong:
        fail(f"{HERE} is not what was bundled:", *wrong, hint=AGAIN)
    return manifest


def host_facts(manifest):
    """What this host has and lacks of what the bundle and the first command need."""
    left = manifest["from_stack"]
    yield fact_of_python(manifest)
    for tool in ("git", "make"):
        found = shutil.which(tool)
        yield Fact(tool, found or "not on PATH", bool(found))
    found = shutil.which("uv") if "uv" in left else "carried"
    yield Fact("uv", found or "not on PATH; FROM_STACK=1 left it out", bool(found))
    for name in left:
        if name != "uv":
            found = version(name)
            yield Fact(name, found or "not in this Python's environment; FROM_STACK=1 left it out", bool(found))
    for name in manifest["modules"]:
        if name not in left:
            found = util.find_spec(name) is not None
            told = (version(name) or "there") if found else "not in this Python's environment"
            yield Fact(name, told, found, needed=False)
    yield fact_of_driver()


def fact_of_python(manifest):
    """Whether this interpreter takes the carried wheels; those of pure Python fit all."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = f"{platform.python_version()}, {sys.executable}"
    wanted = manifest["wheels"]
    if wanted is None:
        return Fact("python", told, True)
    libc, number = platform.libc_ver()
    if (own, platform.machine()) != (wanted["python"], wanted["arch"]):
        told += f" on {platform.machine()}; the wheels are for {wanted['python']} on {wanted['arch']}"
        return Fact("python", told, False)
    if libc != "glibc" or [int(part) for part in number.split(".")[:2]] < wanted["glibc"]:
        least = ".".join(map(str, wanted["glibc"]))
        return Fact("python", f"{told} with {libc or 'no glibc'} {number}; the wheels need glibc {least}", False)
    return Fact("python", told, True)


def fact_of_driver():
    """What nvidia-smi says of the first GPU."""
    argv = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if not shutil.which(argv[0]):
        return Fact("nvidia driver", "nvidia-smi is not on PATH", False, needed=False)
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return Fact("nvidia driver", f"nvidia-smi said nothing in {PATIENCE_S} s", False, needed=False)
    said = (done.stdout + done.stderr).strip().splitlines()
    return Fact("nvidia driver", said[0] if said else "nvidia-smi said nothing", done.returncode == 0, needed=False)


def version(name):
    """The version of a distribution of this interpreter's environment, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def require(facts):
    """The end if the host lacks what the framework needs; what only stages need is told."""
    lacking = [f"  {fact.name}: {fact.told}" for fact in facts if fact.needed and not fact.there]
    if lacking:
        fail("this host lacks what kassay itself needs:", *lacking, hint=ANOTHER)
    if later := [fact.name for fact in facts if not fact.there]:
        say(f"stages that need it will lack: {', '.join(later)} (install --check says more)")


def clone(to, commit):
    """The commit as a clone of the user's own, in place at once."""
    if to.exists():
        head = called(["git", "-C", to, "rev-parse", "HEAD"]).stdout.strip() if (to / ".git").exists() else "no clone"
        if head != commit:
            fail(f"{to} is there ({head or 'no commit'}) and left as it is; the bundle has {commit}", hint=ELSEWHERE)
        return
    part = to.with_name(f".{to.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    shutil.copytree(COMMIT, part / ".git")
    call("the clone", ["git", "-C", part, "reset", "-q", "--hard", commit], ELSEWHERE)
    part.rename(to)
    say(f"commit {commit[:8]} in {to}")


def environment(venv, left):
    """.venv of the clone as make accepts it: what is in it was carried, or is named in stack.pth."""
    made_of = json.dumps([sys.executable, hashlib.sha256(MANIFEST.read_bytes()).hexdigest()])
    mark, ready, python = venv / MARK, venv / READY, venv / "bin" / "python"
    if venv.exists() and not mark.exists():
        hint = f"rm -r {shlex.quote(str(venv))}, or {ELSEWHERE}"
        fail(f"{venv} was not made by this command; it is left as it is", hint=hint)
    if ready.exists() and mark.read_text() == made_of and called([python, "-I", "-c", IMPORTS]).returncode == 0:
        return ready.touch()
    say(f"filling {venv} …")
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    mark.write_text(made_of)
    call("the environment", [sys.executable, "-m", "venv", "--without-pip", venv], ANOTHER)
    carried = next(WHEELS.glob("pip-*.whl")) / "pip"
    pip = [python, carried, "--disable-pip-version-check", "--no-cache-dir", "install", "-q", "--find-links", WHEELS]
    # Ahead of stack.pth: the stack's environment may have a kconfiglib, and make looks for one in .venv itself.
    call("kassay", [*pip, "--no-deps", "kconfiglib", "-e", venv.parent], ANOTHER)
    if left:
        where = call("site-packages", [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], ANOTHER)
        (Path(where) / "stack.pth").write_text("".join(f"{folder}\n" for folder in folders_of_stack()))
    call("wheels", [*pip, "kassay", *([] if "uv" in left else ["uv"])], ANOTHER)
    call("the environment", [python, "-I", "-c", IMPORTS], ANOTHER)
    return ready.touch()


def folders_of_stack():
    """What this environment adds to the standard library: its site-packages and what .pth files there name."""
    bare = [sys.executable, "-I", "-S", "-c", "import sys; print(*sys.path, sep='\\n')"]
    library = call("the standard library", bare, ANOTHER).splitlines()
    return [folder for folder in sys.path if folder not in library and os.path.isdir(folder)]


def main():
    """Check; then, unless no more was asked for, clone and fill."""
    only_check, to = words(sys.argv[1:])
    manifest = verified()
    facts = list(host_facts(manifest))
    if os.environ.get("PYTHONPATH"):
        say("PYTHONPATH is set, and no stage sees it: its folders belong into a .pth of a venv (docs/running.md)")
    if only_check:
        for fact in facts:
            print(f"{fact.name:16} {'ok' if fact.there else 'lacks':5}  {fact.told}")
        return 2 if any(fact.needed and not fact.there for fact in facts) else 0
    require(facts)
    clone(to, manifest["commit"])
    environment(to / ".venv", manifest["from_stack"])
    stack = shlex.quote(sys.executable)
    print(f"cd {shlex.quote(str(to))} && make STACK_PYTHON={stack} defconfig-native-smoke && make")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except OSError as error:
        fail(f"{error.filename or HERE}: {error.strerror}", hint=ELSEWHERE)
