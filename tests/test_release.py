"""What a release needs: a wheel that holds all of kassay, completion, hooks, a site without orphans, a changelog."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from kassay import __version__, cli, manual, paths
from scripts import check
from tests.commandline import kassay

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built once without network, as pip does it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(paths.ROOT / name, tree)
    shutil.copytree(paths.ROOT / "kassay", tree / "kassay", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", BUILD], cwd=tree, capture_output=True, text=True, check=True)
    return tree / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel puts into an environment."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def run(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed kassay, called from a folder."""
    environment = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-P", "-m", "kassay", *words]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_every_file_of_the_package_and_its_types(installed: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "kassay"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    lacking = [name for name in listed if (paths.ROOT / name).is_file() and not (installed / name).is_file()]
    assert not lacking and (installed / "kassay" / "py.typed").is_file()
    told = (installed / f"kassay-{__version__}.dist-info" / "entry_points.txt").read_text()
    assert "kassay = kassay.cli:main" in told


def test_an_installed_kassay_helps_anywhere_and_hands_over_to_a_clone(installed: Path, tmp_path: Path) -> None:
    for words in (["--help"], ["--version"], ["run", "--help"], ["completion", "fish"]):
        assert run(installed, tmp_path, *words).returncode == 0, words
    done = run(installed, tmp_path, "plan")
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            f"error: no project: neither {tmp_path} nor a folder above it holds Kconfig, workflows, stages",
            "hint: cd into a clone of kassay; this one is installed, and only hands over to that of a clone",
        ],
    )
    clone = tmp_path / "clone"
    for folder in ("workflows", "stages", ".venv/bin", "deep/down"):
        (clone / folder).mkdir(parents=True)
    (clone / "Kconfig").write_text("")
    done = run(installed, clone / "deep" / "down", "plan")
    assert done.returncode == 2 and done.stderr.splitlines()[-1] == f"hint: make -C {clone} setup"
    own = clone / ".venv" / "bin" / "kassay"
    own.write_text('#!/bin/sh\necho "$PWD" "$@"\nexit 3\n')
    own.chmod(0o755)
    done = run(installed, clone / "deep" / "down", "logs", "a b")
    assert (done.returncode, done.stdout) == (3, f"{clone / 'deep' / 'down'} logs a b\n")


def test_the_manual_has_every_verb_once() -> None:
    told = [verb for group in manual.GROUPS.values() for verb in group]
    assert sorted(told) == sorted(cli.VERBS)
    page = cli.parser().format_help()
    for title in ("Name", "Synopsis", "Description", "Exit status", "Files", "Environment", "Examples", "See also"):
        assert f"\n{title}:\n" in f"\n{page}"
    assert max(map(len, page.splitlines())) <= 100
    for verb in cli.VERBS:
        assert manual.as_make(verb), verb


COMPLETE = """
eval "$(kassay completion bash)"
COMP_LINE="kassay $1"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9
COMP_WORDS=(kassay $1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete kassay; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_completes(tmp_path: Path) -> None:
    script = tmp_path / "kassay"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kassay "$@"\n')
    script.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(paths.ROOT)}
    for typed, wanted in {
        "sta": ["status"],
        "defconfig decode-cpu+sm": ["decode-cpu+smoke"],
        "run NIGHTLY_D": ["NIGHTLY_DAYS="],
        "no-such-verb": [""],
    }.items():
        argv = ["bash", "-c", COMPLETE, "bash", typed]
        done = subprocess.run(argv, cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=False)
        assert [word.strip() for word in done.stdout.splitlines()] == wanted, (typed, done.stderr)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    done = kassay(paths.ROOT, "completion", shell)
    assert done.returncode == 0 and "kassay" in done.stdout and "_ARGCOMPLETE" in done.stdout
    assert kassay(paths.ROOT, "completion", "csh").stderr.startswith("error: shell `csh` is not known")


def test_the_hooks_are_steps_of_make_check() -> None:
    hooks = yaml.safe_load((paths.ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    tools = {Path(str(argv[0])).name for argv in check.STEPS.values()}
    for hook in hooks[0]["hooks"]:
        program = Path(hook["entry"].split()[0])
        assert (hook["language"], program.parent) == ("system", Path("build/check/bin")) and program.name in tools


def test_every_page_is_on_the_site() -> None:
    docs = paths.ROOT / "docs"
    text = (docs / "index.md").read_text()
    listed = set(re.findall(r"^([\w/-]+)$", text, re.MULTILINE)) | {"index"}
    pages = {str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")}
    orphans = {page for page in pages - listed if page.partition("/")[0] not in ("findings", "decisions")}
    assert not orphans, "docs/index.md lists the pages of the site"
    assert listed <= pages


def test_the_changelog_knows_this_version() -> None:
    text = (paths.ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert heads[0] == "Unreleased" and __version__ in heads
