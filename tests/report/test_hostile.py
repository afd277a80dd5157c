"""Hostile text in every free field: shown, and harmless in HTML, XML, Markdown and on a terminal."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kassay.record import Record
from kassay.report.words import clean
from tests.report.fabricate import MODELS, STUDY, FakeRun, closing, records_of
from tests.report.page import Page

EVIL = (
    "<script>alert('x')</script>\"><b>&amp;`$x_1^2$ \x1b[31mred\x00 \u202eltr\u2066 \ud800 | [a](javascript:b)\n# head"
)
WORDS = {"verdict", "state", "endpoint", "schema"}  # also free on disk, but checked apart


def poisoned(record: Record, text: str) -> Record:
    """The record with `text` appended to every string of it, recipes and models left so that they still match."""
    kept = {"recipe", "candidate", "control", "model", "part", "quantity", "mutation"} | WORDS
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, str) and field.name not in kept:
            changed[field.name] = value + text
        elif isinstance(value, list) and value and isinstance(value[0], str):
            changed[field.name] = [item + text for item in value]
    return dataclasses.replace(record, **changed)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    run = FakeRun(tmp_path_factory.mktemp("hostile"))
    run.write_manifest({EVIL: {"value": EVIL, "origin": EVIL, "where": EVIL}}, overrides=(EVIL,))
    words = {"timing": "crashed", "sweep": "unmet", "calibrate.robust": "rejected"}
    for stage in run.stages[:-1]:
        text = EVIL.replace("\ud800", "")
        records = [poisoned(record, text) for record in records_of(stage.name)]
        word = words.get(stage.name, "passed")
        reason = text if word != "passed" else ""
        run.end(stage.name, word, reason, records=records, stderr=text, metrics={text: text})
    return run


@pytest.fixture(scope="module")
def reports(hostile: FakeRun) -> dict[str, str]:
    return hostile.rendered()


def test_nothing_of_it_is_markup(reports: dict[str, str]) -> None:
    html = reports["report.html"]
    page = Page(html)
    assert page.open == [] and "script" not in page.texts
    assert "<script" not in html and "<b>&amp;`" not in html
    assert "<script>alert('x')</script>" in page.texts["body"][0]  # it is shown as what it is


@pytest.mark.parametrize("name", ["report.html", "report.md", "junit.xml"])
def test_no_control_or_bidirectional_character_is_left(reports: dict[str, str], name: str) -> None:
    text = reports[name]
    assert not {letter for letter in text if letter in "\x00\x1b\u202e\u2066"}
    assert "\\x1b[31mred" in text.replace("\\\\", "\\").replace("\\[", "[")


def test_junit_is_valid_xml(reports: dict[str, str]) -> None:
    root = ElementTree.fromstring(reports["junit.xml"])
    assert [case.get("name") for case in root.iter("testcase")]


def test_markdown_has_no_new_heading_row_or_link(reports: dict[str, str]) -> None:
    lines = reports["report.md"].splitlines()
    assert [line for line in lines if line.startswith("# ")] == [lines[0]]
    assert not [line for line in lines if "](javascript" in line.replace("\\]", "").replace("\\[", "")]


def test_json_keeps_the_text_as_it_was(reports: dict[str, str]) -> None:
    body = json.loads(reports["report.json"])
    assert any("\x1b[31mred" in str(record) or "x1b[31mred" in str(record) for record in body["records"])


def test_terminal_lines_are_one_line_each_and_inert(hostile: FakeRun) -> None:
    for line in closing(hostile.directory, 1):
        assert "\n" not in line and "\x1b" not in line and "\u202e" not in line


def test_hostile_names_of_recipes_and_models(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    plan = json.loads((run.directory / "plan.json").read_text())
    name = EVIL.replace("\ud800", "")
    plan["config"]["study"] = {**STUDY, "arms": {**STUDY["arms"], name: {}}}
    plan["config"]["models"]["names"] = [*MODELS, name]
    (run.directory / "plan.json").write_text(json.dumps(plan))
    swap = {"k8v8-d": name, "fragile": name}
    for stage in run.stages[:-1]:
        run.end(stage.name, records=[renamed(record, swap) for record in records_of(stage.name)])
    page = Page(run.rendered()["report.html"])
    assert page.open == [] and "script" not in page.texts and len(page.ids) == len(set(page.ids))


def renamed(record: Record, swap: dict[str, str]) -> Record:
    """The record with recipe and model names replaced."""
    fields = ("recipe", "candidate", "model")
    changed = {name: swap[getattr(record, name)] for name in fields if getattr(record, name, None) in swap}
    return dataclasses.replace(record, **changed)


def test_a_megabyte_is_cut_and_said(fake_run: FakeRun) -> None:
    fake_run.end("certify", "crashed", "x" * 1_000_000, records=[], stderr="y" * 1_000_000)
    html = fake_run.rendered()["report.html"]
    assert len(html) < 300_000 and "(1,000,000 characters)" in html


def test_clean() -> None:
    assert clean("a\tb\nc") == "a\tb\nc"
    assert clean("\x1b\u202e\ud800\x85") == "\\x1b\\u202e\\ud800\\x85"
    assert clean("abc", 2) == "ab… (3 characters)"
