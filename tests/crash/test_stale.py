"""Rows t8 of the crash table: what is there is another than it was, whatever its size and times say."""

import os
import time
from pathlib import Path

import pytest

from tests.crash.project import DrivenProject
from tests.crash.toys import KINDS, NAMES, assert_right, counts, open_gates, three


def settled(driven: DrivenProject, kind: str) -> None:
    """Three right results that have been found up to date twice, so that every cache knows them."""
    open_gates(driven)
    for _ in range(3):
        done = driven.run()
        assert done.code == 0, done.err
        time.sleep(0.05)  # younger results are read again, as their time of change says too little
    assert "nothing to do: all 3 stages are up to date" in done.err
    assert counts(driven) == dict.fromkeys(NAMES, 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["t8a-edited", "t8b-deleted", "t8e-same-size-and-time", "emptied"])
def test_t8_an_output_that_is_another_one_is_made_again(driven: DrivenProject, kind: str, how: str) -> None:
    three(driven, kind)
    settled(driven, kind)
    path = driven.stage("one") / "out.txt"
    before = path.stat()
    if how == "t8b-deleted":
        path.unlink()
    else:
        path.write_text({"t8a-edited": "other\n", "t8e-same-size-and-time": "whole eno\n", "emptied": ""}[how])
    if how == "t8e-same-size-and-time":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    done = driven.run()
    assert done.code == 0 and "stage started one (artifact out.txt is gone or was changed)" in done.err
    assert counts(driven) == {"one": 2, "two": 1, "three": 1}
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
def test_t8c_a_command_line_that_changed_runs_what_it_is_of(driven: DrivenProject, kind: str) -> None:
    three(driven, kind)
    settled(driven, kind)
    if kind == "argv":
        three(driven, kind, extra="# another command")
    else:
        three(driven, kind, params={"name": "one", "root": str(driven.root), "more": 1})
    done = driven.run()
    assert done.code == 0 and f"stage started one (parameter {'argv' if kind == 'argv' else 'more'}: " in done.err
    assert counts(driven) == {"one": 2, "two": 1, "three": 1}, "its output is the same, so `three` is up to date"
    assert_right(driven)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["t8d-touched", "t8e-same-size-and-time"])
def test_t8_an_input_that_is_touched_or_edited(driven: DrivenProject, kind: str, how: str) -> None:
    source = driven.root / "source.txt"
    source.write_text("before")
    three(driven, kind, inputs={"source": "tree:source.txt"})
    settled(driven, kind)
    before = source.stat()
    if how == "t8d-touched":
        os.utime(source)
    else:
        source.write_text("behind")
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = driven.run()
    touched = how == "t8d-touched"
    assert done.code == 0 and ("nothing to do" in done.err) == touched
    assert ("stage started one (input source changed)" in done.err) != touched
    assert counts(driven) == {"one": 1 if touched else 2, "two": 1, "three": 1}
    assert_right(driven)


def test_t8e_a_program_of_the_same_size_and_time(driven: DrivenProject) -> None:
    three(driven, "program")
    settled(driven, "program")
    path = Path(driven.root / "stages" / "worker.py")
    before = path.stat()
    path.write_text(path.read_text().replace('"half"', '"HALF"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = driven.run()
    assert done.code == 0 and "stage started one (code stages/worker.py changed)" in done.err
    assert counts(driven) == dict.fromkeys(NAMES, 2)
    assert_right(driven)
