"""Attestation: whatever is not what was frozen and built is named, with what was expected and what is there."""

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kassay.errors import SourceError
from kassay.source import contents, environment, pins, uv, wheel
from kassay.source.attest import attest
from kassay.source.inventory import take
from tests.source.fork import INDEX, Fork, index, pack, pins_of, write_wheel
from tests.source.gitrepo import git


class Stack:
    """One made stack with a fork in it, open to harm."""

    def __init__(self, folder: Path, fork: Fork) -> None:
        self.source = fork.commit(1)
        self.pins = pins_of(self.source, requirements=["plain==1.0"], modules=["plain"])
        self.folder = folder
        self.told, self.foundations = environment.made(self.pins, folder / "stacks", folder / "log")
        self.home = Path(self.told["python"]).parent.parent
        (self.site,) = (self.home / "lib").glob("python*/site-packages")
        self.info = self.site / "fakeinfer-0.0.1.dist-info"
        (built,) = (folder / "wheels").glob("*/built.json")
        found = wheel.finished(built.parent)
        assert found is not None
        self.wheels = {"fakeinfer": (found, built.parent / found.file)}

    def again(self, before: dict[str, str | None] | None = None) -> dict[str, Any]:
        """Attest it as it is now."""
        parsed = pins.parse(self.pins)
        return attest(take(Path(self.told["python"]), parsed.modules, bytecode=True), parsed, self.wheels, before or {})


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The one stack of these tests."""
    place = tmp_path_factory.mktemp("attest") / "work"
    with pytest.MonkeyPatch.context() as patch:
        write_wheel(index(place, patch), "plain", "1.0", "plain")
        yield Stack(place, Fork(place, "fakeinfer", "0.0.1", []))


@pytest.fixture
def stack(well: Stack) -> Iterator[Stack]:
    """The stack, to be harmed: afterwards everything is as it was."""
    kept = well.folder.with_name("kept")
    shutil.copytree(well.folder, kept, symlinks=True)
    yield well
    shutil.rmtree(well.folder)
    kept.rename(well.folder)


def alter_a_file(stack: Stack) -> None:
    """An edit after the installation."""
    (stack.site / "fakeinfer" / "__init__.py").write_text("WHO = 'edited'\n")


def alter_the_extension(stack: Stack) -> None:
    """A byte of the compiled code, and RECORD made to fit."""
    (native,) = (stack.site / "fakeinfer").glob("_C*.so")
    native.write_bytes(native.read_bytes() + b"\0")
    text = (stack.info / "RECORD").read_text()
    lines = [line for line in text.splitlines() if "_C" not in line]
    more = contents.of_installed(native)
    told = base64.urlsafe_b64encode(bytes.fromhex(more)).rstrip(b"=").decode()
    lines.append(f"fakeinfer/{native.name},sha256={told},1")
    (stack.info / "RECORD").write_text("\n".join(lines) + "\n")


def replace_it(stack: Stack) -> None:
    """What a dependency install does: the release comes, the fork goes."""
    uv_install(stack, "fakeinfer==0.0.2")


def replace_it_with_its_own_version(stack: Stack) -> None:
    """The release of the very same version: no version tells it."""
    uv_install(stack, "--reinstall", "fakeinfer==0.0.1")


def uv_install(stack: Stack, *words: str) -> None:
    """Somebody's own use of uv in a stack."""
    argv = [uv.program(), "pip", "install", "-q", "--link-mode", "copy", "--python", stack.told["python"], *words]
    subprocess.run(argv, check=True)


def remove_it(stack: Stack) -> None:
    """The distribution is gone, and its module with it."""
    shutil.rmtree(stack.info)
    shutil.rmtree(stack.site / "fakeinfer")


def point_elsewhere(stack: Stack) -> None:
    """direct_url.json names another file."""
    told = json.loads((stack.info / "direct_url.json").read_text())
    (stack.info / "direct_url.json").write_text(json.dumps(told | {"url": Path("/elsewhere/x.whl").as_uri()}))


def point_to_another_hash(stack: Stack) -> None:
    """direct_url.json names the file, but as it was when it had other bytes."""
    told = json.loads((stack.info / "direct_url.json").read_text())
    url = told["url"].partition("#")[0]
    told = {"url": url, "archive_info": {"hashes": {"sha256": "0" * 64}}}
    (stack.info / "direct_url.json").write_text(json.dumps(told))


def tell_nothing(stack: Stack) -> None:
    """No direct_url.json: as if it came from an index."""
    (stack.info / "direct_url.json").unlink()


def leave_a_stray(stack: Stack) -> None:
    """A file that an import would take before the extension, and that no RECORD has."""
    (stack.site / "fakeinfer" / "kernels.py").write_text("WHO = 'stray'\n")


