"""Forks, built and installed: the imported code answers with the frozen commit, whatever the order, whatever died."""

import itertools
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from kassay import digest
from kassay.errors import SourceError
from kassay.source import environment, uv
from tests.source.fork import Fork, answer, asked, made, pins_of, wheel_of_installed, write_wheel
from tests.source.gitrepo import commit, git


def contents(checkout: str) -> str:
    """Digest of all files of a checkout, git's own included."""
    root = Path(checkout)
    return digest.of_files(root, [file for file in root.rglob("*") if file.is_file()])


@pytest.mark.parametrize("order", list(itertools.permutations(["fakeinfer", "fakellm"])), ids=" then ".join)
def test_the_code_is_the_frozen_commits_in_every_order_and_with_the_pin_moved_back(
    pair: tuple[Fork, Fork], tmp_path: Path, order: tuple[str, ...]
) -> None:
    """Cases O10 and O11 together: a rival release that a dependency asks for, and a pin that goes r1, r2, r1."""
    infer, llm = pair
    first, user = infer.commit(1), llm.commit(7)
    second = infer.commit(2)
    before = [contents(source["path"]) for source in (first, second, user)]
    stacks = [made(pins_of(one, user, order=list(order)), tmp_path) for one in (first, second, first)]
    for stack, source, rev in zip(stacks, (first, second, first), (1, 2, 1), strict=True):
        assert answer(stack["python"], "fakeinfer") == (source["commit"], rev)
        assert answer(stack["python"], "fakellm") == (user["commit"], 7)
        assert asked(stack["python"], "importlib.import_module('fakeinfer').WHO") == "fork"
        assert stack["sources"]["fakeinfer"]["commit"] == source["commit"]
        assert stack["lock"] == ["fakedep==1.0", "fakeinfer==0.0.1", "fakeinfer_cubin==0.0.2", "fakellm==1.0"]
    assert stacks[0] == stacks[2] and stacks[0]["key"] != stacks[1]["key"]
    # The disagreement is recorded, not hidden.
    assert stacks[0]["conflicts"] == [
        "The package `fakedep` requires `fakeinfer>=0.0.2`, but `0.0.1` is installed",
        "The package `fakellm` requires `fakeinfer==0.0.2`, but `0.0.1` is installed",
    ]
    assert stacks[0]["companions"] == ["`fakeinfer-cubin` is 0.0.2, `fakeinfer` is 0.0.1"]
    assert [contents(source["path"]) for source in (first, second, user)] == before, "the checkouts stay as they were"
    assert len(list((tmp_path / "wheels").glob("*/built.json"))) == 3, "the second fork was built once"


