"""Set-up by make: what is not ours is never cleared, what is half made or broken is made again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths

# A stand-in for uv: it makes the smallest thing that looks like an environment, and leaves a line about each call.
UV = """#!/bin/sh
echo "$@" >> "$UV_LOG"
if [ "$1" = venv ]; then for last; do :; done
    mkdir -p "$last/bin" "$last/lib/python3/site-packages"
    cp "$REAL_PYTHON" "$last/bin/python"
    touch "$last/lib/python3/site-packages/kconfiglib.py"
else exit ${UV_FAILS:-0}; fi
"""


class Tree:
    """A copy of what make needs, with a uv that does almost nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "uv.log"
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(paths.ROOT / name, root)
        shutil.copytree(paths.ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        (root / "tools").mkdir()
        self.python = root / "tools" / "python"  # a link to the tests' interpreter would lose its packages
        self.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)
        (root / "tools" / "uv").write_text(UV)
        (root / "tools" / "uv").chmod(0o755)

    def make(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`make setup …` under the interpreter of the tests."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "UV_"))
        }
        variables |= {"UV_LOG": str(self.log), "REAL_PYTHON": str(self.python), "PYTHONPATH": str(paths.ROOT)}
        variables["PATH"] = f"{self.root / 'tools'}{os.pathsep}{variables['PATH']}"
        return subprocess.run(
            ["make", "setup", f"PYTHON={sys.executable}", *words],
            cwd=self.root,
            env={**variables, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> int:
        """How often uv was called since the last time."""
        count = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        self.log.unlink(missing_ok=True)
        return count


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A fresh tree."""
    return Tree(tmp_path)


def test_it_is_made_once(tree: Tree) -> None:
    done = tree.make()
    assert done.returncode == 0, done.stderr
    assert done.stderr == "setting up .venv …\n" and tree.calls() == 2
    again = tree.make()
    assert (again.returncode, again.stderr, tree.calls()) == (0, "", 0)


@pytest.mark.parametrize("damage", ["no-stamp", "no-python", "dangling-python", "no-packages", "half-made", "empty"])
def test_what_is_broken_is_made_again(tree: Tree, damage: str) -> None:
    tree.make()
    tree.calls()
    venv = tree.root / ".venv"
    if damage == "no-stamp":
        (venv / ".ready").unlink()
    elif damage == "no-packages":
        shutil.rmtree(venv / "lib")
    elif damage in ("no-python", "dangling-python"):
        (venv / "bin" / "python").unlink()
        if damage == "dangling-python":
            (venv / "bin" / "python").symlink_to("/nowhere/python")
    else:
        shutil.rmtree(venv)
        venv.mkdir()
        if damage == "half-made":
            (venv / ".made-by-kassay").touch()
            (venv / "bin").mkdir()
    done = tree.make()
    assert done.returncode == 0, done.stderr
    assert tree.calls() == 2 and (venv / ".ready").is_file() and (venv / "bin" / "python").exists()
    assert tree.make().stderr == "" and tree.calls() == 0


def test_a_folder_with_other_things_is_left_as_it_is(tree: Tree) -> None:
    theirs = tree.root / "precious"
    (theirs / "bin").mkdir(parents=True)
    (theirs / "thesis.tex").write_text("ten years\n")
    done = tree.make("VENV=precious")
    assert done.returncode == 2 and "holds other things than an environment" in done.stderr
    assert [path.name for path in sorted(theirs.iterdir())] == ["bin", "thesis.tex"] and tree.calls() == 0
    (tree.root / "file").write_text("x")
    assert tree.make("VENV=file").returncode == 2 and (tree.root / "file").read_text() == "x"


def test_another_trees_environment_is_left_as_it_is(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Tree(tmp_path_factory.mktemp("other"))
    assert other.make().returncode == 0
    before = sorted(path.relative_to(other.root) for path in (other.root / ".venv").rglob("*"))
    (other.root / ".venv" / ".ready").unlink()
    done = tree.make(f"VENV={other.root / '.venv'}")
    assert done.returncode == 2 and f"is the environment of {other.root}; it is left as it is" in done.stderr
    (other.root / ".venv" / ".ready").touch()
    assert sorted(path.relative_to(other.root) for path in (other.root / ".venv").rglob("*")) == before
    shutil.rmtree(other.root / "scripts")  # a tree that is gone owns nothing
    (other.root / ".venv" / ".ready").unlink()
    assert tree.make(f"VENV={other.root / '.venv'}").returncode == 0


def test_a_users_environment_is_added_to_and_not_cleared(tree: Tree) -> None:
    theirs = tree.root / "mine"
    (theirs / "bin").mkdir(parents=True)
    shutil.copy(tree.python, theirs / "bin" / "python")
    (theirs / "lib" / "python3" / "site-packages").mkdir(parents=True)
    (theirs / "lib" / "python3" / "site-packages" / "kconfiglib.py").touch()
    (theirs / "notes").write_text("mine\n")
    done = tree.make("VENV=mine")
    assert done.returncode == 0, done.stderr
    assert (theirs / "notes").read_text() == "mine\n" and tree.calls() == 1


def test_what_uv_says_is_shown_and_the_next_make_tries_again(tree: Tree) -> None:
    done = tree.make(UV_FAILS="7")
    assert done.returncode == 2 and "pip install" in done.stderr and "failed" in done.stderr
    assert not (tree.root / ".venv" / ".ready").exists()
    assert tree.make().returncode == 0


def test_an_old_python_is_refused_by_name(tree: Tree) -> None:
    script = (
        "import sys; sys.version_info = (3, 9, 1); sys.argv = ['b', 'x']; exec(open('scripts/bootstrap.py').read())"
    )
    code = script.replace("exec(", "__file__ = 'scripts/bootstrap.py'; exec(")
    done = subprocess.run([sys.executable, "-c", code], cwd=tree.root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "error: Python 3.9 is too old, kassay needs 3.11 or newer\nhint: make PYTHON=python3.11\n",
    )
