"""The eight-model matrix: all planned rows, each with what stopped it, and a family of which most was never run."""

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kassay import digest, paths
from kassay.kinds.matrix import CaseGateRecord, MatrixRow
from kassay.kinds.timing import TimingCell
from kassay.matrix import rows
from kassay.record import Writer
from kassay.stats import InvalidData
from tests import timed
from tests.stages.conftest import runner
from tests.study.test_files import content

PAIR = "k16v8-native"
LOAD = "qwen3-8b-1k-b32"
GATES = ("production", "nll", "retrieval", "gsm8k")
# Model -> what the published study found at each stage until it stopped, in kassay's words.
FOUND: dict[str, tuple[str, ...]] = {
    "qwen3-8b": ("pass", "pass", "pass", "pass"),
    "qwen25-7b": ("pass", "fails", "pass"),
    "qwen25-05b": ("fails",),
    "qwen25-15b": ("pass", "pass", "pass", "fails"),
    "mistral-7b": ("pass", "pass", "pass", "ineligible"),
    "llama31-8b": ("pass", "pass", "pass", "unestablished"),
    "phi-4": ("pass", "pass", "pass", "pass"),
    "r1-distill-7b": ("pass", "pass", "unestablished"),
}
Changes = dict[tuple[str, str, str], tuple[str, str] | None]


def study() -> dict[str, Any]:
    """The study with what its sources do not print set to anything that fits."""
    body = content("b32-matrix")
    body["timing"] |= {"pilot_blocks": 0, "orders": "williams", "family": [PAIR], "alpha": 0.05, "interval_alpha": 0.05}
    return body


def published_ratios() -> dict[tuple[str, str], list[float]]:
    """The ratios of the two models that were timed, as printed."""
    lines = (paths.ROOT / "data" / "published" / "figures.jsonl").read_text(encoding="utf-8").splitlines()
    figures = {body["figure"]: body for body in map(json.loads, lines)}
    return {
        (f"{model}-1k-b32", PAIR): [float(text) for text in figures[f"b32.{model}.median"]["rounded"]["ratios"]]
        for model in ("qwen3-8b", "phi-4")
    }


def verdicts(**changes: str | None) -> dict[tuple[str, str, str], tuple[str, str]]:
    """All results, with those of `model__stage` changed or taken away."""
    found = {
        (model, PAIR, stage): (word, f"{stage} of {model}")
        for model, words in FOUND.items()
        for stage, word in zip(GATES, words, strict=False)
    }
    for key, word in changes.items():
        model, stage = key.replace("_", "-").split("--")
        found.pop((model, PAIR, stage), None)
        if word is not None:
            found[model, PAIR, stage] = (word, "changed")
    return found


def matrix(found: Any = None, ratios: Any = None, body: Any = None) -> dict[str, MatrixRow]:
    """The rows by model."""
    made = rows(
        body or study(), verdicts() if found is None else found, published_ratios() if ratios is None else ratios
    )
    return {row.model: row for row in made}


def test_every_planned_row_is_there_with_what_stopped_it() -> None:
    found = matrix()
    assert list(found) == list(FOUND)
    assert {model: row.verdict for model, row in found.items() if row.verdict != "not run"} == {
        "qwen3-8b": "no confirmed gain",
        "phi-4": "no confirmed gain",
    }
    assert all(row.as_expected for row in found.values())
    assert found["qwen25-05b"].verdicts == ["fails", "not run", "not run", "not run"]
    assert found["qwen25-7b"].verdicts == ["pass", "fails", "pass", "not run"], (
        "retrieval runs even where the loss fails"
    )
    assert found["qwen25-7b"].reasons[3] == "`nll` fails: a predeclared rule stops here"
    assert found["mistral-7b"].reason == "`gsm8k` ineligible: a predeclared rule stops here"
    assert found["r1-distill-7b"].verdicts[-1] == "not run" and found["r1-distill-7b"].median is None


def test_the_family_keeps_24_members_of_which_two_were_run() -> None:
    found = matrix()
    assert {row.family_size for row in found.values()} == {24}
    qwen, phi = found["qwen3-8b"], found["phi-4"]
    assert (qwen.wins, qwen.p, qwen.holm_p) == (9, 11 / 1024, float(Fraction(11 * 24, 1024)))
    assert f"{qwen.holm_p:.6f}" == "0.257812" and (phi.wins, phi.holm_p) == (0, 1.0)
    assert [f"{value:.5f}" for value in (qwen.median, qwen.lower, qwen.upper)] == ["1.00264", "1.00090", "1.00488"]
    assert [f"{value:.5f}" for value in (phi.median, phi.lower, phi.upper)] == ["0.97355", "0.97246", "0.97553"]
    assert all(row.holm_p == 1.0 and row.p is None for row in found.values() if row.verdict == "not run")


