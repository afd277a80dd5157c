"""Hostile sources: each is refused with a clear message, and nothing outside the build folder is touched."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kassay.errors import SourceError
from kassay.source import checkout as checkouts
from kassay.source.address import joined
from kassay.source.gitmirror import Remote
from tests.source.gitrepo import commit, git
from tests.source.test_git import frozen

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n"

URLS = {
    "--upload-pack=touch pwned": "holds ' '",
    "--upload-pack=touch": "would be an option of git",
    "-u/tmp": "would be an option of git",
    "ext::sh -c touch% pwned": "holds ' '",
    "ext::touch": "names a command transport",
    "fd::7": "names a command transport",
    "::file://x": "names a command transport",
    "https://host/x\n--config": "holds '\\n'",
    "https://user:token@host/x": "holds a login",
    "https://token@host/x": "holds a login",
    "ssh://-oProxyCommand=touch/x": "would be an option of ssh",
    "ftp://host/x": "is of scheme `ftp`",
    "javascript:alert(1)": "",
    "": "would be an option",
    "relative/path": "is neither a url",
    "../up": "is neither a url",
    "https:///x": "has no host",
}
REFS = [
    "--upload-pack=x",
    "-x",
    "a..b",
    "a b",
    "a\nb",
    "HEAD^",
    "x:y",
    "@{-1}",
    "a.lock",
    "/a",
    "a/",
    "*",
    "",
    "@",
    "x~1",
]


@pytest.fixture
def world(tmp_path: Path) -> Callable[[], dict[str, str]]:
    """Digests of every file of the test's folder outside build/."""

    def digests() -> dict[str, str]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and "build" not in path.parts]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    return digests


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    """Mirrors below the test's folder."""
    return Remote(home=tmp_path / "build" / "mirrors", mirrors="", offline=False)


def refused(remote: Remote, url: Path | str, ref: str = "main") -> str:
    """The message with which a source is refused."""
    with pytest.raises(SourceError) as caught:
        frozen(remote, url, ref)
    assert not list(remote.home.parent.glob("sources/[!.]*")), "no checkout is left"
    return str(caught.value)


@pytest.mark.parametrize("url", URLS)
def test_a_url_that_is_more_than_an_address(url: str, remote: Remote, tmp_path: Path) -> None:
    os.chdir(tmp_path)
    said = refused(remote, url)
    assert URLS[url] in said and "token" not in said.replace("--", "") and not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("ref", REFS)
def test_a_ref_that_is_no_name(ref: str, remote: Remote, tmp_path: Path) -> None:
    commit(tmp_path / "up", {"f": "1"})
    assert "is no name of a commit, branch or tag" in refused(remote, tmp_path / "up", ref)


@pytest.mark.parametrize("ref", ["nowhere", "0" * 40, "deadbeef", "refs/heads/x", "HEAD", "refs/pull/1/head"])
def test_a_ref_that_is_not_there(ref: str, remote: Remote, tmp_path: Path) -> None:
    commit(tmp_path / "up", {"f": "1"})
    assert "has no commit" in refused(remote, tmp_path / "up", ref)


LINKS = {"/etc/passwd": "leads out", "../../outside": "leads out", "..": "leads out", ".git/config": "leads out"}


@pytest.mark.parametrize("target", LINKS)
def test_a_link_that_leaves_the_tree(target: str, remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("mine\n")
    (tmp_path / "up" / "d").mkdir(parents=True)
    (tmp_path / "up" / "d" / "inside").symlink_to("../f")
    commit(tmp_path / "up", {"f": "1"})
    assert frozen(remote, tmp_path / "up", "main").path is not None, "a link that stays is no harm"
    (tmp_path / "up" / "link").symlink_to(target)
    head = commit(tmp_path / "up", {})
    with pytest.raises(SourceError) as caught:
        frozen(remote, tmp_path / "up", head)
    assert f"link `link` {LINKS[target]} of the tree, to `{target}`" in str(caught.value)


def test_a_name_with_a_line_break_and_an_lfs_pointer_and_a_huge_file(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkouts, "LARGEST_FILE_BYTES", 1 << 20)
    files = {"two\nlines": "1", "weights.bin": POINTER, "huge": b"\0" * (2 << 20), "README": f"about: {POINTER}"}
    commit(tmp_path / "up", files)
    said = refused(remote, tmp_path / "up").splitlines()
    assert len(said) == 3, said
    assert any("file name 'two\\nlines' holds a control character" in line for line in said)
    assert any("`weights.bin` is a Git LFS pointer, not the file" in line for line in said)
    assert any("`huge` has 2097152 bytes, allowed are 1048576" in line for line in said)


def with_submodule(up: Path, url: str, path: str = "sub") -> Path:
    """A repository whose .gitmodules names a url; the gitlink leads nowhere."""
    commit(up, {"f": "1"})
    (up / ".gitmodules").write_text(f'[submodule "s"]\n\tpath = {path}\n\turl = {url}\n')
    git(up, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(up, "add", ".gitmodules")
    git(up, "commit", "-qm", "submodule")
    return up


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ext::touch", "names a command transport"),
        ("-u", "would be an option of git"),
        ("https://user:token@host/x", "holds a login"),
        ("../../../../../../../../../../../../../../x", "leaves"),
        ("plain", "is neither a url"),
        ("./gone", "does not"),
    ],
)
def test_a_hostile_submodule(url: str, said: str, remote: Remote, tmp_path: Path) -> None:
    assert said in refused(remote, with_submodule(tmp_path / "up", url))


def test_a_submodule_that_nothing_tells_of(remote: Remote, tmp_path: Path) -> None:
    up = with_submodule(tmp_path / "up", "./x", path="../../elsewhere")
    assert ".gitmodules has no url of submodule `sub`" in refused(remote, up)


def test_a_submodule_below_a_link_is_refused_by_git_or_by_us(remote: Remote, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    head = commit(inner, {"leaf": "1"})
    up = tmp_path / "up"
    commit(up, {"f": "1"})
    (up / "d").symlink_to("../../..")
    git(up, "add", "d")
    git(up, "commit", "-qm", "link")
    assert "leads out of the tree" in refused(remote, up)
    assert head


def test_a_repository_that_would_run_something(remote: Remote, tmp_path: Path) -> None:
    """Attributes that ask for a filter, and a config in the tree: nothing of it runs."""
    files = {
        ".gitattributes": "* filter=evil diff=evil merge=evil\n",
        ".gitconfig": '[filter "evil"]\n\tsmudge = touch pwned\n',
        "hooks/post-checkout": f"#!/bin/sh\ntouch {tmp_path}/pwned\n",
        "f": "1\n",
    }
    commit(tmp_path / "up", files)
    assert frozen(remote, tmp_path / "up", "main").path is not None
    assert not list(tmp_path.rglob("pwned"))


def test_nothing_outside_build_is_touched(remote: Remote, tmp_path: Path, world: Callable[[], dict[str, str]]) -> None:
    up = with_submodule(tmp_path / "up", "ext::touch")
    (tmp_path / "mine").write_text("mine")
    before = world()
    refused(remote, up)
    refused(remote, tmp_path / "nowhere")
    assert world() == before


def test_relative_submodule_urls() -> None:
    assert joined("https://host/a/b.git", "../c.git") == "https://host/a/c.git"
    assert joined("https://host/a/b", "./c") == "https://host/a/b/c"
    assert joined("/srv/a", "../b") == "/srv/b"
    with pytest.raises(SourceError, match="leaves"):
        joined("https://host/a", "../../../x")
