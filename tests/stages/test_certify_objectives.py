"""Two objectives, two controls: what a candidate is certified for, and which of it decides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.stages.test_certify import changed, judge, records, worse

NET = {"statistic": "net-change", "endpoint": "arithmetic", "limit": -0.12, "native_floor": None, "true_rate": 0.02}
NATS = {"statistic": "nll-difference", "endpoint": "nll", "limit": 0.00995, "draws": 1000, "generator": "pcg64"}
TWO: dict[str, Any] = changed(
    gates={"net": NET, "nats": NATS},
    certificates={
        "objectives": {"preservation": ["keys", "sums", "loss"], "aggregate-math": ["keys", "nats", "net"]},
        "route": "aggregate-math",
    },
    expected={"toy:preservation": {"k16v8-f": "unestablished"}, "toy:aggregate-math": {"k16v8-f": "pass"}},
)
TWO["certificates"]["comparisons"] = ["k16v8-f"]


def lost_and_gained(made: list[Any]) -> list[Any]:
    """K16/V8 loses five sums that native answers, and answers five that native does not."""

    def outcome(record: Any) -> Any:
        index = int(record.item_id.rpartition("-")[2])
        wrong = {"k16v8-f": range(5), "native": range(5, 10)}.get(record.recipe, range(0))
        return worse(record) if index in wrong else record

    return [outcome(record) if getattr(record, "task", "") == "arithmetic" else record for record in made]


def test_two_objectives_say_two_things_and_share_their_gates(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, lost_and_gained(records()), TWO)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.outcome
    made = {body["objective"]: body for body in ran.records("certificate")}
    assert made["preservation"]["open_gates"] == ["sums"]
    assert made["aggregate-math"]["verdict"] == "pass"
    assert [gate["gate"] for gate in ran.records("gate")] == ["keys", "sums", "loss", "nats", "net"]
    net = ran.records("gate")[-1]
    assert (net["decides"], net["losses"], net["gains"], net["estimate"]) == ("lower", 5, 5, 0.0)
    assert net["lower"] >= net["margin"] and 0 < net["power"] < 1
    assert [(one["objective"], one["route"]) for one in ran.records("qualification")] == [
        ("preservation", False),
        ("aggregate-math", True),
    ]
    assert len({body["quality_sha256"] for body in made.values()}) == 1


def test_only_the_route_must_pass_where_nothing_is_expected(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    mixed = lost_and_gained(records())
    assert judge(run_stage, tmp_path, mixed, {**TWO, "expected": None}).code == 0
    study = {**TWO, "expected": None, "certificates": {**TWO["certificates"], "route": "preservation"}}
    ran = judge(run_stage, tmp_path, mixed, study)
    assert (ran.code, ran.outcome.reason) == (3, "k16v8-f on toy for preservation: unestablished")


def test_a_candidate_qualifies_only_against_both_controls(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    study = changed(
        comparisons={"k16v8-f-2": {"candidate": "k16v8-f", "control": "fa3"}},
        certificates={"comparisons": ["k16v8-f", "k16v8-f-2"]},
        expected={"toy": {"k16v8-f": "pass", "k16v8-f-2": "unestablished"}},
    )
    second = [type(r)(**{**vars(r), "recipe": "fa3"}) for r in records() if r.recipe == "native"]
    weaker = [
        worse(r) if r.item_id in {f"arithmetic-{i}" for i in range(5)} and r.recipe == "k16v8-f" else r
        for r in records()
    ]
    both = [
        worse(r) if r.item_id in {f"arithmetic-{i}" for i in range(5)} and r.recipe == "native" else r for r in weaker
    ]
    ran = judge(run_stage, tmp_path, [*both, *second], study)
    assert ran.code == 0, ran.outcome.reason
    (one,) = ran.records("qualification")
    assert (one["controls"], one["verdicts"]) == (["native", "fa3"], ["pass", "unestablished"])
    assert one["verdict"] == "unestablished"
    lacking = judge(run_stage, tmp_path, both, study)
    assert lacking.code == 1 and "arm `fa3` is missing" in lacking.outcome.reason
