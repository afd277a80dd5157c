"""Miniature packages for tests: wheels written by hand, and forks in real git repositories, with a C extension each."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from kassay.source import environment
from tests.source.gitrepo import commit, git

# A build backend of the source's own: it needs nothing but a C compiler, and compiles git's own answer in.
BACKEND = """
import base64, hashlib, os, subprocess, sysconfig, zipfile
from pathlib import Path
NAME, VERSION, REQUIRES, HOLD = {name!r}, {version!r}, {requires!r}, Path({hold!r})

def build_wheel(folder, config_settings=None, metadata_directory=None):
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    Path("left-behind").write_text("a build writes into its tree")
    if HOLD.exists():
        (HOLD / "building").touch()
        import time
        while HOLD.exists():
            time.sleep(0.01)
    out = Path("build_" + NAME); out.mkdir(exist_ok=True)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    include = "-I" + sysconfig.get_paths()["include"]
    flags = ["-DCOMMIT=" + chr(34) + commit + chr(34), "-O0", "-shared", "-fPIC", include]
    target = out / ("_C" + suffix)
    if not target.exists():  # as make does: what is there is not built again
        subprocess.run(["cc", *flags, "native.c", "-o", str(target)], check=True)
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    needs = "".join(f"Requires-Dist: {{one}}\\n" for one in REQUIRES)
    files = {{
        f"{{NAME}}/__init__.py": Path(NAME, "__init__.py").read_bytes(),
        f"{{NAME}}/_C{{suffix}}": target.read_bytes(),
        f"{{info}}/METADATA": f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n{{needs}}".encode(),
        f"{{info}}/WHEEL": b"Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{{info}}/entry_points.txt": f"[console_scripts]\\n{{NAME}}-serve = {{NAME}}:rev\\n".encode(),
        f"{{NAME}}-{{VERSION}}.data/scripts/{{NAME}}-bench": b"#!python\\nprint(1)\\n",
    }}
    def line(name, data):
        told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{{name}},sha256={{told}},{{len(data)}}\\n"
    record = "".join(line(name, data) for name, data in files.items()) + f"{{info}}/RECORD,,\\n"
    wheel = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w") as made:
        for name, data in {{**files, f"{{info}}/RECORD": record.encode()}}.items():
            made.writestr(name, data)
    return wheel
"""
NATIVE = """
#include <Python.h>
static PyObject *rev(PyObject *m, PyObject *a) {{ return PyLong_FromLong({rev}); }}
static PyObject *commit(PyObject *m, PyObject *a) {{ return PyUnicode_FromString(COMMIT); }}
static PyMethodDef methods[] = {{{{"rev", rev, METH_NOARGS, 0}}, {{"commit", commit, METH_NOARGS, 0}}, {{0}}}};
static struct PyModuleDef it = {{PyModuleDef_HEAD_INIT, "_C", 0, -1, methods}};
PyMODINIT_FUNC PyInit__C(void) {{ return PyModule_Create(&it); }}
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'

INDEX = "wheels of the index"


def index(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A folder with two releases of a package, and uv told to look nowhere else."""
    found = folder / INDEX
    found.mkdir(parents=True)
    write_wheel(found, "fakeinfer", "0.0.1", "first release")
    write_wheel(found, "fakeinfer", "0.0.2", "pypi")
    patch.setenv("UV_FIND_LINKS", str(found))
    patch.setenv("UV_NO_INDEX", "1")
    patch.setenv("UV_OFFLINE", "1")
    patch.setenv("UV_CACHE_DIR", str(folder / "cache"))
    return found


class Fork:
    """A repository of one miniature package, and checkouts of its commits as freeze leaves them."""

    def __init__(self, folder: Path, name: str, version: str, requires: list[str]) -> None:
        self.name, self.folder = name, folder
        self.repository = folder / f"{name}.git-work"
        self.hold = folder / f"{name}.hold"  # while this folder exists, a build does not go on
        values = {"name": name, "version": version, "requires": requires, "hold": str(self.hold)}
        self.files = {
            "backend.py": BACKEND.format(**values),
            "pyproject.toml": PYPROJECT,
            f"{name}/__init__.py": f"from {name}._C import commit, rev\nWHO = 'fork'\n",
        }

    def commit(self, rev: int) -> dict[str, Any]:
        """A commit whose extension answers `rev`, as pins.json has it."""
        made = commit(self.repository, {**self.files, "native.c": NATIVE.format(rev=rev)}, f"r{rev}")
        path = self.folder / "sources" / f"{self.name}-{made[:12]}"
        git(self.folder, "clone", "-q", "--no-hardlinks", str(self.repository), str(path))
        tree = git(path, "rev-parse", "HEAD^{tree}")
        facts = {"commit": made, "tree": tree, "path": str(path), "distribution": self.name}
        return {**facts, "module": self.name, "version": None}


def pins_of(*sources: dict[str, Any], order: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """pins.json of a stack of such sources."""
    named = {source["distribution"]: source for source in sources}
    return {"requirements": [], "modules": [], "sources": named, "install": order or list(named), **more}


def made(pins: dict[str, Any], build: Path) -> dict[str, Any]:
    """The stack of these pins."""
    stack, _ = environment.made(pins, build / "stacks", build / "log")
    return stack


def write_wheel(
    folder: Path, name: str, version: str, who: str, requires: tuple[str, ...] = (), extras: tuple[str, ...] = ()
) -> Path:
    """A pure wheel, written by hand: no network, no build."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    needs += "".join(f"Provides-Extra: {one}\n" for one in extras)
    texts = {
        f"{name}.py": f"WHO = {who!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return pack(
        folder / f"{name}-{version}-py3-none-any.whl", info, {key: text.encode() for key, text in texts.items()}
    )


def wheel_of_installed(folder: Path, name: str) -> Path:
    """The wheel of a package that the tests' own environment holds."""
    one = distribution(name)
    kept = [file for file in one.files or [] if ".." not in file.parts and file.suffix != ".pyc"]
    added = ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD")
    files = {str(file): file.read_binary() for file in kept if file.name not in added}
    return pack(folder / f"{name}-{one.version}-py3-none-any.whl", f"{name}-{one.version}.dist-info", files)


def pack(path: Path, info: str, files: dict[str, bytes]) -> Path:
    """A wheel of these files, with its RECORD."""
    record = "".join(f"{name},sha256={encoded(data)},{len(data)}\n" for name, data in files.items())
    with zipfile.ZipFile(path, "w") as made:
        for name, data in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            made.writestr(name, data)
    return path


def encoded(data: bytes) -> str:
    """SHA-256 as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def asked(python: str, expression: str) -> str:
    """What a stack's interpreter answers, in a fresh process that takes nothing of ours."""
    argv = [python, "-I", "-c", f"import importlib\nprint({expression})"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def answer(python: str, module: str) -> tuple[str, int]:
    """What the C extension of a fork says of itself: commit and revision."""
    module_of = f"importlib.import_module({module!r})"
    commit_id, rev = asked(python, f"{module_of}.commit(), {module_of}.rev()").split()
    return commit_id, int(rev)


def run_killed(script: str, *words: str, cwd: Path) -> int:
    """The exit code of a Python process that runs `script` with kassay importable."""
    top = Path(__file__).resolve().parents[2]
    argv = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(top)!r})\n{script}", *words]
    return subprocess.run(argv, cwd=cwd, check=False, capture_output=True).returncode
