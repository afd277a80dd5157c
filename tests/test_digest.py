"""Identity: content counts; time stamps, places, caches and prose do not."""

import os
import time
from pathlib import Path

import pytest

from kassay import cache, digest


def test_a_folder_is_its_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "a.json").write_text("{}")
    os.utime(two / "sub" / "a.json", (1, 1))
    (two / "README.md").write_text("prose")
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "a.pyc").write_text("x")
    assert digest.of_path(one) == digest.of_path(two)
    (two / "sub" / "b.json").write_text("{}")
    assert digest.of_path(one) != digest.of_path(two)


def test_a_value_is_its_canonical_json() -> None:
    assert digest.of_value({"a": 1, "b": [1.5, "é"]}) == digest.of_value({"b": [1.5, "é"], "a": 1})
    assert digest.of_value(1) != digest.of_value("1")
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest.of_value(float("nan"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    digest.write_json(path, {"a": 1})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        digest.write_json(path, {"a": 2})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_digests_are_remembered_by_the_state_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book, file, fresh = tmp_path / "book.json", tmp_path / "file", tmp_path / "fresh"
    file.write_text("one")
    time.sleep(0.03)
    fresh.write_text("just now")
    monkeypatch.setattr(digest, "_known", {})
    monkeypatch.setattr(digest, "_lasting", set())
    with monkeypatch.context() as clock:  # it stands still: both are read in the tick in which `fresh` was written
        now_ns = fresh.stat().st_ctime_ns + 1
        clock.setattr(digest.time, "time_ns", lambda: now_ns)
        expected = digest.of_path(file), digest.of_path(fresh)
    digest.remember(book)
    assert [row[0] for row in cache.read(book)] == [str(file)], "what was read in the tick of its change is read again"
    monkeypatch.setattr(digest, "_known", {})
    digest.recall(book)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: pytest.fail("it was read again"))
        assert digest.of_file(file) == expected[0]
    status = file.stat()
    file.write_text("two")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest.of_file(file) != expected[0]
    book.write_text("garbage")
    digest.recall(book)
