"""The project of a crash test, and a small disk of its own where the test may mount one."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.project import DrivenProject, copy_tree


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[DrivenProject]:
    """A fresh tree; whatever a failed test left running is killed at the end."""
    project = DrivenProject(copy_tree(tmp_path / "tree"))
    yield project
    project.end()


@pytest.fixture
def small_disk(driven: DrivenProject) -> Iterator[Callable[..., Path]]:
    """Mounts a tmpfs of so many KiB as the results folder; it is unmounted at the end, also of a failed test."""
    mounted: list[Path] = []

    def mount(kib: int, more: str = "nr_inodes=100000") -> Path:
        driven.results.mkdir()
        argv = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,{more}", "tmpfs", str(driven.results)]
        if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            pytest.skip("a small disk of its own needs root and the right to mount a tmpfs")
        mounted.append(driven.results)
        return driven.results

    yield mount
    driven.end()
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def larger(disk: Path, kib: int) -> None:
    """What a person does who frees space, without touching what lies there."""
    subprocess.run(["mount", "-o", f"remount,size={kib}k,nr_inodes=100000", str(disk)], check=True)
