"""Trees to configure: the project's own files under a root of the test, so that profiles can be written there."""

from pathlib import Path

import pytest

from kassay import paths

REAL = paths.ROOT


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped tree, linked, with a defconfigs folder of its own; the shipped profiles are copied."""
    import shutil

    root = tmp_path / "tree"
    root.mkdir()
    for name in ("Kconfig", "workflows", "stages", "data", "kassay"):
        (root / name).symlink_to(REAL / name)
    shutil.copytree(REAL / "defconfigs", root / "defconfigs")
    monkeypatch.setattr(paths, "ROOT", root)
    monkeypatch.delenv(paths.OUTSIDE, raising=False)
    return root
