"""The composition stage on timing cells of four arms: blocks that count, its refusals, and what the report shows."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kassay import digest, judging, paths
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import GpuState, HostState, TimingCell
from kassay.record import Record, Writer
from kassay.report.composition import composition_figure, composition_row, composition_table
from kassay.report.words import ABSENT
from kassay.stats import InvalidData
from kassay.validity import Evidence
from tests import timed

ARMS = {"plain": "native", "quantized": "k8v8-f", "speculative": "native-ngram", "combined": "k8v8-f-ngram"}
SPEED = {"native": 1.0, "k8v8-f": 1.2, "native-ngram": 2.5, "k8v8-f-ngram": 1.86}  # rho 0.62
BLOCKS = 6
ORDERS = [list(SPEED)] * BLOCKS
NS = 1_000_000_000
LIMITS = {
    "cached_tokens": 0, "power_capped_percent": 0, "slowdown_percent": 0, "foreign_gpu_processes": 0,
    "foreign_cpu_percent": 30, "drift_percent": 5, "valid_blocks": 4,
}  # fmt: skip


def study(conditions: dict[str, Any] | None = LIMITS) -> dict[str, Any]:
    """What of a study is asked."""
    return {"timing": {"blocks": BLOCKS, "interval_alpha": 0.05, "conditions": conditions}}


def cell(block: int, position: int, arm: str, load: str = "timed", batch: int = 4) -> TimingCell:
    """A cell whose measured repetition took 1 s over the arm's speed, in a block that is slower the later it is."""
    took = round((1 + 0.2 * block) * NS / SPEED[arm])
    return timed.cell(
        load=load,
        block=block,
        position=position,
        recipe=arm,
        batch=batch,
        context_tokens=64,
        ended_ns=[9 * NS, 10 * NS + took],
        prompts_sha256=f"of batch {batch}",
    )


def cells(load: str = "timed", batch: int = 4) -> list[TimingCell]:
    """All planned cells of one load."""
    return [
        cell(block, position, arm, load, batch)
        for block, order in enumerate(ORDERS)
        for position, arm in enumerate(order)
    ]


def judge(
    run_stage: Callable[..., Any],
    folder: Path,
    loads: dict[str, list[TimingCell]],
    around: Any = None,
    asked: dict[str, Any] | None = None,
) -> Any:
    """Run the stage on these loads; `around` makes the records beside the cells, `asked` is the study."""
    inputs = {}
    for load, made in loads.items():
        inputs |= {f"timing.{load}": folder / f"{load}.jsonl", f"orders.{load}": folder / f"{load}.json"}
        writer = Writer(folder / f"{load}.jsonl")
        for record in (*made, *(around or timed.around)(made)):
            writer.append(record)
        writer.close()
        digest.write_json(folder / f"{load}.json", {"orders": ORDERS})
    return run_stage("composition", {"arms": ARMS, "study": asked or study()}, inputs)


