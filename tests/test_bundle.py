"""`make bundle` and its `install`: what is carried is enough where there is no network, and nothing else is taken.

The wheels are those of tests/wheels.py: a bundle with compiled ones is for another machine and refused here, and one
made with FROM_STACK=1 runs here, on a stack environment that has the compiled packages and nothing else.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from kassay import paths
from tests.test_tutorial import clone, environment
from tests.wheels import ARCH, installed, is_pure, write_tools, write_wheel

NOBODY = "http://127.0.0.1:9"  # a proxy that is not there: whoever asks a network fails


class Place:
    """A tree with wheels around it, the bundles that it made, and a host."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tools = root / "tools"
        self.tools.mkdir()
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
        (self.tools / "uv").symlink_to(uv)
        self.tree = clone(root / "tree")
        shutil.copytree(paths.ROOT / "data" / "models", self.tree / "data" / "models")
        there = installed()
        (root / "index").mkdir()
        for dist in there.values():
            write_wheel(dist, root / "index")
        pins = [f"{name}=={dist.version}" for name, dist in sorted(there.items())] + write_tools(root / "index")
        (self.tree / "constraints.txt").write_text("\n".join(pins) + "\n")
        self.around = environment(root) | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(root / "index")}
        self.around |= {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(root / "uv"), "UV_FIND_LINKS": str(root / "index")}
        self.around |= {"http_proxy": NOBODY, "https_proxy": NOBODY, "PATH": f"{self.tools}:{os.environ['PATH']}"}
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "commit", "-qm", "all")
        self.stack = self.stack_of({name: dist for name, dist in there.items() if not is_pure(dist)})

    def git(self, *words: str) -> str:
        """git in the tree."""
        argv = ["git", "-C", str(self.tree), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    def stack_of(self, compiled: dict[str, metadata.Distribution]) -> Path:
        """The interpreter of a venv that a .pth gives the compiled packages, as a carried vLLM would be given."""
        packages = self.root / "packages"
        packages.mkdir()
        for dist in compiled.values():
            for top in {file.parts[0] for file in dist.files or [] if ".." not in file.parts}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(str(dist.locate_file(top)))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.root / "stack"], check=True)
        site = next((self.root / "stack").glob("lib/python3*/site-packages"))
        (site / "compiled.pth").write_text(f"{packages}\n")
        return self.root / "stack" / "bin" / "python"

    def bundle(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`make bundle` for another machine."""
        argv = ["make", "bundle", "HOST_PYTHON=3.12", f"HOST_ARCH={ARCH}", *words]
        return subprocess.run(argv, cwd=self.tree, env=self.around, capture_output=True, text=True, check=False)

    def unpacked(self, tar: Path, where: Path) -> Path:
        """The folder of a bundle."""
        where.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "xf", tar], cwd=where, check=True)
        return next(where.glob("kassay-*"))

    def there(self, argv: list[str | Path], cwd: Path, uv: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of the host: nothing of this environment, no index, no network."""
        variables = {"PATH": f"{self.tools}:/usr/bin:/bin" if uv else "/usr/bin:/bin", "HOME": str(self.root)}
        variables |= {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "http_proxy": NOBODY, "https_proxy": NOBODY}
        return subprocess.run(argv, cwd=cwd, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A tree that bundles can be made of."""
    return Place(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def small(place: Place) -> Path:
    """A tar with pure wheels only, of a tree whose changes stayed where they were."""
    (place.tree / "README.md").write_text("draft\n")
    (place.tree / "thesis.tex").write_text("ten years\n")
    refused = place.bundle("FROM_STACK=1")
    assert refused.returncode == 2 and not list(place.tree.glob("build/bundle/*.tar"))
    for line in ("the tree has changes", " M README.md", "?? thesis.tex", "hint: ", "make bundle COMMIT=HEAD"):
        assert line in refused.stderr
    done = place.bundle("FROM_STACK=1", "COMMIT=HEAD")
    assert done.returncode == 0, done.stderr
    place.git("checkout", "-q", "README.md")
    (place.tree / "thesis.tex").unlink()
    tar = place.root / "small.tar"
    (place.tree / done.stdout.splitlines()[-1]).rename(tar)
    return tar


def test_the_carried_things_alone_run(place: Place, small: Path, tmp_path: Path) -> None:
    home = place.unpacked(small, tmp_path)
    commit = place.git("rev-parse", "HEAD").strip()
    # What a killed install may leave: a clone that has no name yet, and an environment without its stamp.
    (tmp_path / ".kassay.part").mkdir()
    shutil.copytree(home / "kassay.git", tmp_path / "kassay" / ".git")
    subprocess.run(["git", "-C", tmp_path / "kassay", "reset", "-q", "--hard"], check=True)
    (tmp_path / "kassay" / ".venv" / "stray").mkdir(parents=True)
    (tmp_path / "kassay" / ".venv" / ".from-bundle").write_text("torn")
    done = place.there([home / "install", f"STACK_PYTHON={place.stack}"], tmp_path)
    assert done.returncode == 0, done.stderr
    tree = tmp_path / "kassay"
    command = f"cd {tree} && make STACK_PYTHON={place.stack} defconfig-native-smoke && make\n"
    assert done.stdout == command and "stages that need it will lack: torch, triton" in done.stderr
    assert not (tree / ".venv" / "stray").exists()
    told = place.there(["git", "status", "--porcelain"], tree).stdout
    assert told == "" and place.there(["git", "rev-parse", "HEAD"], tree).stdout.strip() == commit
    assert (tree / "README.md").read_text() != "draft\n" and not (tree / "thesis.tex").exists()
    python = tree / ".venv" / "bin" / "python"
    script = "for name in 'kassay hydra git rich cycler numpy'.split(): print(__import__(name).__file__)"
    files = place.there([python, "-c", script], tree).stdout.split()
    assert files[0].startswith(f"{tree}/kassay/") and all(file.startswith(f"{tree}/.venv/") for file in files[1:5])
    assert files[5].startswith(f"{place.root}/packages/")
    shown = place.there([tree / ".venv" / "bin" / "kassay", "--help"], tmp_path)
    assert shown.returncode == 0 and "evidence-grade" in shown.stdout
    shown = place.there(["make", "defconfig-probes-cpu", f"STACK_PYTHON={place.stack}"], tree)
    assert (shown.returncode, shown.stderr) == (0, ".config written: probes-cpu\n"), (
        "make takes the environment as it is"
    )
    shown = place.there(["make", "plan"], tree)
    assert shown.returncode == 0 and "profile probes-cpu, workflow probe" in shown.stdout, shown.stderr
    before = {path: path.stat().st_mtime_ns for path in (tree / ".venv").rglob("*") if path.name != ".ready"}
    again = place.there([home / "install", f"STACK_PYTHON={place.stack}"], tmp_path)
    assert again.returncode == 0 and again.stdout == command and "filling" not in again.stderr
    assert before == {path: path.stat().st_mtime_ns for path in (tree / ".venv").rglob("*") if path.name != ".ready"}


def test_nothing_of_this_machine_is_carried(place: Place, small: Path, tmp_path: Path) -> None:
    home = place.unpacked(small, tmp_path)
    files = [path for path in home.rglob("*") if path.is_file()]
    assert not [path for path in files if str(place.root).encode() in path.read_bytes()]
    with tarfile.open(small) as tar:
        assert {(member.uid, member.uname, member.mode & 0o022) for member in tar} == {(0, "", 0)}
    said = json.loads((home / "manifest.json").read_text())
    carried = {str(path.relative_to(home)) for path in files}
    assert carried == {*said["files"], "manifest.json"} and said["wheels"] is None
    compiled = {name for name, dist in installed().items() if not is_pure(dist)}
    assert set(said["from_stack"]) == compiled | {"uv"} and {"numpy", "scipy"} <= compiled


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("changed", "has sha256 "),
        ("gone", "is not there"),
        ("planted", "wheels/hydra_core-99-py3-none-any.whl was not carried"),
        ("pack", "has sha256 "),
        ("install", "install has sha256 "),
    ],
)
def test_what_is_not_what_was_bundled_is_refused(
    place: Place, small: Path, tmp_path: Path, damage: str, said: str
) -> None:
    home = place.unpacked(small, tmp_path)
    wheel = next((home / "wheels").glob("hydra_core-*"))
    changed = {"changed": wheel, "pack": next(home.glob("kassay.git/objects/pack/*.pack")), "install": home / "install"}
    if damage == "gone":
        wheel.unlink()
    elif damage == "planted":
        shutil.copy(wheel, wheel.with_name("hydra_core-99-py3-none-any.whl"))
    else:
        file = changed[damage]
        file.chmod(0o755)
        file.write_bytes(file.read_bytes()[:-1] + b"\n#"[: 1 + (damage == "install")])
    done = place.there([home / "install", f"STACK_PYTHON={place.stack}"], tmp_path)
    assert done.returncode == 2 and said in done.stderr and "hint: carry the bundle again" in done.stderr
    assert done.stdout == "" and [path.name for path in tmp_path.iterdir()] == [home.name], "nothing was written"


def test_what_the_host_lacks_is_told_at_once_and_nothing_written(place: Place, small: Path, tmp_path: Path) -> None:
    home = place.unpacked(small, tmp_path)
    bare = f"STACK_PYTHON={sys._base_executable}"  # type: ignore[attr-defined]
    shown = place.there([home / "install", "--check", f"STACK_PYTHON={place.stack}"], tmp_path)
    states = {line[:16].strip(): line[17:22].strip() for line in shown.stdout.splitlines()}
    assert shown.returncode == 0 and states["numpy"] == states["uv"] == states["git"] == "ok", shown.stderr
    assert states["torch"] == states["triton"] == "lacks"
    shown = place.there([home / "install", "--check", f"STACK_PYTHON={place.stack}"], tmp_path, uv=False)
    if not shutil.which("uv", path="/usr/bin:/bin"):
        assert shown.returncode == 2 and "uv               lacks  not on PATH" in shown.stdout
    done = place.there([home / "install", bare], tmp_path)
    lacks = [name for name in ("numpy", "scipy", "matplotlib") if not has(name)]
    if lacks:
        assert done.returncode == 2 and all(f"  {name}: not in this" in done.stderr for name in lacks), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [home.name] or not lacks


def has(name: str) -> bool:
    """Whether the interpreter that the tests' environment was made with has a package."""
    argv = [sys._base_executable, "-I", "-c", f"import {name}"]  # type: ignore[attr-defined]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_what_is_in_the_way_is_left_as_it_is(place: Place, small: Path, tmp_path: Path) -> None:
    home = place.unpacked(small, tmp_path / "a")
    words: list[str | Path] = [home / "install", f"STACK_PYTHON={place.stack}"]
    (tmp_path / "kassay").mkdir()
    (tmp_path / "kassay" / "notes").write_text("mine\n")
    done = place.there(words, tmp_path)
    assert done.returncode == 2 and "(no clone) and left as it is" in done.stderr and "TO=<folder>" in done.stderr
    assert [path.name for path in (tmp_path / "kassay").iterdir()] == ["notes"]
    shutil.copytree(home / "kassay.git", tmp_path / "mine" / ".git")
    subprocess.run(["git", "-C", tmp_path / "mine", "reset", "-q", "--hard"], check=True)
    (tmp_path / "mine" / ".venv").mkdir()
    (tmp_path / "mine" / ".venv" / "notes").write_text("mine\n")
    done = place.there([*words, f"TO={tmp_path / 'mine'}"], tmp_path)
    assert done.returncode == 2 and "was not made by this command; it is left as it is" in done.stderr
    assert [path.name for path in (tmp_path / "mine" / ".venv").iterdir()] == ["notes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["TO="], "error: `TO=` is not known\nhint: "),
        (["--chek"], "error: `--chek` is not known\nhint: "),
        (["STACK_PYTHON=/nowhere/python"], "error: `/nowhere/python` is no program of this host"),
        (["STACK_PYTHON=old"], " is Python 2.7.18, kassay needs Python 3.11 or newer\nhint: "),
    ],
)
def test_a_wrong_word_of_install(place: Place, small: Path, tmp_path: Path, words: list[str], said: str) -> None:
    home = place.unpacked(small, tmp_path)
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\n[ $1 != -c ] && echo Python 2.7.18\n")
    old.chmod(0o755)
    words = [word.replace("=old", f"={old}") for word in words]
    stack = [] if words[0].startswith("STACK_PYTHON") else [f"STACK_PYTHON={place.stack}"]
    done = place.there([home / "install", *stack, *words], tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stdout == "", done.stderr


def test_compiled_wheels_are_for_one_kind_of_host(place: Place, tmp_path: Path) -> None:
    done = place.bundle("COMMIT=HEAD")
    assert done.returncode == 0, done.stderr
    home = place.unpacked(place.tree / done.stdout.splitlines()[-1], tmp_path)
    said = json.loads((home / "manifest.json").read_text())
    assert said["wheels"] == {"python": "3.12", "arch": ARCH, "glibc": [2, 28]} and said["from_stack"] == []
    names = [path.name for path in (home / "wheels").iterdir()]
    assert len(names) == len(installed()) + 2 and any(name.startswith("numpy-") for name in names)
    done = place.there([home / "install", f"STACK_PYTHON={place.stack}"], tmp_path)
    assert done.returncode == 2 and f"the wheels are for 3.12 on {ARCH}" in done.stderr
    assert "hint: another STACK_PYTHON=, or another bundle: make bundle HOST_PYTHON=" in done.stderr


def test_wrong_words_of_make_bundle_are_told_together(place: Place) -> None:
    words = ["bundle", "HOST_PYTHON=3.9", "HOST_ARCH=vax", "FROM_STACK=yes"]
    done = subprocess.run(
        ["make", *words], cwd=place.tree, env=place.around, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    for line in ("HOST_PYTHON is `3.9`", "HOST_ARCH is `vax`", "FROM_STACK is `yes`", "hint: make bundle HOST_PYTHON="):
        assert line in done.stderr
    done = place.bundle("COMMIT=nowhere")
    assert done.returncode == 2 and "COMMIT: `git` ended with 128" in done.stderr


def test_an_index_without_a_wheel_is_told(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = shutil.copytree(place.root / "index", tmp_path / "index")
    next(index.glob("scipy-*")).unlink()
    other = {"PIP_FIND_LINKS": str(index), "UV_FIND_LINKS": str(index), "UV_CACHE_DIR": str(tmp_path / "uv")}
    monkeypatch.setattr(place, "around", place.around | other)
    done = place.bundle("COMMIT=HEAD")
    assert done.returncode == 2 and "scipy" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert f"must have each for Python 3.12 on {ARCH}" in done.stderr
    assert not list((place.tree / "build" / "bundle").glob(".making-*"))
