"""A run in a tar: all that an audit needs, equal bytes for equal runs, no secret; and what a hostile tar cannot do."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kassay import digest, paths
from kassay.audit import audit, audit_tar
from kassay.audit.files import load
from kassay.errors import RunError
from kassay.export import export
from kassay.export.unpack import unpack
from kassay.lock import owned
from tests.invented import Invented, gate, run

NAME = "a-20261130T000000Z-0"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A run of one stage."""
    return run(tmp_path / "results", NAME, {"certify": Invented(program="measured", records=[gate()])})


def exported(run_dir: Path, target: Path) -> Path:
    """The tar of a run."""
    list(export(run_dir, target))
    return target


def names(tar: Path) -> list[str]:
    """Its members."""
    with tarfile.open(tar) as stream:
        return stream.getnames()


def test_a_run_follows_from_its_tar(judged_run: Path, tmp_path: Path) -> None:
    tar = exported(judged_run, tmp_path / "x.tar")
    found = audit_tar(tar)
    assert found.exit_code == 0 and {one.how for one in found.audited} == {"rederived", "recounted"}


def test_equal_runs_give_equal_bytes_wherever_and_whenever(small: Path, tmp_path: Path) -> None:
    first = exported(small, tmp_path / "x.tar").read_bytes()
    moved = tmp_path / "elsewhere" / NAME
    shutil.copytree(small, moved, copy_function=shutil.copy)  # other times
    (moved / "stages/certify" / paths.RECORDS).chmod(0o600)
    (moved / "report.html").write_text("<html>")
    (moved / "stages/certify" / paths.STDERR).write_text("a log")
    assert exported(moved, tmp_path / "y.tar").read_bytes() == first
    with tarfile.open(tmp_path / "x.tar") as stream:
        assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in stream} == {(0, 0, 0, "", 0o644)}


def test_a_result_of_another_run_goes_as_files(small: Path, tmp_path: Path) -> None:
    other = run(small.parent, "b-20261130T000001Z-0", {"certify": Invented(program="measured", records=[gate()])})
    shutil.rmtree(other / "stages/certify")
    (other / "stages/certify").symlink_to(f"../../{NAME}/stages/certify")
    tar = exported(other, tmp_path / "x.tar")
    assert f"{other.name}/stages/certify/{paths.RECORDS}" in names(tar)


def test_what_a_judging_stage_read_of_a_tree_goes_along(
    tmp_path: Path, project: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = paths.ROOT / "data"
    data.mkdir()
    (data / "figures.jsonl").write_text("{}\n")
    sha256 = digest.of_file(data / "figures.jsonl")
    judge = Invented(
        program="published", inputs={"figures": "tree:data/figures.jsonl"}, input_sha256={"figures": sha256}
    )
    run_dir = run(tmp_path / "results", NAME, {"published": judge})
    tar = exported(run_dir, tmp_path / "x.tar")
    assert f"{NAME}/tree/{sha256}/figures.jsonl" in names(tar)
    (data / "figures.jsonl").write_text("{} \n")
    there, found = unpack(tar, fresh(tmp_path))
    brought = load(there).of_tree("tree:data/figures.jsonl", sha256)
    assert not found and brought is not None and brought.is_relative_to(there) and digest.of_file(brought) == sha256
    assert load(there).of_tree("tree:data/figures.jsonl", "../" * 21 + "x") == data / "figures.jsonl"
    assert list(export(run_dir, tmp_path / "y.tar")) == [
        "left out: `tree:data/figures.jsonl` is not what the run has read any more"
    ]


def test_a_run_that_goes_on_is_not_exported(small: Path, tmp_path: Path) -> None:
    with owned(small, "token", []):
        (small / paths.EVENTS).write_text((small / paths.EVENTS).read_text().partition("\n")[0] + "\n")
        with pytest.raises(RunError, match="goes on"):
            exported(small, tmp_path / "x.tar")
    for target, said in ((small / "x.tar", "lies in the run itself"), (tmp_path / "x.zip", "ends in `.tar`")):
        with pytest.raises(RunError, match=said):
            exported(small, target)
    assert not list(tmp_path.glob("*.tar")) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("place", "text", "said"),
    [
        ("stages/certify/request.json", "s3cr3t-value-1", "the value of SOME_API_KEY"),
        ("stages/certify/records.jsonl", "https://user:pass@host.invalid/x", "a url with a password"),
        ("manifest.json", "hf_" + "a" * 34, "a token of Hugging Face"),
    ],
)
def test_a_secret_stops_the_export_and_is_not_shown(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, text: str, said: str
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "s3cr3t-value-1")
    monkeypatch.setenv("OTHER_TOKEN", "short")
    assert exported(small, tmp_path / "clean.tar").exists()
    path = small / place
    path.write_text("x" * (1 << 20) + path.read_text() + text)
    if path.name == "manifest.json":
        path.write_text(json.dumps({"token": text}))
    with pytest.raises(RunError) as caught:
        exported(small, tmp_path / "x.tar")
    assert caught.value.messages == (f"{place}: it holds {said}",) and not (tmp_path / "x.tar").exists()