def test_the_order_of_builds_is_no_part_of_the_stack(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    infer, llm = pair[0].commit(1), pair[1].commit(1)
    one = made(pins_of(infer, llm, order=["fakeinfer", "fakellm"]), tmp_path)
    shutil.move(infer["path"], tmp_path / "elsewhere")
    moved = {**infer, "path": str(tmp_path / "elsewhere")}
    assert made(pins_of(moved, llm, order=["fakellm", "fakeinfer"]), tmp_path) == one


def test_a_pin_keeps_the_extras_that_are_asked_of_it(wheels: Path, tmp_path: Path) -> None:
    """uv's overrides alone drop them (0.13.9): `ray[cg]` would come without what `cg` needs, and no check tells."""
    for number in ("1.0", "2.0"):
        write_wheel(wheels, "ray", number, number, ("cgdep==1.0; extra == 'cg'", "no-such; extra == 'x'"), ("cg", "x"))
    write_wheel(wheels, "cgdep", "1.0", "needed by the extra")
    write_wheel(wheels, "between", "1.0", "a dependency", ("fakeinfer[ext]", "ray[x]; extra == 'never'"), ("never",))
    llm = Fork(tmp_path, "fakellm", "1.0", ["ray[cg]==2.0", "between"]).commit(1)
    infer = Fork(tmp_path, "fakeinfer", "0.0.1", ["extdep; extra == 'ext'"])
    write_wheel(wheels, "extdep", "1.0", "needed by the fork's extra")
    sha256 = digest.of_file(wheels / "ray-1.0-py3-none-any.whl")
    pins = pins_of(llm, infer.commit(1), requirements=[f"ray==1.0 --hash=sha256:{sha256}"], modules=["ray"])
    stack = made(pins, tmp_path)
    assert stack["lock"] == [
        "between==1.0",
        "cgdep==1.0",
        "extdep==1.0",
        "fakeinfer==0.0.1",
        "fakellm==1.0",
        "ray==1.0",
    ]
    assert stack["conflicts"] == ["The package `fakellm` requires `ray[cg]==2.0`, but `1.0` is installed"]


def test_what_uv_does_by_itself_loses_the_fork(wheels: Path, tmp_path: Path) -> None:
    """Case O10 with its own input, without us: the reason for the overrides, and for asking the module."""
    fork = commit(tmp_path / "fork", {"fakeinfer.py": "WHO = 'fork'\n", **project("fakeinfer", "0.0.1", [])})
    llm = commit(tmp_path / "llm", {"fakellm.py": "", **project("fakellm", "1.0", ["fakeinfer==0.0.2"])})
    assert fork != llm
    setuptools = wheel_of_installed(wheels, "setuptools")
    python = tmp_path / "plain" / "bin" / "python"
    for words in (["venv", str(tmp_path / "plain")], *(install(python, tmp_path / name) for name in ("fork", "llm"))):
        given = {**os.environ, "UV_PYTHON": sys.executable}
        subprocess.run([uv.program(), *words], check=True, capture_output=True, env=given)
    assert asked(str(python), "importlib.import_module('fakeinfer').WHO") == "pypi"
    sources = [described(tmp_path / name, f"fake{module}") for name, module in (("fork", "infer"), ("llm", "llm"))]
    pins = pins_of(*sources, build_requirements=[f"setuptools=={setuptools.name.split('-')[1]}"])
    stack = made(pins, tmp_path)
    assert asked(stack["python"], "importlib.import_module('fakeinfer').WHO") == "fork"
    assert stack["conflicts"] == ["The package `fakellm` requires `fakeinfer==0.0.2`, but `0.0.1` is installed"]


def project(name: str, number: str, requires: list[str]) -> dict[str, str]:
    """The pyproject.toml of a package of one module, built by setuptools."""
    head = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    body = f'[project]\nname = "{name}"\nversion = "{number}"\ndependencies = {requires}\n'
    return {"pyproject.toml": f'{head}{body}[tool.setuptools]\npy-modules = ["{name}"]\n'}


def install(python: Path, folder: Path) -> list[str]:
    """The words of the case."""
    return ["pip", "install", "--python", str(python), "-e", str(folder)]


def described(repository: Path, module: str) -> dict[str, Any]:
    """A repository's HEAD as pins.json has it."""
    head, tree = git(repository, "rev-parse", "HEAD"), git(repository, "rev-parse", "HEAD^{tree}")
    clone = repository.with_name(f"{repository.name}-checkout")
    git(repository, "clone", "-q", str(repository), str(clone))
    facts = {"commit": head, "tree": tree, "path": str(clone), "distribution": module}
    return {**facts, "module": module, "version": None}


def test_native_code_is_that_of_the_pin_though_version_and_time_stamps_are_the_same(
    wheels: Path, tmp_path: Path
) -> None:
    """Case O11 (a): `kern` with rev() returning 5, then 6, built by setuptools, version and time stamps unchanged."""
    wheel_of_installed(wheels, "setuptools")
    setup = 'from setuptools import Extension, setup\nsetup(ext_modules=[Extension("kern", ["k.c"])])\n'
    head = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    text = (
        "#include <Python.h>\n"
        "static PyObject *rev(PyObject *m, PyObject *a) {{ return PyLong_FromLong({0}); }}\n"
        'static PyMethodDef t[] = {{{{"rev", rev, METH_NOARGS, 0}}, {{0}}}};\n'
        'static struct PyModuleDef it = {{PyModuleDef_HEAD_INIT, "kern", 0, -1, t}};\n'
        "PyMODINIT_FUNC PyInit_kern(void) {{ return PyModule_Create(&it); }}\n"
    )
    project_file = f'{head}[project]\nname = "kern"\nversion = "1.0"\n'
    found, repository = [], tmp_path / "kern"
    for rev in (5, 6, 5):
        files = {"setup.py": setup, "pyproject.toml": project_file, "k.c": text.format(rev), "n": f"{len(found)}"}
        commit(repository, files)
        source = described(repository, "kern")
        shutil.move(source["path"], tmp_path / f"checkout-{len(found)}")
        source["path"] = str(tmp_path / f"checkout-{len(found)}")
        os.utime(Path(source["path"]) / "k.c", (1577836800, 1577836800))  # 2020-01-01, older than any object file
        pins = pins_of(source, build_requirements=[f"setuptools=={version('setuptools')}"])
        found.append(asked(made(pins, tmp_path)["python"], "importlib.import_module('kern').rev()"))
    assert found == ["5", "6", "5"]


def test_a_checkout_that_is_not_the_commit_is_not_built(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    source = pair[0].commit(8)
    native = Path(source["path"]) / "native.c"
    native.write_text(native.read_text().replace("8", "9"))
    with pytest.raises(SourceError, match=r"source `fakeinfer`: .*native\.c"):
        made(pins_of(source), tmp_path)
    git(Path(source["path"]), "checkout", "-q", "native.c")
    (Path(source["path"]) / "build_fakeinfer").mkdir()
    (Path(source["path"]) / "build_fakeinfer" / "_C.so").touch()  # an object that an older build left
    with pytest.raises(SourceError, match=r"source `fakeinfer`: .*build_fakeinfer"):
        made(pins_of(source), tmp_path)
    shutil.rmtree(source["path"])
    with pytest.raises(SourceError, match=r"source `fakeinfer`: its checkout .* is gone"):
        made(pins_of(source), tmp_path)


def test_a_failed_build_tells_its_last_words_and_leaves_nothing(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    infer = pair[0]
    infer.files["backend.py"] += "\nraise RuntimeError('no nvcc here')\n"
    source = infer.commit(1)
    with pytest.raises(SourceError) as caught:
        made(pins_of(source), tmp_path)
    assert "building fakeinfer: `uv build` ended with" in str(caught.value) and "no nvcc here" in str(caught.value)
    assert not list((tmp_path / "stacks").glob("[!.]*")) and not list((tmp_path / "wheels").glob("[!.]*"))


def test_a_build_sees_the_stack_files_variables_and_not_the_shells(
    pair: tuple[Fork, Fork], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = pair[0]
    infer.files["backend.py"] += "\nimport os, sys\nprint('SEEN', sys.prefix, dict(os.environ), flush=True)\n"
    shown = "def build_wheel(folder, config_settings=None, metadata_directory=None):"
    told_to_us = shown + "\n    print('SETTINGS', config_settings, flush=True)"
    infer.files["backend.py"] = infer.files["backend.py"].replace(shown, told_to_us)
    settings = tmp_path / "home" / ".config" / "uv" / "uv.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('config-settings = { bent = "by the user" }\n')
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    source = infer.commit(1)
    monkeypatch.setenv("VLLM_USE_PRECOMPILED", "1")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION", "9.9")
    told = {**source, "version": "0.6.1+fork"}
    pins = pins_of(told, variables={"TORCH_CUDA_ARCH_LIST": "9.0a"})
    one, _ = environment.made(pins, tmp_path / "stacks", tmp_path / "log", jobs=3)
    seen = next(line for line in (tmp_path / "log").read_text().splitlines() if "SEEN" in line)
    for part in ("'TORCH_CUDA_ARCH_LIST': '9.0a'", "'MAX_JOBS': '3'", "PRETEND_VERSION': '0.6.1+fork'"):
        assert part in seen, part
    assert "SETTINGS {}" in (tmp_path / "log").read_text(), "--no-config"
    assert "VLLM_USE_PRECOMPILED" not in seen and "nowhere" not in seen
    other = made(pins_of(told, variables={"TORCH_CUDA_ARCH_LIST": "8.0"}), tmp_path)
    assert other["key"] != one["key"]
    assert other["sources"]["fakeinfer"]["wheel_key"] != one["sources"]["fakeinfer"]["wheel_key"]


def test_offline_reaches_every_call_of_uv(
    pair: tuple[Fork, Fork], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_OFFLINE")
    environment.made(pins_of(pair[0].commit(1)), tmp_path / "stacks", tmp_path / "log", offline=True)
    calls = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("$ uv ")]
    assert len(calls) == 3 and all(" --offline" in line for line in calls)


def test_progress_is_told(pair: tuple[Fork, Fork], tmp_path: Path) -> None:
    told: list[str] = []
    environment.made(pins_of(pair[0].commit(1)), tmp_path / "stacks", tmp_path / "log", tell=told.append)
    steps = list(dict.fromkeys(line.partition(": ")[0] for line in told))
    assert steps == [
        f"making the environment with Python {platform.python_version()}",
        "copying fakeinfer",
        "building fakeinfer",
        "installing fakeinfer",
        "attesting",
    ]
