"""From a composed workflow to a plan: expansion, order, the hash, and all errors at once."""

from typing import Any

import pytest

from kassay.errors import PlanError
from tests.conftest import Project


def test_each_and_star_expand(project: Project) -> None:
    made = project.plan(
        {
            "make": {"program": "ok", "each": {"model": ["r", "f"]}, "params": {"name": "{model}"}},
            "join": {"program": "ok", "inputs": {"all": "make.*.out"}},
        }
    )
    assert [stage.name for stage in made.stages] == ["make.r", "make.f", "join"]
    assert made.stage("make.f").params == {"name": "f"}
    assert made.stage("join").inputs == {"all.r": "make.r.out", "all.f": "make.f.out"}
    assert made.stage("join").needs() == ["make.f", "make.r"]


def test_order_follows_the_references(project: Project) -> None:
    made = project.plan({"b": {"program": "ok", "inputs": {"x": "a.out"}}, "a": {"program": "ok"}})
    assert [stage.name for stage in made.stages] == ["a", "b"]


def test_the_hash_is_over_what_decides_results(project: Project) -> None:
    one = project.plan({"a": {"program": "ok", "params": {"x": 1}}})
    same = project.plan({"a": {"program": "ok", "params": {"x": 1}}}, profile="another name")
    other = project.plan({"a": {"program": "ok", "params": {"x": 2}}})
    assert one.hash() == same.hash() != other.hash()


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"a": {"program": "nope"}}, "unknown program `nope`, allowed are ok"),
        ({"a": {"program": "ok", "inputs": {"x": "b.out"}}}, "no such stage exists"),
        ({"a": {"program": "ok", "inputs": {"x": "tree:gone"}}}, "does not exist in the project"),
        ({"a": {"program": "ok", "parms": {}}}, "unknown key `parms`"),
        ({"a": {"program": "ok", "resources": {"cpus": 1, "memory_gib": 1, "gpu": 1}}}, "unknown resource `gpu`"),
        ({"a": {"program": "ok", "resources": {"cpus": 1}}}, "resources lack `memory_gib`"),
        ({"a": {"program": "ok", "after": "b"}}, "allowed is `all`"),
        ({"a": {"program": "ok", "measures": "gpu"}}, "allowed is `host`"),
        ({"A b": {"program": "ok"}}, "lower-case"),
        ({"a": {"program": "ok", "inputs": {"x": "m.*.out"}}}, "no stage `m."),
        (
            {"a": {"program": "ok", "inputs": {"x": "b.out"}}, "b": {"program": "ok", "inputs": {"x": "a.out"}}},
            "a cycle",
        ),
    ],
)
def test_errors(project: Project, stages: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        project.plan(stages)
    assert said in str(caught.value)


def test_all_errors_at_once(project: Project) -> None:
    with pytest.raises(PlanError) as caught:
        project.plan({"a": {"program": "nope"}, "b": {"program": "ok", "inputs": {"x": "zzz.out"}}})
    assert "`a`" in str(caught.value) and "`b`" in str(caught.value)
