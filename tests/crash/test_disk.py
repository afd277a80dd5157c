"""Disks that are full, read only, or taken away, at every point at which the driver may notice it."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.conftest import larger
from tests.crash.project import Done, DrivenProject
from tests.crash.toys import assert_right, open_gates, three, wait_for_halves, wrong

NO_SPACE = "No space left on device"


def told(done: Done) -> bool:
    """Whether a run that could not write says so in a line, and what to do."""
    return done.code in (1, 2) and NO_SPACE in done.err and "hint: " in done.err


@pytest.mark.parametrize("kind", ["program", "argv"])
@pytest.mark.parametrize("limit", ["nr_inodes", "size"])
def test_a_disk_that_is_full_at_any_point(
    driven: DrivenProject, small_disk: Callable[..., Path], limit: str, kind: str
) -> None:
    """From room for nothing to room for all: each time a plain message, and a plain run once there is room."""
    three(driven, kind)
    open_gates(driven)
    disk, outcomes, found = None, [], []
    for room in range(1, 60):
        size, inodes = (4096, 2 + room) if limit == "nr_inodes" else (4 * room, 100000)
        disk = disk or small_disk(size, f"nr_inodes={inodes}")
        subprocess.run(["mount", "-o", f"remount,size={size}k,nr_inodes={inodes}", str(disk)], check=True)
        done = driven.start().wait()
        assert done.plain and (done.code == 0 or told(done)), f"room {room}: {done.err}"
        assert driven.left() == []
        outcomes.append(done.code)
        larger(disk, 8192)
        again = driven.run()
        assert again.code == 0, f"after room {room}: {again.err}"
        found += [f"room {room}: {one}" for one in wrong(driven)]
        if done.code == 0 and "stage started" in done.err:
            break
        for path in disk.iterdir():
            subprocess.run(["rm", "-r", str(path)], check=True)
    assert outcomes[0] == 2 and outcomes[-1] == 0 and len(outcomes) > 5
    assert not found, "\n".join(found)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """Something else lies over a folder for a while."""
    argv = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting needs root and the right to it")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The folder itself can be read only, for whoever opens a file from now on."""
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", str(folder), str(folder)], check=False).returncode != 0:
        pytest.skip("mounting needs root and the right to it")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_read_only_results_folder_is_said_before_anything_runs(driven: DrivenProject) -> None:
    three(driven, "argv")
    open_gates(driven)
    driven.results.mkdir()
    with mounted(driven.results, "-o", "ro"):
        done = driven.run()
    assert done.code == 2 and "results: cannot be written: Read-only file system" in done.err
    assert "hint: make RESULTS=<folder>" in done.err and driven.left() == []
    assert driven.run().code == 0
    assert_right(driven)


def test_a_folder_that_becomes_read_only_while_stages_run(driven: DrivenProject) -> None:
    three(driven, "argv")
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    with read_only(driven.run_dir / "stages"):
        open_gates(driven)
        done = driver.wait()
    assert done.plain and done.code == 2 and "Read-only file system" in done.err and "hint: " in done.err
    assert driven.left() == []
    assert driven.run().code == 0
    assert_right(driven)


def test_build_that_cannot_be_written_costs_time_only(driven: DrivenProject) -> None:
    three(driven, "argv")
    open_gates(driven)
    (driven.root / "build").mkdir(exist_ok=True)
    with mounted(driven.root / "build", "-o", "ro"):
        assert driven.run().code == 0
        assert "nothing to do" in driven.run().err
    assert_right(driven)


@pytest.mark.parametrize("kind", ["program", "argv"])
@pytest.mark.parametrize("what", ["stage", "stages", "run"])
def test_a_folder_is_removed_while_a_stage_works_in_it(driven: DrivenProject, what: str, kind: str) -> None:
    three(driven, kind)
    driver = driven.start()
    wait_for_halves(driven, "one", "two")
    gone = {"stage": driven.stage("one"), "stages": driven.stage("one").parent, "run": driven.run_dir}[what]
    subprocess.run(["rm", "-r", str(gone)], check=True)
    open_gates(driven)
    done = driver.wait()
    assert done.plain, done.err
    assert done.code in (1, 2) and ("one crashed: " in done.err or "hint: " in done.err)
    assert driven.left() == []
    time.sleep(1)  # a run is named by the second
    assert driven.run().code == 0
    assert_right(driven)


def test_standard_error_that_cannot_be_written_does_not_end_a_run(driven: DrivenProject) -> None:
    three(driven, "argv")
    open_gates(driven)
    command = 'exec "$@" 2> /dev/full'
    done = driven.start(under=("sh", "-c", command, "sh")).wait()
    assert done.code == 0
    assert_right(driven)
