"""docs/tutorials: every command is run in order, from an empty directory, and what the page shows is what comes out."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kassay import paths

TUTORIALS = sorted((paths.ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DONE = "-- block done --"


def clone(folder: Path) -> Path:
    """What a user has after `git clone`, without the shipped weights."""
    argv = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.startswith(("data/", "tests/")) and (paths.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(paths.ROOT / name, folder / name)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The framework environment that make finds already set up: the interpreter of the tests."""
    venv = folder / "venv"
    packages = venv / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    (venv / "bin").mkdir()
    (packages / "kconfiglib.py").touch()
    python = venv / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (venv / ".ready").touch()
    dropped = ("MAKE", "MFLAGS", "KASSAY", "SET")
    return {name: text for name, text in os.environ.items() if not name.startswith(dropped)} | {"VENV": str(venv)}


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_of_the_page_runs_and_shows_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    commands = [text for kind, text in blocks if kind == "sh"]
    script = "set -e\nexec 2>&1\n" + "".join(f"{text}\necho '{DONE}'\n" for text in commands)
    tree = clone(tmp_path / "kassay")
    done = subprocess.run(
        ["bash", "-c", script], cwd=tree, env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    said = done.stdout.split(DONE)
    number = -1
    checked = 0
    for kind, text in blocks:
        number += kind == "sh"
        for line in text.splitlines() if kind == "text" else []:
            assert line in said[number], f"{page.name}: `{line}` is not in:\n{said[number]}"
            checked += 1
    assert checked >= 10 and (tree / "results" / "latest" / "report.html").is_file()


def test_there_is_a_tutorial() -> None:
    assert [page.stem for page in TUTORIALS] == ["your-first-workflow"]
