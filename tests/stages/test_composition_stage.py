"""The composition stage on timing cells of four arms, its refusals, and what the report shows of it."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kassay import paths
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.timing import TimingCell
from kassay.record import Writer
from kassay.report.composition import composition_figure, composition_table
from kassay.stats import InvalidData
from tests import timed

ARMS = {"plain": "native", "quantized": "k8v8-f", "speculative": "native-ngram", "combined": "k8v8-f-ngram"}
SPEED = {"native": 1.0, "k8v8-f": 1.2, "native-ngram": 2.5, "k8v8-f-ngram": 1.86}  # rho 0.62
BLOCKS = 6
NS = 1_000_000_000


def cell(block: int, position: int, arm: str, batch: int = 4) -> TimingCell:
    """A cell whose measured repetition took 1 s over the arm's speed, in a block that is slower the later it is."""
    took = round((1 + 0.2 * block) * NS / SPEED[arm])
    return timed.cell(
        block=block,
        position=position,
        recipe=arm,
        batch=batch,
        context_tokens=64,
        ended_ns=[9 * NS, 10 * NS + took],
        prompts_sha256=f"of batch {batch}",
    )


def cells(batch: int = 4) -> list[TimingCell]:
    """All planned cells of one load."""
    return [cell(block, position, arm, batch) for block in range(BLOCKS) for position, arm in enumerate(SPEED)]


def judge(run_stage: Callable[..., Any], tmp_path: Path, made: list[TimingCell], **changes: Any) -> Any:
    """Run the stage on these cells."""
    path = tmp_path / "timing.jsonl"
    path.unlink(missing_ok=True)
    writer = Writer(path)
    for each in made:
        writer.append(each)
    writer.close()
    return run_stage(
        "composition", {"arms": ARMS, "blocks": BLOCKS, "interval_alpha": 0.05} | changes, {"timing": path}
    )


def test_a_planted_rho_is_found_for_each_load_and_shown(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    pilot = replace(cell(0, 0, "native"), pilot=True, ended_ns=[9 * NS, 99 * NS])
    other = replace(cell(0, 0, "native"), recipe="k16v8-f")
    ran = judge(run_stage, tmp_path, [pilot, other, *cells(), *cells(batch=8)])
    assert ran.code == 0, ran.stderr
    found = ran.records("composition")
    assert [(body["batch"], body["interval_class"]) for body in found] == [
        (4, "sub-multiplicative"),
        (8, "sub-multiplicative"),
    ]
    assert found[0]["median"] == pytest.approx(0.62, rel=1e-6) and found[0]["below"] == BLOCKS
    assert found[0]["combined_speedups"][3] == pytest.approx(1.86, rel=1e-6)
    records = [CompositionRecord.from_json(body) for body in found]
    drawing, table = composition_figure(records), composition_table(records)
    assert "toy, batch 4, 64 tokens: rho 0.620, sub-multiplicative" in drawing.label
    assert "sub-multiplicative" in table and "0.62" in table and "95 % interval" in table


def judged_here(made: list[TimingCell], arms: dict[str, str] = ARMS) -> dict[str, list[float]]:
    """What the stage takes from cells of one load, in this process: thirteen processes would take as many seconds."""
    where = importlib.util.spec_from_file_location("composition_stage", paths.program("composition"))
    assert where is not None and where.loader is not None
    stage = importlib.util.module_from_spec(where)
    where.loader.exec_module(stage)
    stage.require_arms(arms)
    found: dict[str, list[float]] = stage.rates(("toy", 4, 64, 4), made, arms, BLOCKS)
    return found


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("missing, repeated", lambda made: made[1:]),
        ("missing, repeated", lambda made: [*made, made[0]]),
        ("missing, repeated", lambda made: [*made, cell(BLOCKS, 0, "native")]),
        ("missing, repeated", lambda made: [replace(made[0], recipe="k8v8-f"), *made[1:]]),
        ("different prompts", lambda made: [replace(made[0], prompts_sha256="other"), *made[1:]]),
        (
            "completion.*: 15 of 16 tokens were",
            lambda made: [replace(made[0], request_tokens=[[4] * 4, [4, 4, 4, 3]]), *made[1:]],
        ),
        ("process.*: another cell of the block ran", lambda made: [replace(made[0], pid=made[1].pid), *made[1:]]),
    ],
)
def test_corrupted_cells_are_errors(words: str, change: Callable[..., list[TimingCell]]) -> None:
    assert {role: len(rates) for role, rates in judged_here(cells()).items()} == dict.fromkeys(ARMS, BLOCKS)
    with pytest.raises(InvalidData, match=words):
        judged_here(change(cells()))


@pytest.mark.parametrize("arms", [ARMS | {"combined": "native"}, {"plain": "native"}, ARMS | {"other": "k16v8-f"}])
def test_roles_without_arms_of_their_own_are_errors(arms: dict[str, str]) -> None:
    with pytest.raises(InvalidData, match="four different ones"):
        judged_here(cells(), arms)


def test_no_cell_of_these_arms_is_an_error_of_the_stage(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, [replace(cell(0, 0, "native"), recipe="k16v8-f")])
    assert ran.code == 1 and "no timing cell is of the arms" in ran.outcome.reason