def test_ten_wins_of_ten_above_the_screen_are_a_gain_and_nine_are_none() -> None:
    won = {key: [1.02] * 10 for key in published_ratios()}
    assert matrix(ratios=won)["qwen3-8b"].verdict == "gain confirmed"
    won["qwen3-8b-1k-b32", PAIR] = [1.02] * 9 + [1.0]
    assert matrix(ratios=won)["qwen3-8b"].verdict == "no confirmed gain"
    won["qwen3-8b-1k-b32", PAIR] = [1.0099] * 10
    assert matrix(ratios=won)["qwen3-8b"].verdict == "no confirmed gain"


@pytest.mark.parametrize("word", [None, "unestablished", "ineligible", "fails"])
@pytest.mark.parametrize("stage", GATES)
def test_no_row_is_timed_on_anything_but_four_passes(stage: str, word: str | None) -> None:
    with pytest.raises(InvalidData, match="though"):  # it was timed, or a stage ran that a rule had stopped
        matrix(found=verdicts(**{f"phi_4__{stage}": word}))


def test_a_result_that_is_not_there_is_said_and_is_no_pass() -> None:
    untimed = {key: value for key, value in published_ratios().items() if key[0] != "phi-4-1k-b32"}
    row = matrix(found=verdicts(phi_4__nll=None), ratios=untimed)["phi-4"]
    assert row.verdicts == ["pass", "not run", "pass", "pass"]
    assert (row.reasons[1], row.verdict, row.reason) == ("there is no result of `nll`", "not run", "`nll` is no pass")
    whole = matrix(ratios=untimed)["phi-4"]
    assert (whole.verdict, whole.reason) == ("not run", "it qualifies, and there is no timing of it")
    assert whole.as_expected is False


def test_what_the_study_does_not_plan_is_an_error() -> None:
    with pytest.raises(InvalidData, match="which the study does not plan"):
        matrix(found=verdicts() | {("gpt", PAIR, "nll"): ("pass", "")})
    with pytest.raises(InvalidData, match="which the study does not plan"):
        matrix(ratios=published_ratios() | {("8k", PAIR): [1.0] * 10})
    with pytest.raises(InvalidData, match="8 rows are planned, and Holm counts 7"):
        body = study()
        body["timing"]["family_size"] = 7
        matrix(body=body)
    with pytest.raises(InvalidData, match="`gsm8k` has a result on `qwen25-7b`, though"):
        matrix(found=verdicts(qwen25_7b__gsm8k="pass"))
    with pytest.raises(InvalidData, match="9 blocks, allowed are the 10 planned"):
        matrix(ratios={key: value[:9] for key, value in published_ratios().items()})


def two_models() -> dict[str, Any]:
    """The matrix cut to two models, one gate of checks and two blocks."""
    body = copy.deepcopy(study())
    loads = ["qwen3-8b-1k-b32", "qwen25-05b-1k-b32"]
    body["timing"] |= {"workloads": loads, "blocks": 2}
    body |= {"stages": ["production", "timing"], "stops": body["stops"][:1], "expected": None}
    body["stops"][0]["gates_off"] = ["timing"]
    return body