def test_an_edited_tar_is_told_apart(small: Path, tmp_path: Path) -> None:
    tar = exported(small, tmp_path / "x.tar")
    changed = small / "stages/certify" / paths.RECORDS
    changed.write_bytes(changed.read_bytes().replace(b"0.0074", b"0.0073"))
    members = {name: content for name, content in contents(tar).items() if not name.endswith(paths.RECEIPT)}
    members[f"{NAME}/stages/certify/{paths.RECORDS}"] = changed.read_bytes()
    members[f"{NAME}/stages/certify/more.json"] = b"{}"
    written(tar, [(regular(name), content) for name, content in members.items()])
    _, found = unpack(tar, fresh(tmp_path))
    assert [(one.record.rpartition("/")[2], one.field) for one in found] == [
        ("more.json", "presence"), ("receipt.json", "presence"), ("records.jsonl", "sha256"),
    ]  # fmt: skip
    assert audit_tar(tar).exit_code == 3


def contents(tar: Path) -> dict[str, bytes]:
    """Name -> bytes."""
    with tarfile.open(tar) as stream:
        return {one.name: taken.read() for one in stream if (taken := stream.extractfile(one)) is not None}


def regular(name: str) -> tarfile.TarInfo:
    """A regular file."""
    return tarfile.TarInfo(name)


