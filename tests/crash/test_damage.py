"""Row t4 of the crash table: each file that kassay keeps, overwritten with garbage or cut in half.

Never a traceback; the verbs that only look say something useful; the next `run` gives three right results. A file that
is a result is worth nothing when it is damaged, so its stage runs again; one that only saves time is made again.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kassay import paths
from tests.crash.project import DrivenProject, copy_tree
from tests.crash.toys import NAMES, open_gates, output, worker

GARBAGE = b"\x00\xff\xfe{\x80garbage\n\x00" * 20
DAMAGES = ("garbage", "cut", "empty", "null", "words")
OF_DISKS = ("garbage", "cut", "empty")
OF_STAGE = (paths.OUTCOME, paths.RECEIPT, paths.REQUEST)
OF_RUN = (paths.PLAN, paths.MANIFEST, paths.EVENTS, paths.OWNER, paths.KEPT, ".book.json", ".lock")
OWNER = {"pid": 1, "host": "elsewhere", "since": "2026-01-01T00:00:00.000Z", "started": 1, "token": "0", "only": []}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenProject]:
    """One project for all the damages: `one` is a program, the others are plain executables."""
    project = DrivenProject(copy_tree(tmp_path_factory.mktemp("damage") / "tree"))
    reader = worker(project, "argv", "three", inputs={"x": "one.out"})
    project.workflow({"one": worker(project, "program", "one"), "two": worker(project, "argv", "two"), "three": reader})
    open_gates(project)
    spoilt(project).touch()
    yield project
    project.end()


def spoilt(project: DrivenProject) -> Path:
    """A file that is there from a damage until a run has shown that all is right."""
    return project.root / "spoilt"


@pytest.fixture
def settled(made: DrivenProject) -> DrivenProject:
    """Three right results that every cache knows; what a failed test left is thrown away."""
    if spoilt(made).exists():
        shutil.rmtree(made.results, ignore_errors=True)
        shutil.rmtree(made.root / "build", ignore_errors=True)
        for _ in range(3):
            assert made.run().code == 0
            time.sleep(0.5)  # a name of a run has seconds
    spoilt(made).touch()
    return made


def damage(path: Path, how: str) -> None:
    """Overwrite a file in place, as a disk does; `words` is JSON of the right keys with a text for every value."""
    data = path.read_bytes() if path.is_file() else b"{}"
    try:
        body = json.loads(data)
    except ValueError:
        body = {}
    new = {
        "garbage": GARBAGE,
        "cut": data[: len(data) // 2],
        "empty": b"",
        "null": b"null",
        "words": json.dumps(dict.fromkeys(body if isinstance(body, dict) else {}, "?")).encode(),
    }
    path.write_bytes(new[how])


def look_and_run(project: DrivenProject) -> str:
    """Every verb that looks, then a run to three right results; what the run said."""
    for verb in ("plan", "status"):
        done = project.kassay(verb)
        assert done.plain and done.code in (0, 1, 2), f"{verb}: {done.err}"
    done = project.run()
    assert done.code == 0, done.err
    assert project.words() == dict.fromkeys(NAMES, "passed")
    assert {name: output(project, name) for name in NAMES} == {name: f"whole {name}\n" for name in NAMES}
    assert project.temporaries() == [] and project.left() == []
    spoilt(project).unlink()
    return done.err


@pytest.mark.parametrize("stage", ["one", "two"])
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", OF_STAGE)
def test_a_damaged_file_of_a_stage(settled: DrivenProject, name: str, how: str, stage: str) -> None:
    damage(settled.stage(stage) / name, how)
    said = look_and_run(settled)
    assert f"stage started {stage} (" in said and said.count("stage reused") == 2
    assert "its files cannot be read" in said or how == "words"


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", OF_RUN)
def test_a_damaged_file_of_a_run(settled: DrivenProject, name: str, how: str) -> None:
    path = settled.run_dir / name
    if name == paths.OWNER:
        path.write_text(json.dumps(OWNER))
    damage(path, how)
    said = look_and_run(settled)
    assert said.count("stage reused") == 3 and "stage started" not in said


@pytest.mark.parametrize("how", OF_DISKS)
def test_a_damaged_plan_that_was_kept(settled: DrivenProject, how: str) -> None:
    plans = settled.root / "build" / "plans"
    assert list(plans.glob("*.json"))
    for path in plans.glob("*.json"):
        damage(path, how)
    assert "nothing to do" in look_and_run(settled)


@pytest.mark.parametrize("how", OF_DISKS)
@pytest.mark.parametrize("name", [".gitignore", ".lock", "latest"])
def test_a_damaged_file_of_the_results_folder(settled: DrivenProject, name: str, how: str) -> None:
    path = settled.results / name
    if path.is_symlink():
        path.unlink()
    damage(path, how)
    assert "stage started" not in look_and_run(settled)
