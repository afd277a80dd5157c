"""Printed figures in the reports: by study, what is not equal first, and nothing of a record acts on the page."""

import dataclasses
import re
from pathlib import Path

import pytest

from kassay import paths
from kassay.kinds.published import FigureAnswer
from kassay.plan import Plan
from kassay.published import CONTRADICTED
from kassay.published.figures import answered, load
from kassay.report.findings import findings, verdict_line
from tests.report.fabricate import FakeRun, closing, stage
from tests.report.page import Page

ANSWERS = [answered(figure) for figure in load(paths.ROOT / "data" / "published" / "figures.jsonl")]
LINE = "Of 265 printed figures: 207 equal, 8 consistent within input rounding, 0 contradicted and 50 not derivable."


def published_run(root: Path) -> FakeRun:
    """A run of the published workflow in which nothing has ended yet."""
    made = FakeRun(root)
    made.stages = (stage("published", {"figures": "tree:data/published/figures.jsonl"}), stage("report", {}))
    from kassay import digest

    plan = Plan(profile="published", workflow="published", stages=made.stages, config={})
    digest.write_json(made.directory / "plan.json", plan.to_json())
    return made


@pytest.fixture
def run(tmp_path: Path) -> FakeRun:
    return published_run(tmp_path)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reports of the shipped figures, rendered once."""
    made = published_run(tmp_path_factory.mktemp("published"))
    made.end("published", records=ANSWERS)
    return made.rendered()


def test_the_first_line_and_the_last_lines_count_the_answers(run: FakeRun) -> None:
    run.end("published", records=ANSWERS)
    assert verdict_line(run.report()) == LINE
    assert LINE in closing(run.directory, 0)


def test_what_agrees_only_within_rounding_is_named(run: FakeRun) -> None:
    run.end("published", records=ANSWERS)
    (found,) = findings(run.report())
    assert (found.topic, found.anchor) == ("Published figures", "published")
    assert found.text.startswith(LINE + " Consistent within input rounding: 72b.ppl, cart.mmlu.k8v8")
    assert found.text.endswith("cart.global.b1.toks and cart.global.b1.ttft.")


def test_every_figure_stands_in_the_page_and_in_the_text(reports: dict[str, str]) -> None:
    page = Page(reports["report.html"])
    assert page.open == [] and len(page.ids) == len(set(page.ids)) and "published" in page.ids
    captions = page.texts["caption"]
    studies = list(dict.fromkeys(answer.study for answer in ANSWERS))
    assert [text for text in captions if text.startswith("Figures of ")] == [f"Figures of {name}." for name in studies]
    text = reports["report.md"].replace("\\", "")
    for answer in ANSWERS:
        assert f"| {answer.figure} |" in text
        assert f">{answer.figure}</th>" in reports["report.html"]


def test_answers_are_counted_by_study(reports: dict[str, str]) -> None:
    text = reports["report.md"]
    assert "| cartridge | 34 | 23 | 7 | – | 4 |" in text and "| large-72b | 1 | – | 1 | – | – |" in text


def test_a_contradiction_comes_first_with_what_the_inputs_allow(run: FakeRun) -> None:
    wrong = dataclasses.replace(
        ANSWERS[-1], figure="late", answer=CONTRADICTED, derivation="mean", derived="2", lowest="1.5", highest="2.5"
    )
    run.end("published", "rejected", "contradicted: late", records=[*ANSWERS[:-1], wrong])
    (found,) = findings(run.report())
    assert "1 contradicted" in found.text and " Contradicted: late; consistent within input rounding: 72b" in found.text
    html = run.rendered()["report.html"]
    table = html[html.index("Not equal as printed") :]
    assert table.index(">late</th>") < table.index(">72b.ppl</th>") and "1.5 to 2.5" in table
    assert '<span class="word bad">✗ contradicted</span>' in html


def test_a_stage_without_records_says_why(run: FakeRun) -> None:
    run.end("published", "crashed", "facts are torn", records=[])
    (found,) = findings(run.report())
    assert found.text == "Not derived: published: crashed (facts are torn)"
    assert verdict_line(run.report()) == "No study is judged here; 0 of 1 stage passed."
    assert "facts are torn" in run.rendered()["report.html"]


def test_hostile_text_of_a_fact_stays_text(run: FakeRun) -> None:
    bad = "<script>x</script>|`\u202e"
    fields = ("figure", "source", "study", "quantity", "printed", "derived", "remark")
    hostile: FigureAnswer = dataclasses.replace(ANSWERS[0], **dict.fromkeys(fields, bad))  # type: ignore[arg-type]
    run.end("published", records=[hostile])
    made = run.rendered()
    assert "<script" not in made["report.html"] and "\u202e" not in made["report.html"] + made["report.md"]
    assert not re.search(r"(?<!\\)<script", made["report.md"])
