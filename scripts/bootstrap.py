"""Make or repair an environment: `bootstrap.py <venv> [extra]`; the standard library only, any Python from 3.8 on.

uv fills it in seconds: the one on PATH, else one that pip installs into the venv. The stamp `.ready` is written last,
so a half-made environment is made again. A user's environment (one without our mark) is never cleared, nor that of
another tree, which our mark in it names.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST = (3, 11)
MARK = ".made-by-kassay"


def fail(message):
    """One message and exit 2."""
    sys.exit(print("error: " + message, file=sys.stderr) or 2)


def call(*argv):
    """Run a command quietly; on failure show what it said and stop."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        fail("`{}` failed:\n{}".format(" ".join(map(str, argv)), done.stdout.strip()))


def of_another_tree(venv):
    """The tree, still there, whose environment this is, where it is not ours; empty if there is none."""
    mark = venv / MARK
    owner = mark.read_text().strip() if mark.exists() else ""
    return owner if owner != str(ROOT) and (Path(owner or venv) / "scripts" / "bootstrap.py").exists() else ""


def make_empty(venv, uv):
    """Put an environment without packages in the place of ours, never in that of other things."""
    if venv.exists() and not (venv / MARK).exists() and any(venv.iterdir()):
        fail(f"{venv} holds other things than an environment; it is left as it is\nhint: name another VENV")
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir(parents=True)
    (venv / MARK).write_text(f"{ROOT}\n")
    made = [uv, "venv", "--allow-existing", "-q", "-p", sys.executable] if uv else [sys.executable, "-m", "venv"]
    call(*made, venv)


def main():
    """Create, fill, import, stamp."""
    if sys.version_info < LEAST:
        fail(
            "Python {}.{} is too old, kassay needs 3.11 or newer\nhint: make PYTHON=python3.11".format(
                *sys.version_info[:2]
            )
        )
    venv = Path(sys.argv[1]).absolute()
    extra = f"[{sys.argv[2]}]" if len(sys.argv) > 2 else ""
    print(f"setting up {os.path.relpath(venv)} …", file=sys.stderr, flush=True)
    python, uv = venv / "bin" / "python", shutil.which("uv")
    theirs = venv.exists() and not (venv / MARK).exists() and python.exists()
    try:
        if owner := of_another_tree(venv):
            fail(f"{venv} is the environment of {owner}; it is left as it is\nhint: name another VENV")
        if not theirs:
            make_empty(venv, uv)
        if not uv:
            pip = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
            call(*pip, "-c", ROOT / "constraints.txt", "uv")
            uv = venv / "bin" / "uv"
        call(uv, "pip", "install", "-q", "-p", python, "-c", ROOT / "constraints.txt", "-e", str(ROOT) + extra)
        call(python, "-c", "import kassay.cli, kconfiglib, hydra, git")
        (venv / ".ready").touch()
    except OSError as error:
        fail(f"{error.filename or venv}: {error.strerror}")


if __name__ == "__main__":
    main()