def test_the_stage_reads_gates_and_cells(tmp_path: Path) -> None:
    cases = Writer(tmp_path / "gates.jsonl")
    for model, passed in (("qwen3-8b", 360), ("qwen25-05b", 351)):
        verdict = "pass" if passed == 360 else "fails"
        cases.append(
            CaseGateRecord(
                model=model, gate="production", endpoint="production", cases=360, passed=passed, verdict=verdict,
                reason=f"{passed} of 360",
            )
        )  # fmt: skip
    cases.close()
    orders = [["native", "k16v8"], ["k16v8", "native"]]
    digest.write_json(tmp_path / "orders.json", {"orders": orders})
    cells = Writer(tmp_path / "cells.jsonl")
    for block, order in enumerate(orders):
        for position, arm in enumerate(order):
            made = cell(block, position, arm)
            for record in (made, *timed.around([made])):
                cells.append(record)
    cells.close()
    inputs = {
        "gates.all": tmp_path / "gates.jsonl",
        f"timing.{LOAD}": tmp_path / "cells.jsonl",
        f"orders.{LOAD}": tmp_path / "orders.json",
    }
    run_stage: Callable[..., Any] = runner(tmp_path)
    ran = run_stage("matrix", {"study": two_models()}, inputs)
    assert ran.code == 0, ran.stderr
    first, second = ran.records("matrix_row")
    assert (first["verdict"], first["wins"], first["ratios"]) == ("no confirmed gain", 2, [2.0, 2.0])
    assert (second["verdict"], second["verdicts"], second["reasons"]) == ("not run", ["fails"], ["351 of 360"])
    assert ran.outcome.metrics == {"rows": 2, "no confirmed gain": 1, "not run": 1}
    assert [(block["load"], block["valid"]) for block in ran.records("block")] == [(LOAD, True)] * 2
    other = f"timing.{LOAD}".replace("qwen3-8b", "qwen25-05b")
    ran = run_stage("matrix", {"study": two_models()}, {**inputs, other: inputs[f"timing.{LOAD}"]})
    assert (
        ran.code == 1 and f"no timing cell is of the load `qwen25-05b-1k-b32`, there are `{LOAD}`" in ran.outcome.reason
    )
    expected = {**two_models(), "expected": {"qwen3-8b-1k-b32": {PAIR: "gain confirmed"}}}
    ran = run_stage("matrix", {"study": expected}, inputs)
    assert (ran.code, ran.outcome.reason) == (
        3,
        "k16v8-native at qwen3-8b-1k-b32: no confirmed gain, expected gain confirmed",
    )


@pytest.mark.parametrize(
    ("loud", "needed", "verdict"), [(0, 3, "no confirmed gain"), (1, 3, "invalidated"), (1, 2, "no confirmed gain")]
)
def test_the_blocks_of_a_load_count_by_the_frozen_limits(loud: int, needed: int, verdict: str, tmp_path: Path) -> None:
    """A power-capped cell in one of three blocks: the load is invalidated unless the plan needs only two."""
    orders = [["native", "k16v8"], ["k16v8", "native"], ["native", "k16v8"]]
    digest.write_json(tmp_path / "orders.json", {"orders": orders})
    cases = Writer(tmp_path / "gates.jsonl")
    cases.append(
        CaseGateRecord(
            model="qwen3-8b", gate="production", endpoint="production", cases=1, passed=1, verdict="pass", reason="all"
        )
    )
    cases.close()
    cells = Writer(tmp_path / "cells.jsonl")
    for block, order in enumerate(orders):
        for position, arm in enumerate(order):
            made = cell(block, position, arm)
            late = {"power": 10**9 if (block, position) == (loud, 0) and loud else 7, "thermal": 7}
            cells.append(made)
            for when, held in (("before", {"power": 7, "thermal": 7}), ("after", late)):
                cells.append(timed.host(made, when))
                cells.append(timed.gpu(made, when, slowed_ns=held))
    cells.close()
    free = ("cached_tokens", "foreign_gpu_processes", "foreign_cpu_percent", "drift_percent")
    limits = {**dict.fromkeys(free), "power_capped_percent": 0, "slowdown_percent": 0, "valid_blocks": needed}
    body = two_models()
    body["timing"] |= {"blocks": 3, "conditions": limits}
    inputs = {"gates.all": "gates.jsonl", f"timing.{LOAD}": "cells.jsonl", f"orders.{LOAD}": "orders.json"}
    ran = runner(tmp_path)("matrix", {"study": body}, {name: tmp_path / file for name, file in inputs.items()})
    assert ran.code == 0, ran.stderr
    row = ran.records("matrix_row")[0]
    assert (row["verdict"], row["holm_p"]) == (verdict, 1.0)
    assert (row["ratios"] is None) == (verdict == "invalidated")
    blocks = ran.records("block")
    assert [one["valid"] for one in blocks] == [True, not loud, True] and {one["load"] for one in blocks} == {LOAD}
    told = {fault["rule"] for one in blocks for fault in one["faults"]}
    assert told == ({"power_capped_percent"} if loud else set())
    assert not loud or needed == 2 or "2 of 3 blocks count and 3 are needed" in row["reason"]


def cell(block: int, position: int, arm: str) -> TimingCell:
    """A cell in which K16/V8 is twice as fast."""
    took_ns = 10**9 // (2 if arm == "k16v8" else 1)
    return timed.cell(
        load=LOAD, block=block, position=position, model="qwen3-8b", recipe=arm, batch=1, warmups=0, started_ns=[0],
        ended_ns=[took_ns],
    )  # fmt: skip
