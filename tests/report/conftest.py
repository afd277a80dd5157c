"""Run directories for the tests of the report: an empty one to fill, and a complete one to read."""

from pathlib import Path

import pytest

from tests.report.fabricate import FakeRun


@pytest.fixture
def fake_run(tmp_path: Path) -> FakeRun:
    """A run in which nothing has ended yet."""
    return FakeRun(tmp_path)


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    """A complete run; tests only read it."""
    return FakeRun(tmp_path_factory.mktemp("full")).full()


@pytest.fixture(scope="session")
def full_reports(full_run: FakeRun) -> dict[str, str]:
    """Its reports by file name, rendered once."""
    return full_run.rendered()
