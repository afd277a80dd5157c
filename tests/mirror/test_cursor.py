"""The cursor counts for one place, and only while the copy that it tells of is there."""

from pathlib import Path

from kassay.mirror import cursor
from kassay.mirror.request import Request


def asked(run_dir: Path, project: str, mode: str) -> Request:
    """A request for a place."""
    return Request(
        mirror="wandb", mode=mode, project=project, entity="", run_dir=str(run_dir), stacks="", offline=False
    )


def test_a_cursor_is_of_one_place(tmp_path: Path) -> None:
    here = asked(tmp_path, "p", "online")
    here.folder.mkdir()
    assert cursor.load(here).events == 0
    cursor.save(here, 7, "")
    assert cursor.load(here) == cursor.Cursor(place=["online", "", "p"], events=7, copy="")
    for other in (asked(tmp_path, "q", "online"), asked(tmp_path, "p", "offline")):
        assert cursor.load(other) == cursor.Cursor(place=other.place(), events=0, copy="")


def test_a_cursor_without_its_copy_is_at_zero(tmp_path: Path) -> None:
    here = asked(tmp_path, "p", "offline")
    copy = here.folder / "wandb" / "offline-run-1"
    copy.mkdir(parents=True)
    cursor.save(here, 7, "wandb/offline-run-1")
    assert cursor.load(here).events == 7
    copy.rmdir()
    assert cursor.load(here) == cursor.Cursor(place=here.place(), events=0, copy="")
