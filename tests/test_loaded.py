"""A receipt tells which shared objects were mapped and what was compiled meanwhile, by content."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kassay import loaded, paths
from tests.conftest import Project


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """An interpreter that looks like one of an attested stack."""
    home = tmp_path / "stack"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(home)], check=True)
    (home / paths.ATTESTED).write_text("{}")
    (home / paths.JIT / "triton").mkdir(parents=True)
    return home


def ask(stack: Path, expression: str) -> dict[str, str]:
    """What an expression of kassay.loaded gives in the stack's interpreter."""
    code = f"import json, ctypes\nfrom kassay import loaded\nprint(json.dumps({expression}))"
    done = subprocess.run(
        [str(stack / "bin" / "python"), "-c", code],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_mapped_shared_objects_are_told_by_content(stack: Path) -> None:
    found = ask(stack, "loaded.shared_objects()")
    path, sha256 = next((path, told) for path, told in found.items() if "_ctypes" in path)
    assert sha256 == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert not [name for name in found if not Path(name.replace("~", str(stack))).is_file()]
    book = json.loads((stack / loaded.KNOWN).read_bytes())
    assert len(book) >= len(found), "kept, so that the next process reads no library again"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    library, book = tmp_path / "lib.so", tmp_path / "book.json"
    library.write_bytes(b"one")
    first = loaded.digests([library], book)
    library.write_bytes(b"two")
    assert loaded.digests([library], book)[library] != first[library]
    book.write_text("no json")
    assert loaded.digests([library], book)[library] == hashlib.sha256(b"two").hexdigest()


def test_the_frameworks_own_interpreter_tells_versions_only() -> None:
    assert loaded.shared_objects() == {} and loaded.jit_products(0) == {}


def test_what_was_compiled_meanwhile_is_told_and_what_was_there_is_not(stack: Path) -> None:
    old, new = stack / paths.JIT / "triton" / "old.cubin", stack / paths.JIT / "triton" / "new.cubin"
    old.write_bytes(b"old")
    os.utime(old, (1, 1))
    new.write_bytes(b"new")
    since = time.time_ns() - 60 * 10**9
    found = ask(stack, f"loaded.jit_products({since})")
    assert found == {"~/jit/triton/new.cubin": hashlib.sha256(b"new").hexdigest()}


def test_a_receipt_holds_a_fingerprint_of_the_command_not_the_command(project: Project) -> None:
    went = project.go({"a": {"program": "ok"}})
    receipt = json.loads((paths.stage_dir(went.run.directory, "a") / paths.RECEIPT).read_bytes())
    assert len(receipt["argv_sha256"]) == 64 and receipt["shared_objects"] == {} and "argv" not in receipt
