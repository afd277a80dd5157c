"""Git sources: a ref becomes the right full commit or an error; checkouts are whole and clean (O07 to O09)."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kassay.errors import SourceError
from kassay.source import checkout as checkouts
from kassay.source import freeze
from kassay.source.command import Unreachable
from kassay.source.gitmirror import Remote, resolve, tip_of
from tests.source.gitrepo import C1, C2, commit, git, upstream


@pytest.fixture
def up(tmp_path: Path) -> Path:
    """The repository of O07."""
    return upstream(tmp_path / "up")


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    """Mirrors below the test's folder."""
    return Remote(home=tmp_path / "build" / "mirrors", mirrors="", offline=False)


def offline(remote: Remote, mirrors: str = "") -> Remote:
    """The same mirrors without a network."""
    return Remote(home=remote.home, mirrors=mirrors, offline=True)


def frozen(remote: Remote, url: Path | str, ref: str, branch: str = "", kept: Any = None) -> freeze.Frozen:
    """A frozen git source."""
    source = {"kind": "git", "url": str(url), "ref": ref, "branch": branch, "distribution": "d", "module": "m"}
    return freeze.freeze_git("up", source, remote, remote.home.parent / "sources", kept)


def test_a_short_id_is_resolved_in_full_and_an_absent_one_fails(up: Path, remote: Remote) -> None:
    """O07."""
    one = frozen(remote, up, "65617bf0")
    assert (one.facts["commit"], one.facts["ref"], one.facts["ref_kind"]) == (C1, "65617bf0", "abbreviated")
    assert one.path is not None and (one.path / "f").read_text() == "one\n" and not one.moves
    assert frozen(remote, up, C1).facts["commit"] == C1
    with pytest.raises(SourceError, match="has no commit"):
        frozen(remote, up, "65617bf0" + "0" * 32)
    sources = {"up": {"kind": "git", "ref": "65617bf0"}}
    assert freeze.unpinned(sources, []) == ["source `up` asks for `65617bf0`, which is no full commit id"]
    assert freeze.unpinned({"up": {"kind": "git", "ref": C1}}, []) == []


def test_a_branch_is_the_remotes_tip_for_a_new_run_and_stays_for_a_resumed_one(up: Path, remote: Remote) -> None:
    """O08."""
    git(up, "branch", "dev", "HEAD~1")
    first = frozen(remote, up, "dev")
    assert (first.facts["commit"], first.facts["ref_kind"], first.moves) == (C1, "branch", True)
    git(up, "checkout", "-q", "dev")
    git(up, "commit", "-q", "--amend", "-m", "forced")
    git(up, "checkout", "-q", "main")
    tip = git(up, "ls-remote", ".", "refs/heads/dev").split()[0]
    assert tip != C1 and tip_of(remote, str(up), "dev") == tip
    again = frozen(remote, up, "dev")
    assert again.facts["commit"] == tip and again.path != first.path
    assert again.path is not None and git(again.path, "rev-parse", "HEAD") == tip
    resumed = frozen(remote, up, "dev", kept={"kind": "branch", "commit": C1})
    assert resumed.facts["commit"] == C1
    assert resumed.facts["note"] == f"`dev` has moved since this run froze it at {C1}: it is {tip} now"
    git(up, "branch", "-D", "dev")
    assert "is gone now" in frozen(remote, up, "dev", kept={"kind": "branch", "commit": C1}).facts["note"]
    with pytest.raises(SourceError, match="has no commit, branch or tag `dev`"):
        frozen(remote, up, "dev")


def test_tags_are_their_commits_and_what_is_ambiguous_is_refused(up: Path, remote: Remote) -> None:
    git(up, "tag", "light", C1)
    git(up, "tag", "-a", "noted", "-m", "x", C1)
    for name in ("light", "noted", "refs/tags/noted"):
        assert (frozen(remote, up, name).facts["commit"], frozen(remote, up, name).facts["ref_kind"]) == (C1, "tag")
    tag = git(up, "rev-parse", "noted")
    with pytest.raises(SourceError, match="has no commit"):
        frozen(remote, up, tag)  # a full id is a commit's, not a tag's
    git(up, "branch", "light", C2)
    with pytest.raises(SourceError, match="ambiguous: branch 5cf0dc42f53f, tag 65617bf0ffac"):
        frozen(remote, up, "light")
    assert frozen(remote, up, "refs/heads/light").facts["commit"] == C2
    git(up, "branch", "65617bf0", C2)
    with pytest.raises(SourceError, match="ambiguous: abbreviated 65617bf0ffac, branch 5cf0dc42f53f"):
        frozen(remote, up, "65617bf0")


def test_a_branch_hint_is_checked(up: Path, remote: Remote) -> None:
    git(up, "branch", "old", C1)
    assert frozen(remote, up, C1, "old").facts["commit"] == C1
    assert frozen(remote, up, "65617bf0", "main").facts["commit"] == C1
    with pytest.raises(SourceError, match=f"commit {C2} is not on branch `old`"):
        frozen(remote, up, C2, "old")
    with pytest.raises(SourceError, match="has no branch `nowhere`"):
        frozen(remote, up, C2, "nowhere")


