"""Fused INT4 in the reports: claims lead with their counts, words are explained, the fit of the verdict is drawn."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from kassay import paths
from kassay.report import fusion_figures
from kassay.report.drawing import Drawing
from kassay.report.findings import findings, verdict_line
from kassay.report.fusion import fusion_section
from kassay.report.fusion_figures import caption, doublings, doubts, fusion_figure, points_of, short
from kassay.report.fusion_terms import ARMS, terms
from kassay.report.fusion_words import (
    best_fit,
    claim_rows,
    counts_of,
    fusion_headline,
    fusion_line,
    grid_line,
    half_spreads,
    speed_up_rows,
)
from kassay.report.markup import escaped
from kassay.stats.explanations import COVARIATES
from tests.report import fused
from tests.report.fabricate import FakeRun, closing
from tests.report.page import Page

LINE = (
    f"Fused INT4, claims and how many speed-ups bear them out: “{fused.HEADS}” unsettled (3 of 4, none contradicts); "
    "“split contexts: what is cached” holds (3 of 3); “the baseline makes the ceiling” unsettled (2 of 6, "
    "1 contradicts)."
)
FOLLOWED = (
    "Of 4 speed-ups: 1 following batch x query heads, 1 closest to batch x KV heads, 1 closest to batch x context x KV "
    "heads and 1 unsettled."
)


def report(*records: Any) -> Any:
    """What the section asks of a report."""
    run = SimpleNamespace(
        why_absent=lambda program: f"`{program}` is blocked: `grid` was unmet", program=lambda name: ["law"]
    )
    return SimpleNamespace(of=lambda kind: tuple(one for one in records if isinstance(one, kind)), run=run, faults=())


WHOLE = report(*fused.cells(), *fused.JUDGED)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reports of a run that ended, rendered once."""
    return fused.ended(fused.fusion_run(tmp_path_factory.mktemp("fused"))).rendered()


def test_the_first_line_and_the_last_lines_say_what_the_claims_say(tmp_path: Path) -> None:
    run = fused.ended(fused.fusion_run(tmp_path))
    assert verdict_line(run.report()) == LINE and LINE in closing(run.directory, 0)
    assert [one.text for one in findings(run.report()) if one.anchor == "fusion"] == [FOLLOWED]


def test_claims_that_nothing_judged_are_said_to_be_so(tmp_path: Path, full_run: FakeRun) -> None:
    run = fused.fusion_run(tmp_path)
    run.end("fusion", "unmet", "1 GPU is needed", records=[])
    run.end("fusion_law", "blocked", "`fusion` was unmet", records=[])
    assert verdict_line(run.report()) == "No claim is judged: fusion_law: blocked (`fusion` was unmet)."
    assert fusion_line(run.report()) == "Not judged: fusion_law: blocked (`fusion` was unmet)."
    assert fusion_headline(full_run.report()) == ""
    page = fusion_section(report())
    assert "<svg" not in page and "`" not in page and "was unmet" in page
    assert "<svg" not in fusion_section(report(*fused.JUDGED)) and grid_line(report(*fused.JUDGED)) == ""


@pytest.mark.parametrize(
    ("counts", "word", "said"),
    [
        ((3, 0, 3), "holds", "3 of 3"),
        ((3, 0, 4), "unsettled", "3 of 4, none contradicts"),
        ((3, 1, 4), "unsettled", "3 of 4, 1 contradicts"),
        ((0, 2, 2), "fails", "0 of 2, 2 contradict"),
    ],
)
def test_counts_of_a_claim(counts: tuple[int, int, int], word: str, said: str) -> None:
    assert counts_of(fused.claim("c", *counts, word)) == said


