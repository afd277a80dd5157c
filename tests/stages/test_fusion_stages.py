"""The old INT4 law as a workflow: planted speed-ups are told apart, raw rounds decide, and no GPU is unmet."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kassay import plan
from kassay.config import kconfig
from kassay.engine.local import LocalEngine
from kassay.errors import EXIT_UNMET
from kassay.kinds.fusion import FusionCell
from kassay.record import Writer
from kassay.run import Run
from kassay.rundir import Setup

LAYOUTS = [(32, 8), (28, 4), (16, 2), (12, 2)]
PARAMS: dict[str, Any] = {
    "candidates": ["int4 each head", "int4 split"],
    "baselines": ["expanding", "grouped", "expanding split", "grouped split"],
    "alpha": 0.05,
    "draws": 20,
    "seed": 1,
}
CEILINGS = {"expanding": 4.0, "grouped": 1.5, "expanding split": 4.0, "grouped split": 1.5}


def cell(heads: tuple[int, int], batch: int, context: int, arm: str, us: float) -> FusionCell:
    """An arm whose rounds differ by a per mille."""
    return FusionCell(
        query_heads=heads[0], kv_heads=heads[1], head_dim=128, page_tokens=16, batch=batch, context_tokens=context,
        arm=arm, splits=1, programs=1, tile="64x4x3", call_bytes=batch * context * (9 if "expanding" in arm else 1),
        calls=8, rounds_us=[us, 1.001 * us, 0.999 * us], error=3e-4, failed="",
    )  # fmt: skip


def planted(of_heads: bool) -> list[FusionCell]:
    """Whole arms saturate with batch times query heads (or with the batch), split ones with what is cached."""
    made = []
    for heads in LAYOUTS:
        for context in (1024, 8192):
            for batch in (1, 2, 4, 8, 16, 32, 64, 128):
                x = batch * heads[0] / 100 if of_heads else batch / 5
                y = batch * context * heads[1] / 1e6
                made += [cell(heads, batch, context, arm, 10.0 * batch) for arm in PARAMS["candidates"]]
                for arm, ceiling in CEILINGS.items():
                    share = y / (1 + y) if arm.endswith(" split") else x / (1 + x)
                    made.append(cell(heads, batch, context, arm, 10.0 * batch * ceiling * share))
    return made


def judge(run_stage: Callable[..., Any], tmp_path: Path, cells: list[FusionCell], **params: Any) -> Any:
    """Run fusion_law on these cells."""
    (tmp_path / "cells.jsonl").unlink(missing_ok=True)
    writer = Writer(tmp_path / "cells.jsonl")
    for made in cells:
        writer.append(made)
    writer.close()
    return run_stage("fusion_law", PARAMS | params, {"cells": tmp_path / "cells.jsonl"})


def test_planted_occupancy_is_found_and_the_ceiling_is_the_baselines(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    ran = judge(run_stage, tmp_path, planted(of_heads=True))
    assert ran.code == 0, ran.stderr
    found = {(one["candidate"], one["baseline"]): one for one in ran.records("fusion_verdict")}
    one = found["int4 each head", "expanding"]
    assert (one["verdict"], one["covariate"]) == ("follows", "batch x query heads") and one["gain_over_batch"] > 100
    assert one["half_spread_query_heads"] < 1.01 < 2 < one["half_spread"]
    other = found["int4 split", "grouped split"]
    assert (other["verdict"], other["covariate"]) == ("follows", "batch x context x KV heads")
    assert {body["claim"]: body["verdict"] for body in ran.records("fusion_claim")} == {
        "whole contexts: batch times heads, over a head-expanding baseline": "holds",
        "split contexts: what is cached": "holds",
        "the baseline makes the ceiling": "holds",
    }
    best = [body for body in ran.records("fusion_fit") if body["best"] and body["baseline"] == "expanding"]
    assert all(body["ceiling"] == pytest.approx(4, rel=1e-3) and body["ceiling_ends"] for body in best)
    assert len(ran.records("saturation_law")) == 6 * len(LAYOUTS) * 4


def test_a_batch_law_fails_the_claim_of_occupancy(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    cells = [
        replace(one, rounds_us=None, error=None, failed="out of memory")
        if one.arm == "grouped" and one.batch == 128
        else one
        for one in planted(of_heads=False)
    ]
    ran = judge(run_stage, tmp_path, cells, candidates=["int4 each head"], baselines=["expanding", "grouped"])
    assert ran.code == 0, ran.stderr
    said = {body["claim"]: body for body in ran.records("fusion_claim")}
    told = said["whole contexts: batch times heads, over a head-expanding baseline"]
    assert (told["verdict"], told["against"]) == ("fails", 1)
    assert ran.outcome.metrics["cells that did not run"] == 8
    assert {one["n"] for one in ran.records("fusion_verdict")} == {64, 56}


def test_pairs_fitted_side_by_side_are_those_fitted_one_by_one(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    kinds = ("fusion_fit", "fusion_verdict", "fusion_claim")
    found = []
    for cores in (1, 3):
        ran = judge(
            partial(run_stage, cpus=cores), tmp_path, planted(of_heads=True), baselines=["expanding", "grouped"]
        )
        assert ran.code == 0, ran.stderr
        found.append([ran.records(kind) for kind in kinds])
    assert found[0] == found[1] and len(found[0][1]) == 4


def test_a_pair_without_cells_is_named(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, [one for one in planted(of_heads=True) if one.arm != "expanding"])
    assert ran.code == 1 and "no cell holds both `int4 each head` and `expanding`" in ran.outcome.reason


class Quiet:
    """A watcher that says nothing."""

    def event(self, event: object) -> None:
        """Nothing."""

    def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
        """Nothing."""


def test_without_a_gpu_the_profile_ends_with_unmet_stages_and_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config = tmp_path / ".config"
    kconfig.load_profile("int4-fusion", {"STACK_PYTHON": sys.executable}, config)
    setup = Setup(
        results=tmp_path / "results", settings={}, overrides=[], interpreter=sys.executable, timeout_s=300,
        only=frozenset({"law"}), force=frozenset(), keep=frozenset(),
    )  # fmt: skip
    run = Run(plan.of_settings(kconfig.load(config), []), setup, LocalEngine(cpus=8, memory_gib=32))
    assert run.go(Quiet()) == EXIT_UNMET
    assert {name: made.word for name, made in run.outcomes.items()} == {
        "freeze": "passed", "build": "passed", "grid": "unmet", "law": "blocked",
    }  # fmt: skip
    assert "1 GPU is needed" in run.outcomes["grid"].reason


@pytest.mark.parametrize(("given", "pinned"), [({}, True), ({"STACK_PYTHON": "/path/to/python"}, False)])
def test_an_environment_of_the_users_is_attested_and_not_held_to_our_pins(
    given: dict[str, str], pinned: bool, tmp_path: Path
) -> None:
    config = tmp_path / ".config"
    kconfig.load_profile("int4-fusion", given, config)
    (asked,) = (one.params for one in plan.of_settings(kconfig.load(config), []).stages if one.name == "freeze")
    assert bool(asked["requirements"]) is pinned and {"torch", "triton"} <= set(asked["modules"])