def shadow_it(stack: Stack) -> None:
    """A .pth file that puts another folder first."""
    (stack.folder / "shadow" / "fakeinfer").mkdir(parents=True)
    (stack.folder / "shadow" / "fakeinfer" / "__init__.py").write_text("")
    line = f"import sys; sys.path.insert(0, {str(stack.folder / 'shadow')!r})\n"
    (stack.site / "shadow.pth").write_text(line)


def break_it(stack: Stack) -> None:
    """It cannot be imported any more."""
    (stack.site / "fakeinfer" / "__init__.py").write_text("import no_such_thing\n")


def alter_the_wheel(stack: Stack) -> None:
    """The wheel is not the one that was recorded."""
    path = stack.wheels["fakeinfer"][1]
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("RECORD")}
    pack(path, "fakeinfer-0.0.1.dist-info", {**files, "fakeinfer/__init__.py": b"WHO = 'other'\n"})


FORK = "module `fakeinfer`, distribution `fakeinfer`: "
HARM: dict[Callable[[Stack], None], str] = {
    alter_a_file: FORK + "`fakeinfer/__init__.py`: expected ",
    alter_the_extension: FORK + "RECORD's line of `fakeinfer/_C",
    replace_it: FORK + "expected version 0.0.1 of commit ",
    replace_it_with_its_own_version: FORK + "direct_url.json: expected file:",
    remove_it: FORK + "expected commit ",
    point_elsewhere: FORK + "direct_url.json: expected file:",
    point_to_another_hash: FORK + "direct_url.json: expected sha256 ",
    tell_nothing: FORK + "direct_url.json: expected file:",
    leave_a_stray: FORK + "`fakeinfer/kernels.py`: expected no such file, no RECORD has it",
    shadow_it: "module `fakeinfer`: expected a file of `fakeinfer`, found ",
    break_it: "module `fakeinfer`: the pinned modules cannot be imported:",
    alter_the_wheel: FORK,
}


def test_a_stack_that_is_well(stack: Stack) -> None:
    told = stack.again(stack.told["content"])
    assert {**stack.told, **told} == stack.told
    facts = stack.told["sources"]["fakeinfer"]
    built, path = stack.wheels["fakeinfer"]
    assert (facts["commit"], facts["tree"]) == (stack.source["commit"], stack.source["tree"])
    assert (facts["wheel_sha256"], facts["wheel_key"]) == (contents.of_installed(path), path.parent.name)
    assert built.sha256 == facts["wheel_sha256"] and (stack.home / facts["file"]).is_file()
    assert {pin: len(sha or "") for pin, sha in told["content"].items()} == {"fakeinfer==0.0.1": 64, "plain==1.0": 64}
    assert told["replaced"] == [] and told["companions"] == []


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)
def test_harm_is_named(stack: Stack, harm: Callable[[Stack], None]) -> None:
    harm(stack)
    with pytest.raises(SourceError) as caught:
        stack.again()
    assert any(f"{stack.told['python']}: {HARM[harm]}" in told for told in caught.value.messages), caught.value
    assert "hint: " in str(caught.value)


LATER: dict[Callable[[Stack], None], str] = {
    alter_a_file: "module `fakeinfer`: `fakeinfer/__init__.py`: expected ",
    replace_it_with_its_own_version: "`fakeinfer==0.0.1`: expected what was attested, found another content",
    replace_it: "`fakeinfer==0.0.2`: expected no such package, it was not attested",
    remove_it: "`fakeinfer==0.0.1`: expected what was attested, found it gone",
}


@pytest.mark.parametrize("harm", LATER, ids=lambda harm: harm.__name__)
def test_a_stack_that_was_changed_afterwards_is_not_used(stack: Stack, harm: Callable[[Stack], None]) -> None:
    again = environment.made(stack.pins, stack.folder / "stacks", stack.folder / "log")
    assert again == (stack.told, stack.foundations)
    harm(stack)
    with pytest.raises(SourceError) as caught:
        environment.made(stack.pins, stack.folder / "stacks", stack.folder / "log")
    assert f"{stack.home}: {LATER[harm]}" in str(caught.value)
    assert caught.value.hint == f"rm -r {stack.home}; it is made again"
    shutil.rmtree(stack.home)
    assert environment.made(stack.pins, stack.folder / "stacks", stack.folder / "log")[0] == stack.told


def test_a_release_that_another_package_replaced_is_named(stack: Stack) -> None:
    wheels, before = stack.folder / INDEX, stack.told["content"]
    write_wheel(wheels, "plain", "1.0", "another build of the same version")
    write_wheel(wheels, "plain", "2.0", "newer")
    uv_install(stack, "--reinstall", "--no-cache", "plain==1.0")
    with pytest.raises(SourceError, match="`plain`: expected the content that was installed for its pin"):
        stack.again(before)
    uv_install(stack, "plain==2.0")
    with pytest.raises(SourceError, match=r"`plain` is 2\.0, the pin is 1\.0"):
        stack.again(before)