def test_the_grid_is_told_from_its_cells() -> None:
    gone = [fused.cell("int4", (16, 2), 64, 8192, why) for why in ("out of memory", "out of memory", "`x` refused")]
    assert grid_line(report(*fused.cells(), *gone)) == (
        "29 cells: head layouts (query heads/KV heads) 16/2 and 12/4, head dim 128, pages of 16 tokens; batches 1, 2, "
        "4, 8, 16, 32 and 64; contexts 1,024, 4,096 and 8,192 tokens, at most 524,288 in a cell. 6 arms in 2 timed "
        "rounds: 168 of 171 measurements, 3 failed: out of memory (2) and `x` refused (1)."
    )
    assert grid_line(WHOLE).endswith("168 of 168 measurements, none failed.")


def test_every_word_of_the_records_is_explained_and_no_other() -> None:
    names = [name for name, _ in terms(WHOLE)]
    assert names == [
        "old law", "speed-up", "int4", "int4 each head", "grouped", "torch repeat", "… split", "follows", "closest",
        "unsettled", "byte limit", "half, half-batch", "rms, left out", "plateau not reached",
    ]  # fmt: skip
    few = dict(terms(report(*fused.cells("int4", "torch repeat"), fused.VERDICTS[1])))
    assert "closest" in few and not {"grouped", "… split", "follows", "plateau not reached"} & few.keys()


def test_every_arm_of_the_kernels_has_words() -> None:
    source = (paths.ROOT / "kassay" / "kernels" / "fusion.py").read_text(encoding="utf-8")
    named = ast.parse(source[source.index("EACH_HEAD, TORCH = ") : source.index("@dataclass")])
    names = {str(node.value) for node in ast.walk(named) if isinstance(node, ast.Constant)}
    assert "expanding split" in names and {name.removesuffix(" split") for name in names} == set(ARMS)


def test_numbers_stand_below_their_verdict_and_an_unsettled_speed_up_follows_nothing() -> None:
    page = fusion_section(WHOLE)
    below = f'<span class="sub">{escaped(fused.NUMBERS)}</span>'
    assert f'<td class="free"><span class="word">closest</span> batch x KV heads{below}</td>' in page
    assert f'<span class="word open">? unsettled</span>{below}<span class="sub">failed: a parameter' in page
    assert '<span class="word good">✓ holds</span> 3 of 3<span class="sub">int4 split: 24.7' in page
    heads = Page(page).texts["th"]
    assert heads[:2] == ["claim", "verdict, counts, numbers"] and "numbers" not in heads
    assert '<td class="n">3 of 28</td>' in page and page.count('<th scope="row" class="free">') == 7


def test_a_half_batch_beyond_the_batches_measured_gives_no_spread() -> None:
    made = [half_spreads(WHOLE, one) for one in fused.VERDICTS]
    assert made == [["2.00", "1.50", "4.00"], ["2.00", "1.50", "4.00"], ["–"] * 3, ["2.00", "1.50", "4.00"]]
    unknown = fused.verdict(*fused.FIRST, half_batches=[8.0, None], half_spread=None, half_spread_query_heads=None,
                            half_spread_kv_heads=None)  # fmt: skip
    for bad in (unknown, fused.verdict(*fused.FIRST, half_batches=[0.5, 8.0])):
        assert half_spreads(WHOLE, bad) == ["–"] * 3
    assert half_spreads(report(), fused.VERDICTS[0]) == ["–"] * 3