def test_nothing_of_the_callers_git_reaches_ours(
    up: Path, remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O09."""
    other = tmp_path / "other"
    kept = commit(other, {"x": "x"})
    before = sorted((str(path), path.read_bytes()) for path in other.rglob("*") if path.is_file())
    for name, text in {
        "GIT_DIR": str(other / ".git"),
        "GIT_INDEX_FILE": str(other / ".git" / "index"),
        "GIT_WORK_TREE": str(other),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{other}.insteadOf",
        "GIT_CONFIG_VALUE_0": str(up),
    }.items():
        monkeypatch.setenv(name, text)
    one = frozen(remote, up, "main")
    assert one.facts["commit"] == C2 != kept
    assert sorted((str(path), path.read_bytes()) for path in other.rglob("*") if path.is_file()) == before
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(SourceError, match="dubious ownership"):
        frozen(remote, up, "main")


def test_submodules_come_at_their_recorded_commits_nested_and_relative(tmp_path: Path, remote: Remote) -> None:
    inner, middle, outer = tmp_path / "inner", tmp_path / "middle", tmp_path / "outer"
    first = commit(inner, {"leaf": "1\n"})
    commit(inner, {"leaf": "2\n"})
    commit(middle, {"m": "m\n"})
    git(middle, "submodule", "add", "-q", str(inner), "in")
    git(middle / "in", "checkout", "-q", first)
    (middle / ".gitmodules").write_text('[submodule "in"]\n\tpath = in\n\turl = ../inner\n')
    second = commit(middle, {})
    commit(outer, {"o": "o\n"})
    git(outer, "submodule", "add", "-q", str(middle), "a dir/mid")
    commit(outer, {})
    one = frozen(remote, outer, "main")
    assert one.path is not None and (one.path / "a dir/mid/in/leaf").read_text() == "1\n"
    (mid,) = one.facts["submodules"]
    assert (mid["at"], mid["url"], mid["commit"]) == ("a dir/mid", str(middle), second)
    assert [(item["url"], item["commit"]) for item in mid["submodules"]] == [(str(inner), first)]
    assert one.facts["files"] == 2 + 2 + 1 and frozen(remote, outer, "main").facts == one.facts
    (one.path / "a dir/mid/in/leaf").write_text("changed\n")
    with pytest.raises(SourceError, match="1 paths are not the commit's: 'leaf'"):
        frozen(remote, outer, "main")


def test_a_checkout_is_clean_by_content_not_by_time(up: Path, remote: Remote) -> None:
    one = frozen(remote, up, C2)
    assert one.path is not None
    path = one.path / "f"
    status = path.stat()
    path.write_text("TWO\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SourceError, match="1 paths are not the commit's: 'f'"):
        frozen(remote, up, C2)
    path.write_text("two\n")
    assert frozen(remote, up, C2).facts == one.facts
    (one.path / "stray.so").write_text("x")
    with pytest.raises(SourceError, match=r"stray\.so"):
        frozen(remote, up, C2)
    (one.path / "stray.so").unlink()
    git(one.path, "config", "remote.origin.url", "/elsewhere")
    with pytest.raises(SourceError, match="`/elsewhere`, wanted is"):
        frozen(remote, up, C2)


def test_a_mirror_of_another_url_or_with_borrowed_objects_is_refused(up: Path, remote: Remote) -> None:
    frozen(remote, up, C2)
    (mirror,) = remote.home.glob("*.git")
    git(mirror, "config", "remote.origin.url", "/elsewhere")
    with pytest.raises(SourceError, match="its origin is `/elsewhere`, asked for is"):
        frozen(remote, up, C2)
    git(mirror, "config", "remote.origin.url", str(up))
    (mirror / "objects/info/alternates").write_text(str(up / ".git/objects") + "\n")
    with pytest.raises(SourceError, match="makes it depend on what is not in it"):
        frozen(remote, up, C2)


def test_offline_a_mirror_is_enough_and_source_mirror_maps_every_url(up: Path, remote: Remote, tmp_path: Path) -> None:
    url = "https://forge.invalid/owner/up"
    with pytest.raises(SourceError, match="has no commit, branch or tag `main`"):
        frozen(offline(remote), url, "main")
    with pytest.raises(SourceError, match=r"has no mirror of https://forge\.invalid/owner/up") as caught:
        frozen(offline(remote, str(tmp_path / "local")), url, "main")
    assert "hint: git clone --mirror" in str(caught.value)
    git(tmp_path, "clone", "-q", "--mirror", str(up), str(tmp_path / "local/owner/up.git"))
    one = frozen(offline(remote, str(tmp_path / "local")), url, "main")
    assert (one.facts["commit"], one.facts["url"], one.facts["note"]) == (C2, url, f"from a local mirror of {url}")
    left = frozen(offline(remote), url, "main")
    assert (left.facts["commit"], left.facts["note"]) == (C2, "offline: as of the last fetch")
    assert frozen(offline(remote), url, C1).facts["note"] == ""


def test_a_commit_that_hangs_on_no_branch_is_fetched_by_its_full_id(up: Path, remote: Remote) -> None:
    git(up, "checkout", "-q", "--detach")
    lost = commit(up, {"f": "three\n"})
    git(up, "update-ref", "refs/pull/1/head", lost)
    git(up, "checkout", "-q", "main")
    assert frozen(remote, up, lost).facts["commit"] == lost


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[str]:
    """A git daemon on loopback that serves the test's folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--reuseaddr", "--export-all", f"--base-path={tmp_path}", "--listen=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen(["git", "daemon", *words, str(tmp_path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not answers(port):
        assert time.monotonic() < deadline, "the daemon does not answer"
        time.sleep(0.05)
    yield f"git://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def answers(port: int) -> bool:
    """Whether something listens on loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_over_a_network(up: Path, remote: Remote, daemon: str) -> None:
    assert frozen(remote, f"{daemon}/up", "65617bf0").facts["commit"] == C1
    with pytest.raises(SourceError) as caught:
        frozen(remote, f"{daemon}/nowhere", "main")
    assert not isinstance(caught.value, Unreachable) and "nowhere" in str(caught.value)


def test_a_host_that_does_not_answer_is_unreachable_not_wrong(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(Unreachable, match="refused"):
            frozen(remote, f"git://127.0.0.1:{port}/x", "main")
        closed.listen()  # takes the connection and says nothing
        with monkeypatch.context() as short, pytest.raises(Unreachable, match=r"did not end within 0\.5 s"):
            short.setattr("kassay.source.gitmirror.ASK_TIMEOUT_S", 0.5)
            frozen(remote, f"http://127.0.0.1:{port}/x", "main")
    with pytest.raises(Unreachable, match="resolve"):
        frozen(remote, "https://host.invalid/x", "main")


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from tests.source.test_git import frozen
from kassay.source.gitmirror import Remote
print(frozen(Remote(home=Path(sys.argv[1]), mirrors="", offline=False), sys.argv[2], "main").facts["commit"])
"""


def test_killed_at_any_moment_the_next_freeze_is_right(tmp_path: Path, remote: Remote) -> None:
    """In the middle of making the mirror, fetching, checking out, renaming: seeded moments over the whole time."""
    up = tmp_path / "large"
    for number in range(3):
        commit(up, {f"d{number}/{index}.bin": os.urandom(20_000) for index in range(40)}, f"c{number}")
    tip = git(up, "rev-parse", "HEAD")
    here = str(Path(__file__).resolve().parents[2])
    argv = [sys.executable, "-c", KILLED.format(here=here)]
    started = time.monotonic()
    subprocess.run([*argv, str(tmp_path / "whole/mirrors"), str(up)], check=True, capture_output=True)
    whole_s = time.monotonic() - started
    for number in range(8):
        home = tmp_path / f"killed-{number}" / "mirrors"
        process = subprocess.Popen([*argv, str(home), str(up)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(whole_s * (number + 3) / 11)
        process.kill()
        process.wait()
        one = frozen(Remote(home=home, mirrors="", offline=False), up, "main")
        assert one.facts["commit"] == tip and one.path is not None
        assert not [path for path in home.parent.rglob("*making*") if path.is_dir()], "no half made thing is left"


def test_lock_files_of_a_dead_git_do_not_stop_the_next_fetch(up: Path, remote: Remote) -> None:
    frozen(remote, up, "main")
    (mirror,) = remote.home.glob("*.git")
    for name in ("packed-refs.lock", "refs/heads/main.lock", "config.lock", "objects/pack/tmp_pack_123456"):
        (mirror / name).write_text("")
    later = commit(up, {"f": "three\n"})
    assert resolve(remote, str(up), "main", "").commit == later


def test_what_a_source_must_say(remote: Remote) -> None:
    with pytest.raises(SourceError) as caught:
        freeze.check(
            {
                "a": {"kind": "svn"},
                "b": {"kind": "git", "url": "u", "ref": 7315208, "distribution": "d", "module": "m"},
                "c": {"kind": "git", "url": "u", "rev": "x", "distribution": "d", "module": "m"},
                "d": {"kind": "release", "distribution": "d", "version": "1"},
            }
        )
    assert [message.partition(": ")[0] for message in caught.value.messages] == [
        "source `a` is of kind `svn`, allowed are git, release, tree",
        "source `b`",
        "source `c` lacks `ref`",
        "source `c` has an unknown key `rev`",
        "source `d` lacks `sha256`",
    ]
    assert checkouts.LARGEST_FILE_BYTES > 1 << 20