def test_a_planted_rho_is_found_for_each_load_and_shown(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    pilot = replace(cell(0, 0, "native"), pilot=True, ended_ns=[9 * NS, 99 * NS])
    ran = judge(run_stage, tmp_path, {"timed": [pilot, *cells()], "larger": cells("larger", batch=8)})
    assert ran.code == 0, ran.outcome.reason
    found = ran.records("composition")
    assert [(body["load"], body["batch"], body["interval_class"]) for body in found] == [
        ("timed", 4, "sub-multiplicative"),
        ("larger", 8, "sub-multiplicative"),
    ]
    assert found[0]["median"] == pytest.approx(0.62, rel=1e-6) and found[0]["below"] == BLOCKS
    assert found[0]["combined_speedups"][3] == pytest.approx(1.86, rel=1e-6)
    assert (found[0]["valid_blocks"], found[0]["blocks"], found[0]["needed_blocks"]) == (list(range(6)), 6, 4)
    assert [(one["load"], one["valid"]) for one in ran.records("block")] == [("timed", True)] * 6 + [
        ("larger", True)
    ] * 6
    records = [CompositionRecord.from_json(body) for body in found]
    drawing, table = composition_figure(records), composition_table(records)
    assert "toy, batch 4, 64 tokens: rho 0.620, sub-multiplicative" in drawing.label
    assert "toy, larger, batch 8" in table and "6 of 6" in table and "95 % interval" in table


def capped(made: list[TimingCell], loud: set[int]) -> list[Record]:
    """Conditions under which the power cap held a GPU down for a second during the third cell of some blocks."""
    found: list[Record] = [*timed.around(made)]
    for one in made:
        held = {"power": NS if one.block in loud and one.position == 2 else 7, "thermal": 7}
        found += [timed.gpu(one, "before"), timed.gpu(one, "after", slowed_ns=held)]
    return found


@pytest.mark.parametrize("loud", [1, 2, 3])
def test_blocks_under_other_conditions_do_not_count(loud: int, run_stage: Callable[..., Any], tmp_path: Path) -> None:
    """Four of six blocks are needed. The loud ones have another rho: it is left out, or nothing is said at all."""
    bad = set(range(loud))
    slowed = [
        replace(one, ended_ns=[9 * NS, one.ended_ns[1] + 5 * NS]) if one.block in bad and one.position == 3 else one
        for one in cells()
    ]
    ran = judge(run_stage, tmp_path, {"timed": slowed}, lambda made: capped(made, bad))
    assert ran.code == 0, ran.outcome.reason
    (body,) = ran.records("composition")
    blocks = ran.records("block")
    assert [one["valid"] for one in blocks] == [block not in bad for block in range(BLOCKS)]
    assert {fault["rule"] for one in blocks for fault in one["faults"]} == {"power_capped_percent"}
    assert {(fault["recipe"], fault["position"]) for one in blocks for fault in one["faults"]} == {("native-ngram", 2)}
    record = CompositionRecord.from_json(body)
    if loud < 3:
        assert record.valid_blocks == list(range(loud, BLOCKS)) and record.reason == ""
        assert record.rhos == pytest.approx([0.62] * (BLOCKS - loud), rel=1e-6)
        return
    assert (record.interval_class, record.median, record.rhos, record.combined_speedups) == (
        "invalidated",
        None,
        [],
        [],
    )
    assert "3 of 6 blocks count and 4 are needed; a rule invalidates blocks 0, 1, 2" in record.reason
    assert ran.outcome.metrics == {"rho on timed": "invalidated", "blocks of timed that count": "3 of 6"}
    assert composition_row(record)[1:7] == [ABSENT] * 6
    assert composition_row(record)[7:] == ["3 of 6", "invalidated"] and record.reason in composition_table([record])


def program() -> ModuleType:
    """The stage in this process: so many processes would take as many seconds."""
    where = importlib.util.spec_from_file_location("composition_stage", paths.program("composition"))
    assert where is not None and where.loader is not None
    stage = importlib.util.module_from_spec(where)
    where.loader.exec_module(stage)
    return stage


def judged_here(
    made: list[TimingCell], hosts: list[HostState] | None = None, gpus: list[GpuState] | None = None
) -> Any:
    """The record of one load, and the rules that its blocks break."""
    found = Evidence(
        cells=tuple(made), hosts=tuple(timed.around(made) if hosts is None else hosts), gpus=tuple(gpus or ())
    )
    blocks = judging.judged(found, ORDERS, study()["timing"])
    return program().record_of(made[0], ARMS, blocks, study()["timing"]), {
        (one.block, one.rule) for one in blocks.faults
    }


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("missing, repeated", lambda made: made[1:]),
        ("missing, repeated", lambda made: [*made, made[0]]),
        ("missing, repeated", lambda made: [*made, cell(BLOCKS, 0, "native")]),
        ("missing, repeated", lambda made: [replace(made[0], recipe="k8v8-f"), *made[1:]]),
        ("different prompts", lambda made: [replace(made[0], prompts_sha256="other"), *made[1:]]),
    ],
)
def test_cells_of_another_plan_are_errors(words: str, change: Callable[..., list[TimingCell]]) -> None:
    with pytest.raises(InvalidData, match=words):
        judged_here(change(cells()))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("completion", lambda one, _: replace(one, request_tokens=[[4] * 4, [4, 4, 4, 3]])),
        ("process", lambda one, other: replace(one, pid=other.pid)),
        ("cached_tokens", lambda one, _: replace(one, prefilled_tokens=[256, 255])),
        ("preemption", lambda one, _: replace(one, preemptions=[0, 1])),
    ],
)
def test_a_cell_without_its_evidence_costs_its_block_alone(rule: str, change: Callable[..., TimingCell]) -> None:
    made = cells()
    record, broken = judged_here([change(made[0], made[1]), *made[1:]])
    assert broken == {(0, rule)} and record.valid_blocks == [1, 2, 3, 4, 5] and len(record.rhos) == 5


