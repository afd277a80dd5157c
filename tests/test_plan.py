"""From a composed workflow to a plan: expansion, order, the hash, and all errors at once."""

import json
from typing import Any

import pytest

from kassay import plan
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
    same = project.plan({"a": {"program": "ok", "params": {"x": 1}}}, profile="another")
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
        ({"a": {"program": "ok", "after": None}}, "allowed is `all`"),
        ({"A b": {"program": "ok"}}, "lower-case"),
        ({"a": {"program": "../ok"}}, "unknown program `../ok`"),
        ({"a": {}}, "unknown program ``"),
        ({"a": {"program": "ok", "inputs": {"x": "a.out"}}}, "a cycle"),
        ({"a": {"program": "ok", "inputs": {"x": 3}}}, "input `x` is `3`, not a reference"),
        ({"a": {"program": "ok", "inputs": ["b.out"]}}, "`inputs` is no mapping"),
        ({"a": {"program": "ok", "inputs": {"x": "a"}}}, "no such stage exists"),
        ({"a": {"program": "ok"}, "b": {"program": "ok", "inputs": {"x": "a.b.out"}}}, "no such stage exists"),
        ({"a": {"program": "ok", "inputs": {"x": "tree:../"}}}, "does not exist in the project"),
        ({"a": {"program": "ok", "inputs": {"x": "tree:/nowhere/at all"}}}, "`/nowhere/at all` does not exist"),
        ({"a": {"program": "ok", "params": None}}, "`params` is no mapping"),
        ({"a": {"program": "ok", "resources": None}}, "`resources` is no mapping"),
        (
            {"a": {"program": "ok", "resources": {"cpus": "many", "memory_gib": 1}}},
            "`cpus` is `many`, allowed is a whole",
        ),
        ({"a": {"program": "ok", "resources": {"cpus": 0, "memory_gib": 1}}}, "`cpus` is `0`"),
        ({"a": {"program": "ok", "resources": {"cpus": True, "memory_gib": 1}}}, "`cpus` is `True`"),
        ({"a": {"program": "ok", "resources": {"cpus": 1.5, "memory_gib": 1}}}, "`cpus` is `1.5`"),
        ({"a": {"program": "ok", "resources": {"cpus": 1, "memory_gib": -1}}}, "`memory_gib` is `-1`"),
        ({"a": {"program": "ok", "resources": {"cpus": 1, "memory_gib": 1, "exclusive": "no"}}}, "`exclusive` is `no`"),
        ({"a": {"program": "ok", "each": {"m": []}}}, "`each` names one variable"),
        ({"a": {"program": "ok", "each": {"m": "abc"}}}, "`each` names one variable"),
        ({"a": {"program": "ok", "each": {"m": ["x"], "n": ["y"]}}}, "`each` names one variable"),
        ({"a": {"program": "ok", "each": {"m": ["x", "x"]}}}, "`each` has a name twice"),
        ({"a": {"program": "ok", "params": {"x": [{"y": float("nan")}]}}}, "is not finite"),
        ({}, "it has no `stages`"),
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


def test_an_empty_entry_and_no_stages_at_all(project: Project) -> None:
    for composed, said in (
        ({"stages": {"a": None}}, "it has no content"),
        ({"stages": None}, "no `stages`"),
        ({}, "no"),
    ):
        with pytest.raises(PlanError, match=said):
            plan.build("toy", "toy", composed)


@pytest.mark.parametrize("name", ["a/b", "..", "", "x y"])
def test_a_profile_names_a_directory(project: Project, name: str) -> None:
    with pytest.raises(PlanError, match="profile `"):
        project.plan({"a": {"program": "ok"}}, profile=name)


def test_all_errors_at_once_and_each_once(project: Project) -> None:
    with pytest.raises(PlanError) as caught:
        project.plan(
            {
                "a": {"program": "nope"},
                "b": {"program": "ok", "inputs": {"x": "zzz.out"}},
                "c": {"program": "ok", "parms": {}, "each": {"m": ["x"]}},
                "reads-c": {"program": "ok", "inputs": {"x": "c.x.out", "all": "c.*.out"}},
            }
        )
    assert len(caught.value.messages) == 3
    assert all(f"stage `{name}`" in str(caught.value) for name in "abc")


def test_the_hash_survives_key_order_and_json_and_names_no_place(project: Project) -> None:
    made = project.plan({"a": {"program": "ok", "params": {"x": 1, "y": "é"}, "inputs": {"t": "tree:stages"}}})
    other = project.plan({"a": {"inputs": {"t": "tree:stages"}, "params": {"y": "é", "x": 1}, "program": "ok"}})
    assert made.hash() == other.hash()
    read = json.loads(json.dumps(made.to_json()))
    again = plan.Plan.from_json(read)
    assert again.hash() == read["hash"] == made.hash()
    assert str(project.root) not in str(read)
