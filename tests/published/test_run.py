"""The profile from its defconfig to its report, with real processes, as `make` runs it."""

import json
import time
from pathlib import Path

from tests.commandline import kassay


def test_the_profile_runs_to_its_report_in_seconds(tree: Path) -> None:
    started = time.monotonic()
    assert kassay(tree, "defconfig", "published").returncode == 0
    done = kassay(tree, "run")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 180
    line = "Of 265 printed figures: 207 equal, 8 consistent within input rounding, 0 contradicted and 50 not derivable."
    assert line in (done.stdout + done.stderr).splitlines()
    run = tree / "results" / "latest"
    assert f"# {line}" in (run / "report.md").read_text() and (run / "report.html").exists()
    plan = json.loads((run / "plan.json").read_text())
    assert [stage["name"] for stage in plan["stages"]] == ["published", "report"]


def test_a_changed_fact_runs_the_stage_again_and_a_contradiction_is_exit_code_3(tree: Path) -> None:
    facts = Path((tree / "data").resolve() / "published" / "figures.jsonl").read_text()
    (tree / "mine").mkdir()
    (tree / "mine" / "figures.jsonl").write_text(facts)
    assert kassay(tree, "defconfig", "published", "PUBLISHED_FIGURES=mine/figures.jsonl").returncode == 0
    assert kassay(tree, "run").returncode == 0
    assert "nothing to do" in (again := kassay(tree, "run")).stdout + again.stderr
    wrong = facts.replace('"printed": "1.00264"', '"printed": "1.00265"')
    assert wrong != facts
    (tree / "mine" / "figures.jsonl").write_text(wrong)
    done = kassay(tree, "run")
    said = done.stdout + done.stderr
    assert done.returncode == 3 and "b32.qwen3-8b.median: printed 1.00265, derived 1.00264345" in said
    assert "1 contradicted" in said