def test_what_else_changed_under_the_wheels_is_recorded(stack: Stack) -> None:
    told = stack.again({**stack.told["content"], "numpy==2.4.6": "0" * 64})
    assert told["replaced"] == ["numpy==2.4.6"]


def test_a_wheel_of_another_name_and_one_that_lies_are_no_wheels_of_the_source(wheels: Path, tmp_path: Path) -> None:
    fork = Fork(tmp_path, "fakeinfer", "0.0.1", [])
    source = fork.commit(1)
    with pytest.raises(SourceError, match="expected a wheel of `vllm`, found one of `fakeinfer`"):
        environment.made(pins_of({**source, "distribution": "vllm"}), tmp_path / "stacks", tmp_path / "log")
    path = write_wheel(tmp_path, "liar", "1.0", "x")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("liar/more.py", "x = 1\n")
    with pytest.raises(SourceError, match=r"`liar/more\.py` is not what the wheel's own RECORD says"):
        contents.of_wheel(path)
    (tmp_path / "text.whl").write_text("no archive")
    with pytest.raises(SourceError, match=r"text\.whl: it cannot be read as a wheel"):
        contents.of_wheel(tmp_path / "text.whl")


def listing(home: Path) -> dict[str, tuple[int, int]]:
    """Every path of a folder with its size and time of change."""
    return {str(path): (path.lstat().st_size, path.lstat().st_ctime_ns) for path in home.rglob("*")}


def users(tmp_path: Path, *words: str) -> Path:
    """A user's own environment."""
    python = tmp_path / "theirs" / "bin" / "python"
    subprocess.run([uv.program(), "venv", "-q", "--python", sys.executable, str(tmp_path / "theirs")], check=True)
    argv = [uv.program(), "pip", "install", "-q", "--no-build-isolation", "--python", str(python), *words]
    subprocess.run(argv, check=True)
    return python


def test_a_users_environment_is_read_only_and_its_release_does_not_pass_for_the_fork(
    wheels: Path, tmp_path: Path
) -> None:
    source = Fork(tmp_path, "fakeinfer", "0.0.1", []).commit(1)
    python = users(tmp_path, "fakeinfer==0.0.1")
    before = listing(tmp_path / "theirs")
    with pytest.raises(SourceError, match=r"expected commit [0-9a-f]{40}, found version 0\.0\.1, whose commit nothing"):
        environment.existing(str(python), pins_of(source))
    stack, _ = environment.existing(str(python), {"requirements": ["fakeinfer==0.0.1"], "modules": ["fakeinfer"]})
    assert stack["key"] == "existing" and listing(tmp_path / "theirs") == before


def test_a_users_environment_with_the_fork_from_git(wheels: Path, tmp_path: Path) -> None:
    fork = Fork(tmp_path, "fakeinfer", "0.0.1", [])
    source, other = fork.commit(1), fork.commit(2)
    python = users(tmp_path, f"git+file://{fork.repository}@{source['commit']}")
    before = listing(tmp_path / "theirs")
    stack, foundations = environment.existing(str(python), pins_of(source))
    assert stack["sources"]["fakeinfer"]["commit"] == source["commit"] and len(foundations) == 2
    assert listing(tmp_path / "theirs") == before
    with pytest.raises(SourceError, match=f"expected commit {other['commit']}, found {source['commit']}"):
        environment.existing(str(python), pins_of(other))
    (native,) = (tmp_path / "theirs").rglob("_C*.so")
    native.write_bytes(native.read_bytes() + b"\0")
    with pytest.raises(SourceError, match=r"`fakeinfer/_C.*\.so`: expected"):
        environment.existing(str(python), pins_of(source))


def test_a_users_environment_with_a_checkout_in_it(wheels: Path, tmp_path: Path) -> None:
    """A local folder proves a commit while it is that commit and clean."""
    fork = Fork(tmp_path, "fakeinfer", "0.0.1", [])
    fork.files[".gitignore"] = "build_fakeinfer\nleft-behind\n__pycache__\n"
    source = fork.commit(1)
    python = users(tmp_path, source["path"])
    assert environment.existing(str(python), pins_of(source))[0]["sources"]["fakeinfer"]["wheel"] is None
    (Path(source["path"]) / "native.c").write_text("edited")
    with pytest.raises(SourceError, match="found it with 1 changes in"):
        environment.existing(str(python), pins_of(source))
    git(Path(source["path"]), "checkout", "-q", "native.c")
    environment.existing(str(python), pins_of(source))
