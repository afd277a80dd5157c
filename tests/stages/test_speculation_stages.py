"""Acceptance, timed cells with drafts and rho: the stages on a shipped model at the smallest sizes, and the audit."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kassay import judging, paths
from kassay.audit import compare, drafted
from kassay.backend import acceptance, reference, workload
from kassay.backend.ngram import Drafting
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import TimingCell
from kassay.kv.ragged import RaggedCache
from kassay.kv.recipe import recipe_named
from kassay.record import read_kind
from kassay.validity import faults
from tests.tiny import torch_as_it_was  # noqa: F401  an autouse fixture

ROBUST = paths.ROOT / "data" / "models" / "robust"
SECTION: dict[str, Any] = {
    "drafts": "ngram", "draft_tokens": 3, "longest_ngram": 3, "shortest_ngram": 2, "same_tokens": True,
    "arms": {"native-ngram": "native"},
    "acceptance": {
        "recipes": ["native", "k8v8-f"], "contexts_tokens": [64], "batches": [1, 3], "draft_tokens": [1, 4],
        "requests": 3, "output_tokens": 12, "rounding_tolerance": 0.01,
    },
}  # fmt: skip
MODEL = {"model": "robust", "sixteen": "fp16", "seed": 3}


def test_acceptance_is_measured_on_the_whole_grid_and_counted_again(
    run_stage: Callable[..., Any], robust_scales: Path
) -> None:
    ran = run_stage("acceptance", {**MODEL, "speculation": SECTION}, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    made = ran.records("acceptance")
    assert [(one["batch"], one["recipe"], one["draft_tokens"]) for one in made] == [
        (batch, recipe, tokens) for batch in (1, 3) for recipe in ("native", "k8v8-f") for tokens in (1, 4)
    ]
    assert all(one["other_requests"] == 0 and 0 < one["acceptance"] < 1 for one in made)
    assert ran.outcome.metrics["requests with another token"] == 0
    for one, other in zip(made[:4], made[4:], strict=True):  # the batch by itself changes nothing
        assert one["accepted"] == other["accepted"] and one["drafted"] == other["drafted"]
    stage: Any = SimpleNamespace(name="acceptance", params={"speculation": SECTION})
    run: Any = SimpleNamespace(folder=lambda name: ran.directory)
    told = compare.Compared(stage="acceptance")
    drafted.recount_acceptance(run, stage, told)
    assert told.values > 50 and told.differences == []
    made[0]["acceptance"] *= 1.001
    made[1]["batch"] = 2
    lines = (ran.directory / paths.RECORDS).read_text().splitlines()
    others = [line for line in lines if '"kassay.acceptance/' not in line]
    (ran.directory / paths.RECORDS).write_text("\n".join([*others, *map(json.dumps, made)]) + "\n")
    told = compare.Compared(stage="acceptance")
    drafted.recount_acceptance(run, stage, told)
    assert {one.field for one in told.differences} == {"acceptance", "points"}


def test_a_cell_with_drafts_leaves_their_evidence(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    """One block of two arms in processes of their own; the smallest end to end that times."""
    load = {"requests": 2, "input_tokens": 64, "output_tokens": 10}
    params = {
        **MODEL, "load": "many", "arms": ["native", "native-ngram"], "orders": "williams", "blocks": 1,
        "pilot_blocks": 0, "warmups": 1, "repetitions": 1, "workloads": {"many": load}, "speculation": SECTION,
    }  # fmt: skip
    ran = run_stage("timing", params, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 0, ran.stderr
    records = ran.directory / paths.RECORDS
    found = judging.evidence(records, "many")
    plain, ngram = sorted(read_kind(records, TimingCell), key=lambda one: one.recipe)
    (drafts,) = read_kind(records, SpeculationCell)
    assert faults(found, None, SECTION) == [] and (ngram.recipe, drafts.base) == ("native-ngram", "native")
    assert plain.decode_steps == [10, 10] and max(ngram.decode_steps) < 10 and ngram.request_tokens == [[10, 10]] * 2
    assert (
        plain.output_sha256s == ngram.output_sha256s and plain.prefilled_tokens == ngram.prefilled_tokens == [128] * 2
    )
    assert [max(passes) for passes in drafts.passes] == ngram.decode_steps
    assert [min(passes) for passes in drafts.passes] == ngram.full_steps and ngram.preemptions == [0, 0]
    lost = replace(found, drafts=())
    assert {(one.rule, one.recipe) for one in faults(lost, None, SECTION)} == {("drafts", "native-ngram")}


def test_a_verify_pass_that_reads_what_was_rejected_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the measure is for: rejected tokens that stay. It is no rounding, and shows as one beyond it."""
    model = reference.load(ROBUST, 1)
    prompt_BT = workload.speed_prompts(2, 64, 3)
    grid = acceptance.Grid(
        recipes=(recipe_named("native"),), draftings=(Drafting(draft_tokens=4, longest=3, shortest=2),), batches=(2,),
        output_tokens=16, rounding_tolerance=0.01,
    )  # fmt: skip
    named = {"model": "robust", "prompts_sha256": "x"}
    (clean,) = acceptance.measured(model, {}, prompt_BT, grid, named)
    assert clean.largest_rounding < 0.01 and clean.other_requests == 0
    settle, filled = RaggedCache.settle, reference.filled

    def roomy(model: Any, recipe: Any, scales: Any, context: Any, more_tokens: int) -> Any:
        return filled(model, recipe, scales, context, more_tokens + 32)  # room for what stays

    def forgetful(cache: Any, kept: list[int]) -> None:
        settle(cache, [min(count, stay + 1) for count, stay in zip(cache._counts, kept, strict=True)])

    monkeypatch.setattr(RaggedCache, "settle", forgetful)
    monkeypatch.setattr(reference, "filled", roomy)
    (faulty,) = acceptance.measured(model, {}, prompt_BT, grid, named)
    assert faulty.largest_rounding > 0.01


def test_a_rounding_that_is_none_rejects(run_stage: Callable[..., Any], robust_scales: Path) -> None:
    tight = {**SECTION, "acceptance": {**SECTION["acceptance"], "recipes": ["native"], "rounding_tolerance": 0.0}}
    ran = run_stage("acceptance", {**MODEL, "speculation": tight}, {"model": ROBUST, "scales": robust_scales})
    assert ran.code == 3 and "a verify pass is no plain decoding: `native`" in ran.outcome.reason
