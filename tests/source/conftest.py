"""What uv finds in these tests: a folder of wheels, and nothing else."""

from pathlib import Path

import pytest

from tests.source.fork import Fork, index, write_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, empty but for two releases of one package."""
    return index(tmp_path, monkeypatch)


@pytest.fixture
def pair(wheels: Path, tmp_path: Path) -> tuple[Fork, Fork]:
    """The forks of two packages, the second of which asks for a release of the first, and for another one that does."""
    write_wheel(wheels, "fakedep", "1.0", "dependency", ("fakeinfer>=0.0.2",))
    write_wheel(wheels, "fakeinfer_cubin", "0.0.2", "kernels")
    infer = Fork(tmp_path, "fakeinfer", "0.0.1", [])
    return infer, Fork(tmp_path, "fakellm", "1.0", ["fakeinfer==0.0.2", "fakedep", "fakeinfer-cubin==0.0.2"])
