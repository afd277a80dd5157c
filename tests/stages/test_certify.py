"""The judging of quality records: right verdicts, and no mutation of the records may pass."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.record import Writer

RECIPES = ["native", "k16v8-f", "k8v8-f"]
ITEMS, DOCUMENTS = 60, 8
RATE = {"true_rate": 0.004}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "comparisons": {name: {"candidate": name, "control": "native"} for name in RECIPES if name != "native"},
    "seed": 1,
    "alpha": 0.05,
    "endpoints": {
        "retrieval": {"items": ITEMS},
        "arithmetic": {"items": ITEMS},
        "nll": {"documents": DOCUMENTS, "context_tokens": 100},
    },
    "gates": {
        "keys": {"statistic": "gross-loss", "endpoint": "retrieval", "limit": 0.08, "native_floor": 0.9, **RATE},
        "sums": {
            "statistic": "gross-loss",
            "endpoint": "arithmetic",
            "limit": 0.08,
            "native_floor": {"toy": 0.6},
            **RATE,
        },
        "loss": {"statistic": "relative-nll", "endpoint": "nll", "limit": 0.05, "draws": 1000},
    },
    "certificates": {"comparisons": RECIPES[1:], "objectives": {"preservation": ["keys", "sums", "loss"]}},
    "expected": {"toy": {"k16v8-f": "pass", "k8v8-f": "fails"}},
}


def answer(recipe: str, task: str, index: int) -> Answer:
    """Native and K16/V8 are right; K8/V8 loses every other item."""
    right = recipe != "k8v8-f" or index % 2 == 0
    return Answer(
        model="toy",
        recipe=recipe,
        task=task,
        split="confirmation",
        item_id=f"{task}-{index}",
        item_digest=f"digest-{index}",
        expected="1",
        text="1" if right else "2",
        parsed="1" if right else "2",
        outcome="correct" if right else "wrong",
        tokens=2,
    )


def loss(recipe: str, index: int) -> DocumentLoss:
    """K8/V8 doubles the loss; K16/V8 moves it by a tenth of a percent."""
    factor = {"native": 1.0, "k16v8-f": 1.001, "k8v8-f": 2.0}[recipe]
    return DocumentLoss(
        model="toy",
        recipe=recipe,
        split="confirmation",
        item_id=f"document-{index}",
        item_digest=f"digest-{index}",
        context_tokens=100,
        loss_nats=[factor * (0.1 + 0.01 * index), factor * 0.2],
    )


def records() -> list[Any]:
    """A complete study of one model."""
    answers = [answer(r, t, i) for r in RECIPES for t in ("retrieval", "arithmetic") for i in range(ITEMS)]
    return answers + [loss(recipe, index) for recipe in RECIPES for index in range(DOCUMENTS)]


def judge(run_stage: Callable[..., Any], tmp_path: Path, made: list[Any], study: dict[str, Any]) -> Any:
    """Run certify on these records."""
    path = tmp_path / "records.jsonl"
    path.unlink(missing_ok=True)
    writer = Writer(path)
    for record in made:
        writer.append(record)
    writer.close()
    return run_stage("certify", {"study": study}, {"quality.toy": path})


def test_verdicts_and_expectations(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, records(), STUDY)
    assert (ran.code, ran.outcome.word) == (0, "passed"), ran.stderr
    verdicts = {body["candidate"]: body["verdict"] for body in ran.records("certificate")}
    assert verdicts == {"k16v8-f": "pass", "k8v8-f": "fails"}
    gate = next(g for g in ran.records("gate") if g["candidate"] == "k8v8-f" and g["endpoint"] == "retrieval")
    assert (gate["n"], gate["losses"], gate["gains"], gate["verdict"]) == (ITEMS, ITEMS // 2, 0, "fails")
    assert gate["lower"] > gate["margin"]


def test_an_unexpected_verdict_is_rejected(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    study["expected"]["toy"]["k8v8-f"] = "pass"
    ran = judge(run_stage, tmp_path, records(), study)
    assert (ran.code, ran.outcome.word) == (3, "rejected")
    assert "k8v8-f on toy: fails, expected pass" in ran.outcome.reason
    assert {g["verdict"] for g in ran.records("certificate")} == {"pass", "fails"}, (
        "expectation must not move a verdict"
    )


def test_without_expectation_a_certificate_must_pass(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = judge(run_stage, tmp_path, records(), {**STUDY, "expected": {}})
    assert (ran.code, ran.outcome.word) == (3, "rejected")


def without_arm(made: list[Any]) -> list[Any]:
    return [record for record in made if record.recipe != "k16v8-f"]


def without_item(made: list[Any]) -> list[Any]:
    return made[1:]


def item_twice(made: list[Any]) -> list[Any]:
    return [made[0], *made]


def other_items(made: list[Any]) -> list[Any]:
    changed = [r for r in made if not (r.recipe == "k16v8-f" and getattr(r, "task", "") == "retrieval")]
    swapped = [answer("k16v8-f", "retrieval", index) for index in range(ITEMS)]
    return changed + [Answer(**{**vars(record), "item_digest": "another"}) for record in swapped]


def nan_loss(made: list[Any]) -> list[Any]:
    last = made[-1]
    return [*made[:-1], DocumentLoss(**{**vars(last), "loss_nats": [float("nan"), 0.2]})]


def no_documents(made: list[Any]) -> list[Any]:
    return [record for record in made if isinstance(record, Answer)]


def swapped_arms(made: list[Any]) -> list[Any]:
    names = {"native": "k8v8-f", "k8v8-f": "native", "k16v8-f": "k16v8-f"}
    return [type(record)(**{**vars(record), "recipe": names[record.recipe]}) for record in made]


@pytest.mark.parametrize(
    "mutate", [without_arm, without_item, item_twice, other_items, nan_loss, no_documents, swapped_arms]
)
def test_no_mutation_passes(
    run_stage: Callable[..., Any], tmp_path: Path, mutate: Callable[[list[Any]], list[Any]]
) -> None:
    ran = judge(run_stage, tmp_path, mutate(records()), STUDY)
    assert ran.code != 0 and ran.outcome.word in ("crashed", "rejected"), ran.outcome


def test_a_truncated_file_is_an_error(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    judge(run_stage, tmp_path, records(), STUDY)
    path = tmp_path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    ran = run_stage("certify", {"study": STUDY}, {"quality.toy": path})
    assert ran.code == 1 and "torn" in ran.outcome.reason


def test_what_the_stage_cannot_judge_is_an_error_and_no_pass(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    two = copy.deepcopy(STUDY)
    two["certificates"]["objectives"]["aggregate-math"] = ["sums"]
    ran = judge(run_stage, tmp_path, records(), two)
    assert ran.code == 1 and "objectives preservation, aggregate-math, allowed is one" in ran.outcome.reason
    net = copy.deepcopy(STUDY)
    net["gates"]["sums"]["statistic"] = "net-change"
    ran = judge(run_stage, tmp_path, records(), net)
    assert ran.code == 1 and "gate `sums`: this stage computes no `net-change`" in ran.outcome.reason


def test_the_floor_of_a_model_is_its_own(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    study = copy.deepcopy(STUDY)
    study["gates"]["sums"]["native_floor"] = {"toy": 0.995}
    weak = [a if getattr(a, "item_id", "") != "arithmetic-0" else worse(a) for a in records()]
    ran = judge(run_stage, tmp_path, weak, study)
    assert ran.code == 3, ran.stderr
    gates = [g for g in ran.records("gate") if g["endpoint"] == "arithmetic"]
    assert {g["verdict"] for g in gates} == {"ineligible"} and {g["native_floor"] for g in gates} == {0.995}


def worse(record: Any) -> Any:
    """The same item, answered wrong."""
    return Answer(**{**vars(record), "outcome": "wrong"})
