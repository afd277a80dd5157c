"""Identity: content counts; time stamps, places, caches and prose do not."""

import os
from pathlib import Path

import pytest

from kassay import digest


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
