"""The sections on a vLLM worker: every finding of the check by name, ratios and what they are worth, and no silence."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import digest
from kassay.kinds.vllm import VllmFinding, VllmRatio
from kassay.plan import Plan
from kassay.report import worker, worker_words
from kassay.report.closing import JUDGING
from tests.report.fabricate import FakeRun, stage
from tests.report.page import Page

FOUND = (("physical", "keys in fp16, values in e4m3fn"), ("route", "5 mixed steps, fallbacks [0, 0]"), ("text", "<b>"))


def findings(*failing: str) -> list[VllmFinding]:
    """Three findings, of which some do not hold."""
    return [VllmFinding(arm="candidate", finding=name, passed=name not in failing, said=said) for name, said in FOUND]


def ratio(endpoint: str, median: float, **changes: Any) -> VllmRatio:
    """K16/V8 beside native over three blocks."""
    return VllmRatio(
        **{
            "arm": "k16v8-f", "control": "native", "endpoint": endpoint, "batch": 32, "ratios": [median] * 3,
            "median": median, "wins": 3, "sign_p": 0.125, "capacity_ratio": 1.3333, "capacity_limit": 1.3333,
            "dummy_weights": True, "verdict": "descriptive",
        } | changes
    )  # fmt: skip


def report(*records: Any, program: str = "vllm_smoke") -> Any:
    """What the sections ask of a report."""
    run = SimpleNamespace(
        why_absent=lambda asked: f"`{asked}` is blocked: `build` was unmet",
        program=lambda asked: ["there"] if asked == program else [],
    )
    return SimpleNamespace(of=lambda kind: tuple(one for one in records if isinstance(one, kind)), run=run)


def test_a_check_passes_only_if_every_finding_holds() -> None:
    whole, lacking = report(*findings()), report(*findings("route"))
    assert worker_words.headline(whole) == (
        "The engine's check passes: 3 of 3 findings hold: keys in fp16, values in e4m3fn."
    )
    assert worker_words.headline(lacking) == (
        "The engine's check fails: 2 of 3 findings hold; not so: route (5 mixed steps, fallbacks [0, 0])."
    )
    page = worker.check_section(lacking)
    assert page.count("pass</span>") == 2 and page.count("fails</span>") == 1
    assert "&lt;b&gt;" in page and "<b>" not in page
    assert [row[1:3] for row in worker.finding_rows(lacking)] == [
        ["physical", "pass"], ["route", "fails"], ["text", "pass"],
    ]  # fmt: skip


@pytest.mark.parametrize("program", ["vllm_smoke", "vllm_check"])
def test_what_was_not_checked_or_compared_is_said(program: str) -> None:
    nothing = report(program=program)
    assert worker_words.headline(nothing) == "" and program in worker_words.check_line(nothing) and program in JUDGING
    assert "was unmet" in worker.check_section(nothing) and "was unmet" in worker.ratio_section(nothing)
    assert worker_words.ratio_line(nothing).startswith("Not compared: ")


def test_ratios_stand_with_their_endpoint_and_with_what_drawn_weights_are_worth() -> None:
    made = report(ratio("complete request (tokens/s)", 1.03), ratio("decode step (1/s)", 1.15))
    assert worker_words.ratio_line(made) == (
        "Complete requests beside K16/V16 native, median ratios, descriptive: K16/V8 fixed 1.030."
    )
    page = worker.ratio_section(made)
    assert "Weights were drawn" in page and "decode step (1/s)" in page and "1.1500" in page and "3 / 3" in page
    real = report(ratio("complete request (tokens/s)", 1.03, dummy_weights=False))
    assert "Weights were drawn" not in worker.ratio_section(real)


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Pages of a run whose stages are those of vLLM's workflow."""

    def render(checks: str, *records: Any) -> tuple[str, str]:
        run = FakeRun(tmp_path)
        run.stages = (stage(checks, {}), stage("vllm_ratio", {}), stage("report", {}))
        plan = Plan(profile="vllm-smoke", workflow="vllm", stages=run.stages, config={})
        digest.write_json(run.directory / "plan.json", plan.to_json())
        run.end(checks, records=[one for one in records if isinstance(one, VllmFinding)])
        run.end("vllm_ratio", records=[one for one in records if isinstance(one, VllmRatio)])
        made = run.rendered()
        return made["report.html"], made["report.md"]

    return render


@pytest.mark.parametrize("program", ["vllm_smoke", "vllm_check"])
def test_the_page_opens_with_the_check(program: str, rendered: Callable[..., tuple[str, str]]) -> None:
    html, markdown = rendered(program, *findings(), ratio("complete request (tokens/s)", 1.03))
    page = Page(html)
    assert page.texts["h1"][0].startswith("The engine's check passes: 3 of 3 findings hold")
    assert {"Check of the engine", "Ratios in the worker"} <= set(page.texts["h2"])
    assert "## Check of the engine" in markdown and "## Ratios in the worker" in markdown