def of_type(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A member of another type."""
    one = tarfile.TarInfo(name)
    one.type, one.linkname = kind, target
    return one


def written(tar: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """A tar of these members."""
    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as stream:
        for one, content in members:
            one.size = len(content)
            stream.addfile(one, io.BytesIO(content))


def fresh(tmp_path: Path) -> Path:
    """An empty folder, deep enough that what leaves it is seen."""
    folder = tmp_path / "deep" / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


HOSTILE: dict[str, tuple[list[tuple[tarfile.TarInfo, bytes]], str]] = {
    "absolute": ([(regular("/etc/evil"), b"x")], "no plain name"),
    "parent": ([(regular(f"{NAME}/../../evil"), b"x")], "no plain name"),
    "dot": ([(regular(f"{NAME}/./plan.json"), b"x")], "no plain name"),
    "control": ([(regular(f"{NAME}/a\nb"), b"x")], "no plain name"),
    "backslash": ([(regular(f"{NAME}\\..\\evil"), b"x")], "no plain name"),
    "empty part": ([(regular(f"{NAME}//evil"), b"x")], "no plain name"),
    "deep": ([(regular("/".join(["d"] * 40)), b"x")], "no plain name"),
    "symlink": ([(of_type(f"{NAME}/stages", tarfile.SYMTYPE, "/etc"), b""), (regular(f"{NAME}/stages/x"), b"x")],
                "neither a regular file nor a folder"),
    "hard link": ([(of_type(f"{NAME}/x", tarfile.LNKTYPE, "/etc/passwd"), b"")], "neither a regular file"),
    "device": ([(of_type(f"{NAME}/x", tarfile.CHRTYPE), b"")], "neither a regular file"),
    "pipe": ([(of_type(f"{NAME}/x", tarfile.FIFOTYPE), b"")], "neither a regular file"),
    "sparse": ([(of_type(f"{NAME}/x", tarfile.GNUTYPE_SPARSE), b"")], "."),
    "twice": ([(regular(f"{NAME}/x"), b"1"), (regular(f"{NAME}/x"), b"2")], "is in it twice"),
    "file and folder": ([(regular(f"{NAME}/x"), b"1"), (regular(f"{NAME}/x/y"), b"2")], "have one name"),
    "two tops": ([(regular(f"{NAME}/export.json"), b"{}"), (regular("other/x"), b"x")], "no exported run"),
    "no export": ([(regular(f"{NAME}/plan.json"), b"{}")], "no exported run"),
    "index": ([(regular(f"{NAME}/export.json"), b"[]")], "export.json: it cannot be read"),
    "nested index": ([(regular(f"{NAME}/export.json"), b"[" * 100_000)], "export.json: it cannot be read"),
    "long name": ([(regular(NAME + "/" + "/".join(["n" * 200] * 6)), b"x")], "no plain name"),
    "long header": ([(regular(NAME + "/" + "n" * (1 << 17)), b"x")], "a header of"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tar_is_refused_and_leaves_nothing_outside(name: str, tmp_path: Path) -> None:
    members, said = HOSTILE[name]
    written(tmp_path / "x.tar", members)
    with pytest.raises(RunError, match=said):
        unpack(tmp_path / "x.tar", fresh(tmp_path))
    outside = [path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "deep/folder")]
    assert sorted(path.name for path in outside) == ["deep", "x.tar"]
    assert not any(path.is_symlink() for path in (tmp_path / "deep").rglob("*"))


def compressed(data: bytes) -> bytes:
    """What unpacks to a thousand times its size."""
    import gzip

    return gzip.compress(data + b"\0" * 10_000_000)


CUT: dict[str, Callable[[bytes], bytes]] = {
    "cut in a file": lambda data: data[:600],
    "cut in a header": lambda data: data[:300],
    "empty": lambda data: b"",
    "text": lambda data: b"{}" * 1000,
    "compressed": compressed,
    "a size of petabytes": lambda data: data[:124] + b"77777777777\0" + data[136:],
    "a size below zero": lambda data: data[:124] + b"\xff" * 12 + data[136:],
    "a wrong sum": lambda data: data[:148] + b"0000000\0" + data[156:],
}


@pytest.mark.parametrize("name", CUT)
def test_a_tar_that_is_none_is_refused(name: str, small: Path, tmp_path: Path) -> None:
    tar = exported(small, tmp_path / "x.tar")
    tar.write_bytes(CUT[name](tar.read_bytes()))
    with pytest.raises(RunError):
        unpack(tar, fresh(tmp_path))
    with pytest.raises(RunError, match="no such file"):
        audit_tar(tmp_path / "absent.tar")


@pytest.mark.parametrize("stage", ["../../evil", "/evil", "a/../../b", "", "a.../x"])
def test_a_plan_whose_names_are_paths_is_refused(stage: str, small: Path, tmp_path: Path) -> None:
    body = json.loads((small / paths.PLAN).read_bytes())
    body["stages"][0]["name"] = stage
    (small / paths.PLAN).write_text(json.dumps(body))
    with pytest.raises(RunError, match="none that a plan could have"):
        audit(small)


def test_an_artifact_outside_its_stage_is_not_read(small: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for file in ("../../../../secret", str(tmp_path / "secret"), "link"):
        body = json.loads((small / "stages/certify" / paths.OUTCOME).read_bytes())
        body["artifacts"]["records"]["file"] = file
        (small / "stages/certify" / paths.OUTCOME).write_text(json.dumps(body))
        if file == "link":
            (small / "stages/certify/link").symlink_to(tmp_path / "secret")
        found = audit(small).differences
        assert [(one.record, f"artifact '{file}' is no file of its stage") for one in found] == [
            (one.record, one.recorded) for one in found
        ]
        assert names(exported(small, tmp_path / "x.tar")).count(f"{NAME}/stages/certify/{file}") == 0
