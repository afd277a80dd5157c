"""No secret in any file of a run: planted in environment, arguments, urls, logs, reasons, records and artifacts."""

import time
from pathlib import Path

import pytest

from kassay import paths, secret
from kassay.config.setting import Setting
from kassay.errors import ConfigError
from kassay.planned import Planned
from kassay.report import render_run
from tests.conftest import Project

ENVIRONMENT = {
    "HF_TOKEN": "planted-hub-token",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+secret",
    "HTTPS_PROXY": "http://me:planted-proxy-word@127.0.0.1:9",
    "DATABASE": "postgres://me:planted-base-word@127.0.0.1/x",
}
WORDS = ["planted-hub-token", "planted/aws+secret", "planted-proxy-word", "planted-base-word"]
# In no variable: found by their form alone.
FORMS = {
    "https://me:planted1@example.org/x": "https://me:[withheld]@example.org/x",
    "https://planted2@example.org/x.git": "https://[withheld]@example.org/x.git",
    "GET /x?a=1&access_token=planted3&b=2": "GET /x?a=1&access_token=[withheld]&b=2",
    "Authorization: Bearer planted4.x-y": "Authorization: Bearer [withheld]",
    "'authorization': 'Basic planted5=='": "'authorization': 'Basic [withheld]'",
    "hf_" + "planted6" * 4: "[withheld]",
    "ghp_" + "planted7" * 4: "[withheld]",
}
HARMLESS = [
    "https://example.org:8080/a@b?monkey=3&x=token",
    "ssh://git@example.org/x",
    "task-abcdefghijklmnopqrstuvwxyz",
    "hf_transfer",
    "user@example.org",
    "4:20 @ 5:10",
]
TALK = """
    print(*os.environ.items(), sep="\\n")
    for line in stage.params["said"]: print(line, file=sys.stderr)
    return {"said": 1}
"""
CRASH = '    raise ValueError("no answer to " + os.environ["HF_TOKEN"] + " from https://me:planted1@example.org")'
SAY_NO = '    return stage.rejected("not with " + os.environ["AWS_SECRET_ACCESS_KEY"])'
KEEP = """
    stage.write_json("out", {"of": os.environ["HF_TOKEN"]})
    return {"said": os.environ["HF_TOKEN"]}
"""


