"""An input outside the trees, such as a checkpoint: its digest is its identity wherever it lies, and is taken once."""

import json
import os
import time
from pathlib import Path

import pytest

from kassay import digest, paths
from kassay.errors import ConfigError, RunError
from kassay.identity import tree_input
from tests.conftest import Project


@pytest.fixture
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a Hugging Face cache has it: links into a store of blobs."""
    cache = tmp_path_factory.mktemp("hub") / "models--one--two"
    (cache / "blobs").mkdir(parents=True)
    folder = cache / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    for name, text in {"config.json": "{}", "model.safetensors": "w" * 4096, "README.md": "prose"}.items():
        (cache / "blobs" / f"of-{name}").write_text(text)
        (folder / name).symlink_to(Path("../../blobs") / f"of-{name}")
    long_ago = time.time() - 60
    for blob in (cache / "blobs").iterdir():
        os.utime(blob, (long_ago, long_ago))
    return folder


def weights(snapshot: Path) -> Path:
    return (snapshot / "model.safetensors").resolve()


def stages(folder: Path) -> dict[str, object]:
    return {"a": {"program": "ok", "inputs": {"model": f"tree:{folder}"}}}


def test_a_stage_runs_again_if_the_weights_change_and_not_if_the_folder_moves(project: Project, snapshot: Path) -> None:
    assert list(project.go(stages(snapshot)).started) == ["a"]
    assert not project.go(stages(snapshot)).started
    moved = snapshot.parents[2] / "elsewhere"
    snapshot.parents[1].rename(moved)
    folder = moved / "snapshots" / snapshot.name
    again = project.go(stages(folder))  # another plan, for it names the path; the same result
    assert not again.started and list(again.reused) == ["a"]
    data = bytearray(weights(folder).read_bytes())
    data[7] ^= 1
    weights(folder).write_bytes(data)
    assert "input model changed" in project.go(stages(folder)).started["a"]


def test_a_copy_of_plain_files_is_the_same_checkpoint(snapshot: Path, tmp_path: Path) -> None:
    for link in snapshot.iterdir():
        (tmp_path / link.name).write_bytes(link.read_bytes())
    (tmp_path / "README.md").write_text("other prose")
    assert digest.of_unchanging(tmp_path) == digest.of_unchanging(snapshot) == tree_input(f"tree:{snapshot}").sha256


def test_big_files_are_read_once_in_a_process_and_not_by_the_next(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "_known", {})
    monkeypatch.setattr(digest, "_lasting", set())
    blobs = snapshot.parents[1] / "blobs"
    for blob in blobs.iterdir():  # the time of change cannot be put back: wait until it is no longer of this tick
        while time.time_ns() - blob.stat().st_ctime_ns <= digest.TICK_NS:
            time.sleep(0.01)
    read: list[Path] = []
    opened = Path.open

    def counting(self: Path, *args: object, **kwargs: object) -> object:
        read.append(self)
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", counting)
    first = digest.of_unchanging(snapshot)
    (snapshot / "again.safetensors").symlink_to(weights(snapshot))
    digest.of_unchanging(snapshot)
    assert read.count(weights(snapshot)) == 1, "two links to one file are read once"
    (snapshot / "again.safetensors").unlink()
    digest.remember(tmp_path / "book.json")
    digest._known.clear()
    read.clear()
    digest.recall(tmp_path / "book.json")
    assert digest.of_unchanging(snapshot) == first and weights(snapshot) not in read


def test_a_folder_that_changes_while_it_is_read_has_no_digest(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = digest.of_path

    def slow(path: Path) -> str:
        found = true(path)
        (snapshot / "config.json").resolve().write_text('{"changed": true}')
        return found

    monkeypatch.setattr(digest, "of_path", slow)
    with pytest.raises(RunError, match=r"config\.json changed while its digest was taken"):
        digest.of_unchanging(snapshot)
    monkeypatch.setattr(digest, "of_path", lambda path: [true(path), (snapshot / "new.bin").write_text("x")][0])
    with pytest.raises(RunError, match=r"new\.bin changed while"):
        digest.of_unchanging(snapshot)


def test_a_link_that_leads_nowhere_is_named(snapshot: Path) -> None:
    weights(snapshot).unlink()
    with pytest.raises(RunError, match=r"model\.safetensors leads nowhere: the folder is not whole"):
        digest.of_unchanging(snapshot)


def test_a_relative_path_leads_out_of_no_tree(project: Project) -> None:
    with pytest.raises(ConfigError, match=r"`\.\./` does not exist in the project"):
        paths.place("../")
    with pytest.raises(ConfigError, match=r"`/nowhere` does not exist$"):
        paths.place("/nowhere")


def test_the_request_says_where_and_what(project: Project, snapshot: Path) -> None:
    went = project.go(stages(snapshot))
    request = json.loads((paths.stage_dir(went.run.directory, "a") / paths.REQUEST).read_bytes())
    assert request["inputs"]["model"] == {"path": str(snapshot), "sha256": digest.of_path(snapshot)}
