"""The driver dies by kill -9 before each single file operation in turn: opening, making, renaming, removing, linking.

Random moments (test_kill.py) seldom hit the microseconds between two of them. Here a hook of the interpreter counts the
operations on files of the results and of build/, and kills the driver before the n-th, for every n that there is.
"""

import shutil
import time
from typing import Any

import pytest

from tests.crash.project import DrivenProject

DIE_AT, COUNTED = "KASSAY_TEST_DIE_AT", "KASSAY_TEST_COUNTED"
HOOK = """\
import os, sys
if sys.orig_argv[1:4] == ["-m", "kassay", "run"]:
    wanted = int(os.environ.get("KASSAY_TEST_DIE_AT", "0"))
    folders = tuple(os.path.join(os.getcwd(), name) + os.sep for name in ("results", "build"))
    log = os.open(os.environ["KASSAY_TEST_COUNTED"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    names = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.truncate", "subprocess.Popen"}
    state = [0]
    def concerns(event, words):
        if event == "open":
            return isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR) and inside(words)
        return event in names and (event == "subprocess.Popen" or inside(words))
    def inside(words):
        return any(isinstance(word, (str, os.PathLike)) and os.fspath(word).startswith(folders) for word in words)
    def hook(event, words):
        if concerns(event, words):
            state[0] += 1
            os.write(log, (event + " " + " ".join(str(word) for word in words[:2]) + "\\n").encode())
            if state[0] == wanted:
                os.kill(os.getpid(), 9)
    sys.addaudithook(hook)
"""
STAGES: dict[str, Any] = {
    "one": {"argv": ["sh", "-c", "echo 1 > out.txt"], "outputs": {"out": "out.txt"}},
    "two": {"argv": ["sh", "-c", "cat {in.x} > out.txt"], "inputs": {"x": "one.out"}, "outputs": {"out": "out.txt"}},
}
MOST = 400  # more points than a run of two stages can have


def counted(driven: DrivenProject, die_at: int) -> tuple[int, list[str]]:
    """One run that dies before the n-th operation; its exit code, and the operations that it came to."""
    log = driven.root / "operations"
    done = driven.start(**{DIE_AT: str(die_at), COUNTED: str(log)}).wait()
    assert done.plain, done.err
    return done.code, log.read_text().splitlines()


def results(driven: DrivenProject) -> dict[str, str]:
    """What the stages left."""
    return {name: (driven.stage(name) / "out.txt").read_text() for name in STAGES}


def prepared(driven: DrivenProject, state: str) -> None:
    """What there is before the driver that dies."""
    driven.workflow(STAGES)
    if state == "first":
        driven.forget()
        return
    assert driven.run(**{COUNTED: "/dev/null"}).code == 0
    if state == "changed":
        (driven.stage("one") / "out.txt").write_text("2\n")
    elif state == "idle":
        time.sleep(0.03)  # what is younger does not come into the book
        (driven.run_dir / ".book.json").unlink(missing_ok=True)
    elif state == "linked":
        runs = [run for run in driven.results.iterdir() if run.is_dir() and run.name[0] != "." and not run.is_symlink()]
        for run in runs[1:]:
            shutil.rmtree(run)
        driven.workflow({**STAGES, "two": {**STAGES["two"], "argv": ["sh", "-c", "cp {in.x} out.txt"]}})


@pytest.mark.parametrize("state", ["first", "changed", "idle", "linked"])
def test_the_driver_dies_before_each_file_operation(driven: DrivenProject, state: str) -> None:
    """`first`: nothing was there; `changed`: a result is stale; `idle`: there is nothing to do but to keep the book;
    `linked`: another plan takes one result of an earlier run."""
    (driven.root / "sitecustomize.py").write_text(HOOK)
    bad = []
    for number in range(1, MOST):
        prepared(driven, state)
        code, operations = counted(driven, number)
        if code == 0 and len(operations) < number:
            break
        assert code == -9 and len(operations) == number
        after = driven.run(**{COUNTED: "/dev/null"})
        left = [*driven.temporaries(), *driven.left(), *([] if after.code == 0 else [after.err])]
        if left or results(driven) != {"one": "1\n", "two": "1\n"}:
            bad.append(f"before {operations[-1]}: {left}")
            driven.forget()
    assert number > 3 and not bad, f"{len(bad)} of {number - 1} points:\n" + "\n".join(bad)
