"""Hostile text in every free field: shown, and harmless in HTML, XML, Markdown and on a terminal."""

import dataclasses
import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kassay.record import Record
from kassay.report.words import clean
from tests.report.fabricate import MODELS, STUDY, FakeRun, closing, records_of
from tests.report.hostile import EVIL, forged, hostile_run, swollen_run
from tests.report.page import Page

ACTS = "\x00\x1b\u202e\u2066"  # what would act on a terminal or turn text around


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return hostile_run(tmp_path_factory.mktemp("hostile"))


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
    assert not {letter for letter in text if letter in ACTS}
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


def test_hostile_words_of_verdicts_states_parts_and_laws(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    for stage in run.stages[:-1]:
        text = EVIL.replace("\ud800", "")
        run.end(stage.name, records=[forged(record, text) for record in records_of(stage.name)])
    reports = run.rendered()
    assert "cannot be read" in reports["report.html"]
    page = Page(reports["report.html"])
    assert page.open == [] and "script" not in page.texts and len(page.ids) == len(set(page.ids))
    for name in ("report.html", "report.md", "junit.xml"):
        assert not set(reports[name]) & set(ACTS), name


def renamed(record: Record, swap: dict[str, str]) -> Record:
    """The record with recipe and model names replaced."""
    fields = ("recipe", "candidate", "model")
    changed = {name: swap[getattr(record, name)] for name in fields if getattr(record, name, None) in swap}
    return dataclasses.replace(record, **changed)


def test_megabytes_are_cut_and_said(tmp_path: Path) -> None:
    run = swollen_run(tmp_path)
    started = time.process_time()
    reports = run.rendered()
    assert time.process_time() - started < 15
    html = reports["report.html"]
    page = Page(html)
    assert page.open == [] and "script" not in page.texts and "characters)" in html
    assert len(html) < 1_500_000 and len(reports["report.md"]) + len(reports["junit.xml"]) < 300_000
    assert "W" * 3000 not in html + reports["report.md"] + reports["junit.xml"]


def test_clean() -> None:
    assert clean("a\tb\nc") == "a\tb\nc"
    assert clean("\x1b\u202e\ud800\x85") == "\\x1b\\u202e\\ud800\\x85"
    assert clean("abc", 2) == "ab… (3 characters)"