def drawn_by(index: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """The figure of a speed-up, and its caption."""
    kept: list[Figure] = []

    def keep(name: str, label: str, made: Figure) -> Drawing:
        kept.append(made)
        return Drawing(name=name, label=label, svg="", width_px=1)

    monkeypatch.setattr(fusion_figures, "drawn", keep)
    verdict = fused.VERDICTS[index]
    points, fit = points_of(WHOLE, verdict), best_fit(WHOLE, verdict)
    fusion_figure(points, verdict, fit)
    return kept[0], list(caption(points, verdict, fit))


def test_the_curve_is_the_fit_of_the_verdict_in_its_own_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = drawn_by(1, monkeypatch)
    left, right = made.axes
    curve = right.lines[-1]
    y = [float(value) for value in curve.get_ydata()]
    assert y[-1] == pytest.approx(3.09 / (1 + (213.4 / 256) ** 1.2), rel=1e-6)
    assert (right.get_ylabel(), left.get_ylabel()) == ("share of the byte limit", "int4 over torch repeat")
    own = [point for point in points_of(WHOLE, fused.VERDICTS[1]) if point.layout == "16/2"]
    assert list(right.lines[0].get_ydata()) == [point.ratio / 9 for point in own]
    assert list(left.lines[0].get_ydata()) == [point.ratio for point in own]
    assert list(right.lines[0].get_xdata()) == [COVARIATES["batch x KV heads"](point) for point in own]
    assert curve.get_linestyle() == "--"
    assert "".join(told) == (
        "<b>int4 over torch repeat</b>, 28 cells. Left: the speed-up against the batch. Right: its share of the byte "
        "limit against batch x KV heads, the quantity with the least AICc. Curve: ceiling 309 % of the byte limit, "
        "half at 213, rms 19.0 %; broken: it misses by more than 5 %."
    )


def test_a_curve_that_may_be_read_as_a_law_is_solid_and_shares_its_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = drawn_by(0, monkeypatch)
    left, right = made.axes
    assert right.lines[-1].get_linestyle() == "-" and left.get_ylim() == right.get_ylim()
    assert told[1].endswith("Curve: ceiling 4.40, half at 238, rms 4.0 %; solid: it may be read as a law.")
    assert caption([], fused.VERDICTS[0], None)[1].endswith("No fit of it is recorded.")


def test_why_a_curve_is_no_law() -> None:
    made = [doubts(one, fit) for one in fused.VERDICTS if (fit := best_fit(WHOLE, one)) is not None]
    assert made == [
        [],
        ["it misses by more than 5 %"],
        ["it misses by more than 5 %", "it does not reach its plateau"],
        ["the fit failed: a parameter at an end of its search range", "two quantities are named"],
    ]
    assert doubts(fused.VERDICTS[0], fused.fit(*fused.FIRST, rms_log_residual=float("nan"))) == [
        "it misses by more than 5 %"
    ]


def test_a_figure_of_less_than_a_decade_has_ticks_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = drawn_by(2, monkeypatch)
    low, high = made.axes[0].get_ylim()
    assert high < 8 * low and sum(low <= tick <= high for tick in made.axes[0].get_yticks()) > 3


def test_three_speed_ups_are_drawn_each_with_its_name(reports: dict[str, str]) -> None:
    page = reports["report.html"]
    told = Page(page).texts["figcaption"]
    names = [" over ".join(pair) for pair in (fused.FIRST, fused.SHARE, fused.SPLIT)]
    assert [text.partition(",")[0] for text in told] == names and len(set(told)) == 3
    assert "3 of 4 speed-ups drawn." in page


def test_markdown_has_the_same_claims_and_speed_ups(reports: dict[str, str]) -> None:
    assert [row[1:3] for row in claim_rows(WHOLE)] == [
        ["unsettled", "3 of 4, none contradicts"], ["holds", "3 of 3"], ["unsettled", "2 of 6, 1 contradicts"],
    ]  # fmt: skip
    assert [row[:2] for row in speed_up_rows(WHOLE)][2:] == [
        ["int4 split over grouped split", "closest batch x context x KV heads"], ["int4 over grouped", "unsettled –"],
    ]  # fmt: skip
    text = reports["report.md"]
    assert "## Fused INT4: claims on the old law" in text and "| unsettled | 2 of 6, 1 contradicts |" in text
    assert "rms 19.0 %, ceiling 309 % of the byte limit" in text and "| 3 of 28 | – | – | – |" in text


def test_ticks_are_powers_of_two_that_can_be_read() -> None:
    assert doublings(12, 5000) == [8.0, 32.0, 128.0, 512.0, 2048.0]
    assert [short(value) for value in (0.5, 128, 2048, 16384, 1 << 20)] == ["0.5", "128", "2048", "16K", "1M"]
