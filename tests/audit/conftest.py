"""One complete run, judged once; each test changes a copy."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clean_run(judged_run: Path) -> Path:
    """The run as it was made; tests only read it."""
    return judged_run


@pytest.fixture
def run_dir(clean_run: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(clean_run, tmp_path / clean_run.name))