def test_a_host_that_was_not_recorded_or_drifted_costs_its_block() -> None:
    made = cells()
    hosts = timed.around(made)
    assert judged_here(made, hosts)[1] == set()
    assert judged_here(made, hosts[1:])[1] == {(0, "conditions")}
    drifted = [replace(one, core_mhz=2800.0) if (one.block, one.position) == (2, 1) else one for one in hosts]
    assert judged_here(made, drifted)[1] == {(2, "drift_percent")}
    busy = [
        replace(one, busy_s=(one.busy_s or 0) + 9) if (one.block, one.when) == (3, "after") else one for one in hosts
    ]
    assert judged_here(made, busy)[1] == {(3, "foreign_cpu_percent")}


@pytest.mark.parametrize("arms", [ARMS | {"combined": "native"}, {"plain": "native"}, ARMS | {"other": "k16v8-f"}])
def test_roles_without_arms_of_their_own_are_errors(arms: dict[str, str]) -> None:
    with pytest.raises(InvalidData, match="four different ones"):
        program().require_arms(arms)


def test_an_arm_that_was_not_timed_is_an_error(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    found = Evidence(cells=tuple(cells()), hosts=tuple(timed.around(cells())), gpus=())
    blocks = judging.judged(found, ORDERS, study(None)["timing"])
    with pytest.raises(InvalidData, match="`k16v8-f`, the combined arm, was not timed"):
        program().rates(ARMS | {"combined": "k16v8-f"}, blocks)
    ran = judge(run_stage, tmp_path, {})
    assert ran.code == 1 and "no load is among the inputs" in ran.outcome.reason


def test_other_arms_of_the_blocks_are_judged_and_not_asked() -> None:
    """A fifth arm of the same blocks: its lack of evidence is the block's, as for a contrast of the same cells."""
    order = [*SPEED, "k16v8-f"]
    more = [replace(cell(block, 4, "native"), recipe="k16v8-f", pid=9000 + block) for block in range(BLOCKS)]
    made = [*cells(), *more]
    found = Evidence(cells=tuple(made), hosts=tuple(timed.around(made)), gpus=())
    blocks = judging.judged(found, [order] * BLOCKS, study()["timing"])
    assert program().record_of(made[0], ARMS, blocks, study()["timing"]).rhos == pytest.approx([0.62] * BLOCKS)
    bad = [*cells(), replace(more[0], preemptions=[0, 2]), *more[1:]]
    found = Evidence(cells=tuple(bad), hosts=tuple(timed.around(bad)), gpus=())
    assert judging.judged(found, [order] * BLOCKS, study()["timing"]).valid == [1, 2, 3, 4, 5]


def drafts_of(one: TimingCell, **changes: Any) -> SpeculationCell:
    """What a cell says of its drafts: each of its four tokens took a pass, and none was drafted."""
    given: dict[str, Any] = {
        **{name: getattr(one, name) for name in ("load", "block", "pilot", "position", "recipe", "batch")},
        "base": one.recipe.removesuffix("-ngram"), "output_tokens": 4, "draft_tokens": 2, "longest_ngram": 4,
        "shortest_ngram": 2, "passes": [[4] * 4] * 2, "drafted": [[0] * 4] * 2, "accepted": [[0] * 4] * 2,
        "pass_requests": [[4] * 4] * 2, "pass_tokens": [[1] * 4] * 2,
    }  # fmt: skip
    return SpeculationCell(**given | changes)


def test_arms_that_the_study_says_to_draft_need_the_evidence_of_it(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    """A cell of such an arm that looks plain in all respects counts only with its drafts' record, pilots' left out."""
    section: dict[str, Any] = {
        "draft_tokens": 2, "longest_ngram": 4, "shortest_ngram": 2, "same_tokens": True,
        "arms": {"native-ngram": "native", "k8v8-f-ngram": "k8v8-f"},
    }  # fmt: skip
    made = cells()
    told = [drafts_of(one) for one in made if one.recipe in section["arms"]]
    pilots = [replace(one, pilot=True, passes=[]) for one in told]
    asked = study() | {"speculation": section}

    def around(lacking: int) -> Callable[[list[TimingCell]], list[Record]]:
        return lambda own: [*timed.around(own), *pilots, *told[lacking:]]

    whole = judge(run_stage, tmp_path, {"timed": made}, around(0), asked)
    assert whole.records("composition")[0]["valid_blocks"] == list(range(BLOCKS))
    (tmp_path / "lost").mkdir()
    lost = judge(run_stage, tmp_path / "lost", {"timed": made}, around(1), asked)
    assert lost.records("composition")[0]["valid_blocks"] == list(range(1, BLOCKS))
    assert [fault["rule"] for one in lost.records("block") for fault in one["faults"]] == ["drafts"]
