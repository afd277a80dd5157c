"""The install check passes only if everything was seen; every lack is named."""

import math
from dataclasses import replace
from typing import Any

import pytest

from kassay.backend.vllm_install import Evidence, findings, findings_of_fork, receipt, receipt_of_fork
from kassay.kinds.vllm import VllmCheck, VllmSpan
from kassay.kv.recipe import recipe_named
from tests.vllm.test_arguments import engine


def span(**given: Any) -> VllmSpan:
    """A repetition as it should be."""
    base: dict[str, Any] = {
        "arm": "a", "repetition": 0, "warmup": False, "requests": 2, "started_ns": 0, "ended_ns": 9,
        "prefilled_tokens": 80, "decode_steps": 9, "full_steps": 5, "mixed_steps": 1, "preemptions": 0,
        "replays": {"2": 4, "4": 5}, "fallbacks": 0, "step_ns": [1, 2],
    }  # fmt: skip
    return VllmSpan(**base | given)


def check(**given: Any) -> VllmCheck:
    """A check that found nothing."""
    base: dict[str, Any] = {
        "arm": "a", "traffic": "mixed", "layer": 0, "what": "output", "planted": False, "count": 9, "differing": 0,
        "error": 3e-4, "limit": 5e-4, "passed": True,
    }  # fmt: skip
    return VllmCheck(**base | given)


CHECKS = (check(), check(traffic="replay"), check(what="a byte of a value", planted=True, differing=1))
GOOD = Evidence(
    engine=engine(scale_policy="fixed", value_scales=[0.5, 0.25]),
    calibrated={"k": [1.0, 1.0], "v": [0.5, 0.25]},
    spans=[span(), span(repetition=1)],
    outputs=[[[5, 6], [7, 8]], [[5, 6], [7, 8]]],
    checks=CHECKS,
    free_blocks=99,
    allocated_bytes=[1000, 1000],
)

FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("physical", {"engine": replace(GOOD.engine, value_format="fp16")}),
    ("physical", {"engine": replace(GOOD.engine, key_format="e4m3fn")}),
    ("scales", {"engine": replace(GOOD.engine, value_scales=[0.5, 0.26])}),
    ("scales", {"engine": replace(GOOD.engine, value_scales=None)}),
    ("scales", {"engine": replace(GOOD.engine, events=["captured 8", "bound 0", "bound 1"])}),
    ("scales", {"engine": replace(GOOD.engine, events=["bound 0", "captured 8", "bound 1"])}),
    ("scales", {"engine": replace(GOOD.engine, events=["bound 0", "bound 1"])}),
    ("scales", {"calibrated": {}}),
    ("route", {"spans": [span(mixed_steps=0), span()]}),
    ("route", {"spans": [span(), span(fallbacks=1)]}),
    ("route", {"spans": [span(), span(fallbacks=None)]}),
    ("graphs", {"spans": [span(replays={"2": 9}), span()]}),
    ("graphs", {"spans": [span(replays={}), span(replays={})]}),
    ("memory", {"free_blocks": 98}),
    ("memory", {"allocated_bytes": [1000, 1512]}),
    ("memory", {"allocated_bytes": [1000]}),
    ("memory", {"spans": [span(), span(preemptions=1)]}),
    ("text", {"outputs": [[[5, 6], [7, 8]], [[5, 6], [7, 9]]]}),
    ("text", {"outputs": [[[5, 5], [5, 5]], [[5, 5], [5, 5]]]}),
    ("text", {"outputs": [[[5, 6]]]}),
    ("text", {"checks": [replace(CHECKS[0], error=math.nan, passed=False), *CHECKS[1:]]}),
    ("oracle", {"checks": [replace(CHECKS[0], error=1e-3, passed=False), *CHECKS[1:]]}),
    ("oracle", {"checks": [*CHECKS[:2], replace(CHECKS[2], differing=0, passed=False)]}),
    ("oracle", {"checks": CHECKS[:2]}),
    ("oracle", {"checks": [CHECKS[0], CHECKS[2]]}),
]


def test_everything_seen_passes() -> None:
    found = findings(GOOD)
    assert [one.name for one in found if not one.passed] == []
    assert receipt(found, GOOD.engine)["passed"] is True


@pytest.mark.parametrize(("name", "change"), FAULTS)
def test_one_thing_unseen_fails_and_is_named(name: str, change: dict[str, Any]) -> None:
    seen = replace(GOOD, **change)
    found = findings(seen)
    assert name in {one.name for one in found if not one.passed}
    made = receipt(found, seen.engine)
    assert made["passed"] is False and made["findings"][name]["passed"] is False


def test_a_receipt_needs_all_findings_and_real_weights() -> None:
    found = findings(GOOD)
    assert receipt(found[:6], GOOD.engine)["passed"] is False
    assert receipt(found, replace(GOOD.engine, dummy_weights=True))["passed"] is False


FORK = replace(GOOD, engine=replace(GOOD.engine, backend="FlashInferBackend", events=[]), checks=[])
FORK_FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("physical", {"engine": replace(FORK.engine, value_format="fp16")}),
    ("scales", {"engine": replace(FORK.engine, value_scales=[1.0, 1.0])}),
    ("scales", {"engine": replace(FORK.engine, value_scales=None)}),
    ("scales", {"engine": replace(FORK.engine, key_scales=[1.0, 1.0])}),
    ("route", {"spans": [span(mixed_steps=0)]}),
    ("memory", {"free_blocks": 5}),
    ("text", {"outputs": [[[5, 6]], [[5, 7]]]}),
    ("text", {"outputs": []}),
]


def test_a_fork_passes_on_what_it_tells_and_its_receipt_says_what_it_does_not() -> None:
    found = findings_of_fork(FORK, recipe_named("k16v8-f"))
    made = receipt_of_fork(found, FORK.engine)
    assert made["passed"] is True and made["schema"] == "kassay.vllm_fork/1"
    assert "operands in the worker: no oracle" in made["not_told"]
    native = replace(FORK, engine=replace(FORK.engine, value_format="fp16", value_scales=None))
    assert all(one.passed for one in findings_of_fork(native, recipe_named("native")))


@pytest.mark.parametrize(("name", "change"), FORK_FAULTS)
def test_one_thing_that_a_fork_tells_otherwise_fails(name: str, change: dict[str, Any]) -> None:
    seen = replace(FORK, **change)
    found = findings_of_fork(seen, recipe_named("k16v8-f"))
    assert name in {one.name for one in found if not one.passed}
    assert receipt_of_fork(found, seen.engine)["passed"] is False