@pytest.fixture
def planted(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose stages tell what they should not."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name, body in {"talk": TALK, "crash": CRASH, "no": SAY_NO, "keep": KEEP}.items():
        project.program(name, body)
    return project


def holding(run_dir: Path) -> list[str]:
    """The files of a run that hold anything planted."""
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    assert len(files) > 15, "a bug of the test: there is nothing to search"
    words = [word.encode() for word in (*WORDS, "planted1", "planted2", "planted3", "planted4", "planted5", "planted6")]
    return [f"{path}: {word!r}" for path in files for word in words if word in path.read_bytes()]


def test_no_file_of_a_run_holds_one(planted: Project) -> None:
    command = 'echo "$HF_TOKEN"; echo "https://me:$HF_TOKEN@example.org" >&2; echo done > out.txt'
    went = planted.go(
        {
            "talk": {"program": "talk", "params": {"said": [*HARMLESS, "a line"]}},
            "crash": {"program": "crash", "retries": 1},
            "no": {"program": "no"},
            "keep": {"program": "keep"},
            "plain": {"argv": ["sh", "-c", command], "outputs": {"out": "out.txt"}},
            "copy": {"argv": ["sh", "-c", 'echo "$HF_TOKEN" > out.txt'], "outputs": {"out": "out.txt"}},
        }
    )
    assert went.words == {
        "talk": "passed", "crash": "crashed", "no": "rejected", "keep": "crashed", "plain": "passed", "copy": "crashed",
    }  # fmt: skip
    render_run(went.run.directory)
    assert holding(went.run.directory) == []
    talk = paths.stage_dir(went.run.directory, "talk")
    assert (talk / paths.STDERR).read_text().splitlines() == [*HARMLESS, "a line"], "the rest is as it was said"
    assert "('HTTPS_PROXY', 'http://me:[withheld]@127.0.0.1:9')" in (talk / paths.STDOUT).read_text()
    assert went.reasons["crash"].endswith("no answer to [withheld] from https://me:[withheld]@example.org")
    assert went.reasons["no"] == "not with [withheld]"
    assert "out.json held the value of HF_TOKEN: withheld, so that it is no result any more" in went.reasons["keep"]
    assert went.reasons["copy"].startswith("out.txt held the value of HF_TOKEN")


def test_a_long_log_is_cleaned_and_a_clean_one_is_left_alone(tmp_path: Path) -> None:
    filler = b"nothing to see\n" * (secret.BLOCK_BYTES // 15 + 1)
    for name, end in ((paths.STDOUT, b"value-of-a-token\n"), (paths.STDERR, b"")):
        (tmp_path / name).write_bytes(filler + end)
    before = (tmp_path / paths.STDERR).stat()
    secret.clean_logs(tmp_path, {"X_TOKEN": b"value-of-a-token"})
    assert (tmp_path / paths.STDOUT).read_bytes() == filler + secret.WITHHELD + b"\n"
    after = (tmp_path / paths.STDERR).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((paths.STDOUT, paths.STDERR))


def test_a_line_without_an_end_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces end at blanks, so that no value lies across two; the line stays one."""
    monkeypatch.setattr(secret, "BLOCK_BYTES", 64)
    monkeypatch.setenv("TOOL_TOKEN", "planted-value-1")
    line = b" ".join(b"x" * (number % 40) + b" planted-value-1" for number in range(200))
    (tmp_path / "stdout.log").write_bytes(line)
    with (tmp_path / "stdout.log").open("rb") as stream:
        pieces = list(secret.blocks(stream))
    assert b"".join(pieces) == line and max(map(len, pieces)) <= 128
    assert secret.clean(tmp_path) == ""
    assert (tmp_path / "stdout.log").read_bytes() == line.replace(b"planted-value-1", b"[withheld]")


@pytest.mark.parametrize("unit", ["a.", "a://", "https://a", "?token=&", "authorization: ", "a:@", "hf_a", "://"])
def test_a_line_of_a_megabyte_takes_less_than_a_second(unit: str) -> None:
    line = b"https://x " + unit.encode() * ((1 << 20) // len(unit))
    began = time.process_time()
    secret.withheld(line, [])
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(("said", "kept"), FORMS.items())
def test_what_has_the_form_of_one_is_withheld(said: str, kept: str) -> None:
    assert secret.withheld(f"<{said}>".encode(), []).decode() == f"<{kept}>"


@pytest.mark.parametrize("said", HARMLESS)
def test_what_has_not_stays(said: str) -> None:
    assert secret.withheld(said.encode(), []) == said.encode()


def test_short_values_and_paths_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"A_TOKEN": "short", "B_TOKEN": "/a/path/to/a/file", "NAME": "planted-name"}.items():
        monkeypatch.setenv(name, value)
    assert not {"A_TOKEN", "B_TOKEN", "NAME"} & set(secret.known())


def test_what_is_asked_may_hold_none(planted: Project) -> None:
    plan = planted.plan(
        {
            "a": {"program": "talk", "params": {"said": ["https://me:planted1@example.org"], "n": {"x": 1}}},
            "b": {"argv": ["curl", "-H", "planted-hub-token"]},
            "c": {"program": "talk", "params": {"said": HARMLESS}},
        }
    )
    settings = {
        "SOURCE_MIRROR": Setting(value="https://planted-hub-token@x", origin="user", where=""),
        "TIMING_BLOCKS": Setting(value=3, origin="user", where=""),
    }
    with pytest.raises(ConfigError) as told:
        secret.require_none(Planned(plan=plan, settings=settings, overrides=["a.b=planted/aws+secret"]))
    assert list(told.value.messages) == [
        "setting `SOURCE_MIRROR` holds a login or a token",
        "setting `SOURCE_MIRROR` holds the value of HF_TOKEN",
        "override 1 holds the value of AWS_SECRET_ACCESS_KEY",
        "stage `a` holds a login or a token",
        "stage `b` holds the value of HF_TOKEN",
    ]
    assert not any(word in str(told.value) for word in WORDS)
