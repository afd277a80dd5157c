"""Figures: what is drawn where, and the DAG's layout."""

import re
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from kassay.kinds.timing import SweepCell
from kassay.kinds.verdict import ContrastRecord, GateRecord, SaturationRecord
from kassay.report.bounds import bound_panel, ticks_between
from kassay.report.dag import dag, places, reduced_edges
from kassay.report.drawing import styles
from kassay.report.figures import hill_panel, ratio_figure, ratio_row
from kassay.report.model import load_run
from tests.report.fabricate import (
    EARLIER,
    FakeRun,
    certify_records,
    contrast_records,
    saturation_records,
    sweep_records,
)

STYLES = styles(["native", "k16v8-f", "k16v8-d", "k8v16-f", "k8v16-d", "k8v8-f", "k8v8-d"], "native")


def test_styles_differ_by_colour_or_marker() -> None:
    seen = {(style.colour, style.marker, style.hollow) for style in STYLES.values()}
    assert len(seen) == len(STYLES)
    assert STYLES["k8v8-f"].colour == STYLES["k8v8-d"].colour != STYLES["k16v8-f"].colour
    assert STYLES["k16v8-f"].marker != STYLES["native"].marker


def hill(context_tokens: int, repetitions: int = 5) -> str:
    cells = [c for c in sweep_records(repetitions) if isinstance(c, SweepCell) and c.context_tokens == context_tokens]
    fits = [
        fit
        for fit in saturation_records(sweep_records())
        if isinstance(fit, SaturationRecord) and fit.context_tokens == context_tokens
    ]
    return hill_panel(context_tokens, fits, cells, STYLES).svg


def test_every_repetition_is_a_point() -> None:
    more = hill(128, 7).count("<use ") - hill(128, 5).count("<use ")
    assert more == 2 * 6 * 2  # two more repetitions, six batches, two recipes


def test_a_ceiling_is_drawn_only_where_it_is_usable() -> None:
    pattern = re.compile(r"stroke-dasharray: 5\.4,1\.8,0\.9,1\.8")
    assert len(pattern.findall(hill(1000))) == 2
    assert pattern.findall(hill(128)) == []


def test_drawings_repeat_exactly_and_have_own_ids() -> None:
    assert hill(1000) == hill(1000)
    assert set(re.findall(r'\bid="(\w+-\d+)-', hill(1000))) == {"hill-1000"}


def test_bounds_and_ratios_name_their_verdicts() -> None:
    gates = [r for r in certify_records() if isinstance(r, GateRecord) and r.endpoint == "nll"]
    drawing = bound_panel("nll", gates, STYLES)
    assert "K8/V8 fixed on fragile at most" in drawing.label and drawing.svg.count(">fails<") == 4
    contrasts = [r for r in contrast_records({"k16v8-f": 0.9}) if isinstance(r, ContrastRecord)]
    drawing = ratio_figure(contrasts, STYLES)
    assert "no confirmed gain" in drawing.label and "screen 1.01" in drawing.svg


def test_dag_keeps_the_edges_that_no_path_implies(full_run: FakeRun) -> None:
    run = load_run(full_run.directory)
    edges = reduced_edges(run.stages)
    assert ("freeze", "build") in edges and ("quality.robust", "certify") in edges and ("saturation", "report") in edges
    assert ("build", "timing") not in edges and ("freeze", "report") not in edges


def test_dag_places_are_free_of_collisions(full_run: FakeRun) -> None:
    run = load_run(full_run.directory)
    place = places(run.stages)
    assert len({(p.column, p.lane) for p in place.values()}) == len(run.stages)
    assert all(place[a].column < place[b].column for a, b in reduced_edges(run.stages))


@pytest.mark.parametrize("text", ["quality", "robust", "reused", f"from run {EARLIER}"])
def test_dag_says(full_run: FakeRun, text: str) -> None:
    assert text in dag(load_run(full_run.directory))


@pytest.mark.parametrize(
    ("margin", "end", "ticks"),
    [(0.015, 0.58, [0.1]), (0.01, 1.8, [0.1, 1.0]), (0.08, 0.6, [0.5]), (0.015, 0.012, []), (0.08, 5.0, [1.0])],
)
def test_ticks_beyond_the_margin_keep_their_distance(margin: float, end: float, ticks: list[float]) -> None:
    assert ticks_between(margin, end) == ticks


def test_a_disturbed_block_makes_the_ratio_axis_logarithmic() -> None:
    calm, wild = (contrast_records({"k16v8-f": 0.9}) for _ in range(2))
    assert isinstance(wild[0], ContrastRecord) and wild[0].ratios is not None and isinstance(calm[0], ContrastRecord)
    wild[0].ratios[3] = 15.0
    assert "logarithmic" not in ratio_figure([calm[0]], STYLES).svg
    assert "logarithmic" in ratio_figure([wild[0]], STYLES).svg


def test_a_block_that_does_not_count_leaves_a_gap_in_its_row() -> None:
    whole = contrast_records({"k16v8-f": 0.9})[0]
    assert isinstance(whole, ContrastRecord) and whole.ratios is not None
    kept = [block for block in whole.valid_blocks if block != 3]
    short = replace(whole, valid_blocks=kept, ratios=[whole.ratios[block] for block in kept],
                    needed_blocks=len(kept), wins=0)  # fmt: skip
    drawn = []
    for record in (whole, short):
        axes = Figure().subplots()
        ratio_row(axes, 0, record, STYLES[record.candidate])
        drawn.append(list(zip(*axes.lines[0].get_data(), strict=True)))
    assert drawn[1] == [dot for block, dot in enumerate(drawn[0]) if block != 3]
