"""`make gc`: keeps what runs name, touches only what carries our mark, deletes only when told, follows no link."""

import json
import subprocess
from pathlib import Path

import filelock
import pytest

from kassay import digest, gc, paths, runs
from kassay.errors import ConfigError, RunError
from kassay.lock import held
from kassay.source.address import slug
from tests.invented import Invented, run

URL = "https://host.invalid/owner/name"
USED, UNUSED = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a run that names one stack and one source, and twice as much under build/."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(runs, "results_folder", lambda: tmp_path / "results")
    run_dir = run(tmp_path / "results", "a-20261130T000000Z-0", {"build": Invented(program="build")})
    (run_dir / paths.LOCK).touch()
    stage = run_dir / "stages" / "build"
    stage.joinpath("stack.json").write_text(json.dumps({"python": f"/x/build/stacks/{USED}/bin/python"}))
    for key in (USED, UNUSED):
        wheel = key.replace("a", "c").replace("b", "d")
        sources = {"name": {"wheel_key": wheel, "wheel_sha256": wheel * 4}}
        put(tmp_path / "build/stacks" / key / paths.ATTESTED, {"lock": [], "sources": sources})
        put(tmp_path / "build/wheels" / wheel / "built.json", {"key": wheel, "sha256": wheel * 4})
    stage.joinpath("pins.json").write_text(json.dumps({"path": str(source(tmp_path, URL))}))
    stage.joinpath("sources.json").write_text(json.dumps({"url": URL}))
    source(tmp_path, URL + "2")
    mirror(tmp_path, URL)
    mirror(tmp_path, URL + "2")
    return tmp_path


def put(path: Path, body: object) -> Path:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body))
    return path


def git(*words: str, cwd: Path) -> None:
    """Run git."""
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=cwd, check=True, capture_output=True)


def source(root: Path, url: str) -> Path:
    """A checkout as freeze leaves it, read-only folders included."""
    commit = "0123456789ab" + "0" * 28
    place = root / "build/sources" / f"name-{commit[:12]}-{digest.of_value(url)[:6]}"
    (place / "inside").mkdir(parents=True)
    (place / "inside" / "file").touch()
    git("init", "-q", ".", cwd=place)
    git("config", "remote.origin.url", url, cwd=place)
    (place / ".git/HEAD").write_text(commit + "\n")
    (place / "inside").chmod(0o500)
    return place


def mirror(root: Path, url: str) -> Path:
    """A bare mirror."""
    place = root / "build/mirrors" / f"{slug(url)}-{digest.of_value(url)[:12]}.git"
    place.parent.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "--bare", str(place), cwd=root)
    git("config", "remote.origin.url", url, cwd=place)
    return place


def there(root: Path) -> set[str]:
    """What is below build/, as `kind/name`."""
    found = [path for path in (root / "build").glob("*/*") if not path.name.endswith(".lock")]
    return {str(path.relative_to(root / "build")) for path in found}


def test_what_a_run_names_stays_and_nothing_goes_unasked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = there(root)
    assert gc.do_gc(None) == 0
    told = capsys.readouterr()
    garbage = {line.split("  ")[0].rpartition("build/")[2] for line in told.out.splitlines()}
    assert there(root) == before and len(garbage) == 4 and len(before) == 8
    assert "4 of 8 entries" in told.err and "make gc NOW=1 deletes them" in told.err
    assert gc.do_gc("1") == 0 and there(root) == before - garbage
    assert f"stacks/{USED}" in there(root) and f"stacks/{UNUSED}" in garbage
    assert gc.do_gc("1") == 0 and "0 of 4 entries" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="allowed is NOW=1"):
        gc.do_gc("yes")


def test_results_are_never_touched_and_their_loss_makes_garbage(root: Path) -> None:
    run_dir = next((root / "results").glob("a-*"))
    stale = run_dir / "stages" / ".build.stale-1"
    (run_dir / "stages" / "build").rename(stale)
    gc.do_gc("1")
    assert len(there(root)) == 4 and stale.is_dir()  # what a set-aside stage names stays
    (root / "on-slurm").mkdir()
    run_dir.rename(root / "on-slurm" / run_dir.name)
    gc.do_gc("1")
    assert len(there(root)) == 4  # another results folder of the project
    (root / "on-slurm" / run_dir.name).rename(root / "elsewhere")
    gc.do_gc("1")
    assert there(root) == set()


def test_what_carries_no_mark_is_left(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "kept").touch()
    build = root / "build"
    strange = [
        build / "stacks" / "mine", build / "stacks" / ("e" * 16), build / "wheels" / ("e" * 16),
        build / "sources" / "mine", build / "mirrors" / "mine.git", build / "check" / "bin",
    ]  # fmt: skip
    for path in strange:
        path.mkdir(parents=True)
    put(build / "stacks" / "mine" / paths.ATTESTED, {"lock": []})
    put(build / "wheels" / ("e" * 16) / "built.json", {"key": "other"})
    moved = mirror(root, URL + "3")
    git("config", "remote.origin.url", URL + "4", cwd=moved)
    (build / "stacks" / ("f" * 16)).symlink_to(outside)
    (build / "stacks" / UNUSED / "out").symlink_to(outside)
    gc.do_gc("1")
    assert all(path.is_dir() for path in (*strange, moved)) and (outside / "kept").exists()
    assert not (build / "stacks" / UNUSED).exists() and (build / "stacks" / ("f" * 16)).is_symlink()


def test_a_folder_of_build_that_is_a_link_is_not_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "stacks"
    (root / "build/stacks").rename(outside)
    (root / "build/stacks").symlink_to(outside)
    gc.do_gc("1")
    assert sorted(path.name for path in outside.iterdir()) == [USED, UNUSED]


def test_what_is_in_use_is_left_and_beside_a_run_nothing_goes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "build/stacks" / f".{'e' * 16}.making-1f").mkdir()  # of a build that was killed
    with filelock.FileLock(root / "build/stacks" / f".{UNUSED}.lock"):
        gc.do_gc("1")
    assert f"stacks/{UNUSED}: another process uses it" in capsys.readouterr().err
    assert {name for name in there(root) if name.startswith("stacks")} == {f"stacks/{USED}", f"stacks/{UNUSED}"}
    with held(next((root / "results").glob("a-*")) / paths.LOCK, wait=False):
        gc.do_gc(None)  # a look is free
        with pytest.raises(RunError, match="goes on: nothing is deleted beside it"):
            gc.do_gc("1")
    assert f"stacks/{UNUSED}" in there(root)
