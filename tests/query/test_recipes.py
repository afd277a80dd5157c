"""The recipes of docs/reading.md do what they say: each is carried out on a run, and answers."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

import kassay.read
from kassay import paths

PAGE = (paths.ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
FENCE = "`" * 3
MAY_BE_SILENT = ("nonfinite",)  # no news is the answer


def recipes(language: str) -> list[str]:
    """The blocks of one language."""
    return re.findall(rf"{FENCE}{language}\n(.*?){FENCE}", PAGE, re.DOTALL)


@pytest.fixture
def folder(judged_run: Path, tmp_path: Path) -> Path:
    """A working folder with results/latest."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / judged_run.name).symlink_to(judged_run)
    (tmp_path / "results" / "latest").symlink_to(judged_run)
    return tmp_path


def test_sql(judged_run: Path) -> None:
    assert len(recipes("sql")) == 4
    with kassay.read.runs(judged_run.parent) as found:
        assert all(list(found.sql(recipe).rows()) for recipe in recipes("sql"))


@pytest.mark.skipif(which("jq") is None, reason="jq is not installed")
def test_jq(folder: Path) -> None:
    assert len(recipes("bash")) == 4
    for recipe in recipes("bash"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", recipe], cwd=folder, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), recipe
        assert done.stdout or any(word in recipe for word in MAY_BE_SILENT), recipe


def test_python(judged_run: Path, tmp_path: Path) -> None:
    read, checked = recipes("python")
    (tmp_path / "latest").symlink_to(judged_run)
    program = read.replace('"results"', repr(str(judged_run.parent))) + "\nassert len(frame) == collected.height\n"
    program += "assert tokens > 1000\n" + checked.replace("results/latest", str(tmp_path / "latest"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=paths.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_view_that_is_gathered_is_on_the_page() -> None:
    from kassay.query.tables import COLUMNS
    from kassay.query.views import GATHERED, OTHERS, OWNED

    assert all(f"`{view}`" in PAGE for view in {*COLUMNS, *GATHERED, OTHERS} - {OWNED})
