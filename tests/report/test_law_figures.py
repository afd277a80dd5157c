"""The figures that explain a saturation: every point is drawn, the line is the law's, and nothing is pooled."""

import re
from dataclasses import replace

from kassay.kinds.law import LawRecord
from kassay.kinds.verdict import SaturationRecord
from kassay.report.drawing import styles
from kassay.report.law_figures import residual_panel, return_panel, step_panel
from kassay.stats.laws import AFFINE
from tests.report.fabricate import FakeRun, law_records, saturation_records, sweep_records

STYLES = styles(["native", "k16v8-f"], "native")


def laws(recipe: str = "native") -> list[LawRecord]:
    """The laws of one recipe of the fabricated sweep."""
    return [law for law in law_records(sweep_records()) if isinstance(law, LawRecord) and law.recipe == recipe]


def test_every_step_is_a_point_and_contexts_have_marks_of_their_own() -> None:
    law = next(law for law in laws() if law.law == AFFINE)
    drawing = step_panel(law)
    fewer = replace(
        law,
        batches=law.batches[1:],
        contexts_tokens=law.contexts_tokens[1:],
        steps_s=law.steps_s[1:],
        residuals=law.residuals[1:],
        cached_shares=None,
    )
    assert drawing.svg.count("<use ") - step_panel(fewer).svg.count("<use ") == 1
    assert "128 tokens" in drawing.svg and "1,000 tokens" in drawing.svg and "B T" in drawing.svg


def test_laws_stand_in_the_order_of_their_criterion_and_the_least_is_marked() -> None:
    drawing = residual_panel(laws())
    titles = re.findall(r">([^<>]*: AICc [^<>]*)<", drawing.svg)
    values = [float(title.partition("AICc ")[2].split()[0].replace("−", "-")) for title in titles]
    assert len(titles) == 4 and values == sorted(values)
    assert [title.endswith("(least)") for title in titles] == [True, False, False, False]
    none = residual_panel([replace(law, aicc=None, best=False) for law in laws()])
    assert none.svg.count("does not exist") == 4 and "least" not in none.svg


def test_elasticity_is_drawn_on_an_axis_of_its_own() -> None:
    fits = [fit for fit in saturation_records(sweep_records()) if isinstance(fit, SaturationRecord)]
    own = [fit for fit in fits if fit.context_tokens == 1000]
    drawing = return_panel(1000, own, STYLES)
    assert "elasticity of rate in batch" in drawing.svg and "tokens per second" not in drawing.svg
    assert drawing.label.count("from ") == 2


def test_the_page_tells_laws_returns_and_memory(full_reports: dict[str, str], fake_run: FakeRun) -> None:
    html = full_reports["report.html"]
    for text in (
        "What explains it: batch, cached tokens, or the affine step time",
        "AICc",
        "What a larger batch gives, and what it costs each request",
        "f_KV",
        "it is 1 - sum((ln S - ln fit)^2)",
        "Gates of memory",
        "the gap is 620.0 ms, allowed are 500 ms",
        "torch has no caching allocator on cpu",
        "no continuous maximum",
    ):
        assert text in html, text
