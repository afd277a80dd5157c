"""The report tells of each frozen source what was asked and what it became."""

from kassay.kinds.source import SourceRecord
from kassay.report.markup import tag
from kassay.report.provenance import source_text
from kassay.source.freeze import NOTHING

GIT = {
    **NOTHING,
    "kind": "git",
    "url": "https://host/<owner>/up",
    "ref": "dev",
    "ref_kind": "branch",
    "commit": "c" * 40,
    "tree": "d" * 40,
    "describe": "v1-0-gccc",
    "submodules": [{"at": "in"}],
    "files": 3,
    "bytes": 2048,
    "sha256": "0" * 64,
    "note": "`dev` has moved",
}


def test_a_git_source_is_told_with_url_ref_commit_and_note() -> None:
    shown = str(tag("p", source_text(SourceRecord(name="up", **GIT))))
    told = ["c" * 40, "asked for as branch dev", "v1-0-gccc", "1 submodule", "3 files", "2.0 KiB", "`dev` has moved"]
    assert [text for text in told if text not in shown] == [], shown
    assert "&lt;owner&gt;" in shown and "<owner>" not in shown


def test_a_release_is_told_with_its_hash() -> None:
    facts = {**NOTHING, "kind": "release", "ref": "vllm==1.0", "sha256": "a" * 64, "files": 1, "bytes": 0}
    assert "release vllm==1.0, SHA-256 <code>" + "a" * 64 in str(tag("p", source_text(SourceRecord(name="v", **facts))))
