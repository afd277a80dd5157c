"""The figures without axes: margins by recipe and model, items by what became of them, the waterfall of bytes."""

import dataclasses
import re

import pytest

from kassay.kinds.memory import MemoryPart
from kassay.kinds.timing import BlockRecord, TimingCell
from kassay.kinds.verdict import GateRecord
from kassay.report.figures import memory_figure
from kassay.report.findings import verdicts
from kassay.report.heat_map import depth, heat_map, share
from kassay.report.latency import MOST_POINTS, curve, latency_section, times_of
from kassay.report.transitions import transition_panel, transitions
from tests.report.fabricate import FakeRun, certify_records, memory_records, timing_records

GATES = [record for record in certify_records() if isinstance(record, GateRecord)]


def gate(**changed: object) -> GateRecord:
    """A gate of the fabricated run with other numbers."""
    return dataclasses.replace(GATES[0], **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numbers", "used"),
    [
        ({"decides": "upper", "upper": 0.03, "margin": 0.015, "verdict": "unestablished"}, 2.0),
        ({"decides": "lower", "lower": -0.01, "margin": -0.02}, 0.5),
        ({"decides": "lower", "lower": 0.01, "upper": 0.02, "margin": -0.02}, 0.0),
        ({"decides": "lower", "lower": -0.01, "margin": 0.0, "verdict": "unestablished"}, None),
        ({"decides": "upper", "upper": float("nan"), "margin": 0.01, "verdict": "unestablished"}, None),
    ],
)
def test_share_of_a_margin(numbers: dict[str, object], used: float | None) -> None:
    assert share(gate(**numbers)) == used


def test_depth_grows_and_stays_readable() -> None:
    depths = [depth(used) for used in (None, 0.0, 0.5, 1.0, 10.0, 100.0, 1e6)]
    assert depths == sorted(depths) and depths[0] == depths[1] and depths[-1] == depths[-2] <= 0.42


def test_the_heat_map_shows_every_planned_tile_and_the_worst_gate(fake_run: FakeRun) -> None:
    kept = [record for record in certify_records() if getattr(record, "candidate", "") != "k8v8-d"]
    fake_run.end("certify", records=kept)
    report = fake_run.report()
    drawing = heat_map(verdicts(report), report)
    assert drawing is not None and drawing.svg.count("<rect") == 12
    assert drawing.svg.count("stroke-dasharray") == 2 == drawing.label.count("not run")  # K8/V8 dynamic
    assert "K8/V8 fixed on fragile: fails, nll uses 160 of its margin" in drawing.label


def test_items_are_all_counted(full_run: FakeRun) -> None:
    made = transitions(full_run.report())
    assert len(made) == 2 * 6 * 2 and {one.items for one in made} == {400}  # models, recipes, endpoints that count
    worst = next(one for one in made if (one.model, one.candidate) == ("fragile", "k8v8-f"))
    assert worst.counts == (189, 211, 0, 0)
    drawing = transition_panel("retrieval", [one for one in made if one.endpoint == "retrieval"])
    assert "−211 +0 of 400" in drawing.svg and drawing.svg.count(">none of 400<") == 6


def test_one_lost_item_is_seen(fake_run: FakeRun) -> None:
    lost = gate(n=100_000, losses=1, gains=0, control_outcomes={"wrong": 0}, native_score=1.0, unchanged=False)
    fake_run.end("certify", records=[lost, next(one for one in GATES if one.losses is None)])
    (one,) = transitions(fake_run.report())
    assert one.counts == (99_999, 1, 0, 0)
    red = re.search(r'width="([\d.]+)" height="12" fill="var\(--bad\)"', transition_panel("retrieval", [one]).svg)
    assert red is not None and float(red[1]) >= 1


def test_the_waterfall_names_every_step_and_its_sign() -> None:
    parts = [record for record in memory_records() if isinstance(record, MemoryPart)]
    svg = memory_figure(parts, "native").svg
    assert svg.count(">keys<") == svg.count(">values<") == 4  # of the six candidates
    assert svg.count("−25.0 %") == 8 and svg.count("+3.1 %") == 1 and svg.count("+1.6 %") == 2
    alone = memory_figure([part for part in parts if part.recipe != "native"], "native").svg
    assert "−25.0 %" not in alone and alone.count("<rect") == 6  # without a control there is nothing to step from


def test_latencies_leave_out_pilots_and_warmups(fake_run: FakeRun) -> None:
    fake_run.end("timing")
    (times,) = times_of(fake_run.report()).values()
    assert {recipe: len(own) for recipe, own in times.items()} == {"native": 24, "k16v8-f": 24, "k8v8-f": 24}
    cell = next(record for record in timing_records() if isinstance(record, TimingCell) and not record.pilot)
    assert times["native"][0] == pytest.approx((cell.ended_ns[1] - cell.started_ns[1]) / 1e6)


def test_latencies_leave_out_blocks_that_do_not_count(fake_run: FakeRun) -> None:
    fake_run.end("timing")
    cells = [record for record in timing_records() if isinstance(record, TimingCell) and not record.pilot]
    blocks = sorted({cell.block for cell in cells})
    judged = [
        BlockRecord(model="robust", load=cells[0].load, block=block, order=[], valid=block not in out,
                    faults=[{"rule": "stamps"}] if block in out else [])
        for out in (blocks[:2], blocks)
        for block in blocks
    ]  # fmt: skip
    fake_run.end("contrast", records=judged[: len(blocks)])
    (times,) = times_of(fake_run.report()).values()
    assert len(times["native"]) == 2 * (len(blocks) - 2)
    assert f"2 of {len(blocks)} blocks do not count." in latency_section(fake_run.report())
    fake_run.end("contrast", records=judged[len(blocks) :])
    section = latency_section(fake_run.report())
    assert "No block counts, so nothing is drawn" in section and "<svg" not in section


def test_a_long_distribution_is_drawn_as_quantiles() -> None:
    ends, shares = curve([float(value) for value in range(10_000)])
    assert len(ends) == len(shares) == MOST_POINTS and shares[-1] == 1 and ends[-1] == 9999
    assert curve([1.0, 2.0]) == ([1.0, 2.0], [0.5, 1.0])
