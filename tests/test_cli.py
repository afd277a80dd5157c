"""The command line: whole-stderr goldens of likely mistakes, its speed, and what may import what."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kassay import paths

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the configuration layer reads."""
    import shutil

    for name in ("Kconfig", "Makefile"):
        shutil.copy(paths.ROOT / name, tmp_path)
    for name in ("kassay", "defconfigs", "workflows", "stages"):
        shutil.copytree(paths.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "data").symlink_to(paths.ROOT / "data")
    return tmp_path


def kassay(tree: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of a tree."""
    variables = {name: value for name, value in os.environ.items() if name not in ("KASSAY_VARIABLES", "SET")}
    return subprocess.run(
        [sys.executable, "-m", "kassay", *words],
        cwd=tree,
        env={**variables, "PYTHONPATH": str(tree), **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


MISTAKES: dict[str, tuple[list[list[str]], dict[str, str]]] = {
    "unknown-profile": ([["defconfig", "decode-cpy"]], {}),
    "unknown-fragment": ([["defconfig", "decode-cpu+smok"]], {}),
    "no-config": ([["run"]], {}),
    "typo-in-symbol": ([["defconfig", "decode-cpu"], ["plan", "TIMNG_BLOCKS=8"]], {}),
    "out-of-range": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=800"]], {}),
    "not-an-int": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=many"]], {}),
    "no-assignment": ([["defconfig", "decode-cpu", "TIMING_BLOCKS"]], {}),
    "misspelt-override": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study.alhpa=0.01"}),
    "unclosed-quote": ([["defconfig", "decode-cpu"], ["plan"]], {"SET": "study.name='x"}),
    "no-terminal": ([["defconfig", "decode-cpu"], ["menuconfig"]], {}),
    "no-such-run": ([["defconfig", "decode-cpu"], ["report", "yesterday"]], {}),
    "several-at-once": ([["defconfig", "decode-cpu", "TIMING_BLOCKS=0", "SWEEP_X=1"]], {}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_message(tree: Path, name: str) -> None:
    commands, environment = MISTAKES[name]
    for words in commands[:-1]:
        assert kassay(tree, *words).returncode == 0
    done = kassay(tree, *commands[-1], **environment)
    assert (done.returncode, done.stdout) == (2, "")
    golden = GOLDENS / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(done.stderr)
    assert done.stderr == golden.read_text()


def test_variables_of_make_travel_by_name(tree: Path) -> None:
    assert kassay(tree, "defconfig", "decode-cpu").returncode == 0
    awkward = 'a $HOME "q" #x \\'
    done = kassay(tree, "plan", KASSAY_VARIABLES="STACK_PYTHON VENV", STACK_PYTHON=awkward, VENV="x")
    assert done.returncode == 0, done.stderr
    assert 'CONFIG_STACK_PYTHON="a $HOME \\"q\\" #x \\\\"' in (tree / ".config").read_text()


def test_list_and_help(tree: Path) -> None:
    assert "decode-cpu\t" in kassay(tree, "listdefconfigs").stdout
    shown = kassay(tree, "help").stdout
    assert "make plan" in shown and "TIMING_BLOCKS" in shown


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "kassay", "--help"]
    times = []
    for _ in range(3):
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(time.monotonic() - started)
    loaded = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert not loaded & {"torch", "numpy", "hydra", "git", "rich", "kconfiglib", "scipy"}
    assert min(times) < 0.3


ALLOWED = {
    "kassay.stats": {"numpy", "scipy"},
    "kassay.kv.formats": {"numpy", "ml_dtypes"},
    "kassay.kv.oracle": {"numpy", "ml_dtypes"},
}
NO_TORCH = ["cli", "config", "plan", "engine", "run", "record", "report", "identity", "rundir", "stats", "host"]


def modules_below(name: str) -> list[Path]:
    """Files of a module or package."""
    path = paths.ROOT / name.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imported(path: Path) -> set[str]:
    """Dotted names that a file imports."""
    text = path.read_text()
    return set(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", NO_TORCH)
def test_the_framework_imports_no_torch(name: str) -> None:
    for path in modules_below(f"kassay.{name}"):
        assert not {top for top in imported(path) if top.split(".")[0] in ("torch", "transformers", "vllm")}, path


@pytest.mark.parametrize("name", ALLOWED)
def test_numeric_modules_import_only_their_own(name: str) -> None:
    for path in modules_below(name):
        tops = {top.split(".")[0] for top in imported(path)} - {"kassay"} - set(sys.stdlib_module_names)
        assert tops <= ALLOWED[name], path


def test_stages_import_the_library_never_each_other_or_the_orchestrator() -> None:
    forbidden = {"kassay.plan", "kassay.engine", "kassay.run", "kassay.cli", "stages"}
    for path in (paths.ROOT / "stages").glob("*.py"):
        names = imported(path)
        assert not {name for name in names if any(name == bad or name.startswith(bad + ".") for bad in forbidden)}, path
