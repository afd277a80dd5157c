"""No kernel reads or writes beyond a plane: under the interpreter, with forbidden pages around every tensor."""

import os
import signal
import subprocess
import sys

import pytest

from kassay import paths

pytest.importorskip("triton", reason="the kernels need triton")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, which a forbidden read ends."""
    return subprocess.run(
        [sys.executable, "-m", "tests.kernels.guarded", *words],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(paths.ROOT)},
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("side", ["end", "start"])
def test_nothing_beyond_a_plane_is_touched(side: str) -> None:
    done = run(side)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    assert int(done.stdout) == 98  # seven recipes; three geometries with pairs and one without, one split and three


@pytest.mark.parametrize("side", ["end", "start"])
def test_a_page_that_the_pool_does_not_have_ends_the_process(side: str) -> None:
    assert run(side, "beyond").returncode == -signal.SIGSEGV
