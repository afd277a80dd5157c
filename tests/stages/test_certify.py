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
    "models": {"toy": {}},
    "comparisons": {name: {"candidate": name, "control": "native"} for name in RECIPES if name != "native"},
    "seed": 1,
    "alpha": 0.05,
    "endpoints": {
        "retrieval": {"items": ITEMS},
        "arithmetic": {"items": ITEMS},
        "nll": {"documents": DOCUMENTS, "context_tokens": 100, "targets": 2},
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
        "loss": {"statistic": "relative-nll", "endpoint": "nll", "limit": 0.05, "draws": 1000, "generator": "pcg64"},
    },
    "certificates": {
        "comparisons": RECIPES[1:],
        "objectives": {"preservation": ["keys", "sums", "loss"]},
        "route": None,
        "family_alpha": None,
        "slots": 1,
    },
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


def shuffled_pairs(made: list[Any]) -> list[Any]:
    """What K16/V8 predicted and answered of one item stands under another; nothing else is changed."""
    own = [record for record in made if record.recipe == "k16v8-f"]
    moved = []
    for group in ("retrieval", "arithmetic", None):
        same = [record for record in own if getattr(record, "task", None) == group]
        for record, other in zip(same, same[7:] + same[:7], strict=True):
            moved.append(type(record)(**{**vars(other), "item_id": record.item_id, "item_digest": record.item_digest}))
    return [record for record in made if record.recipe != "k16v8-f"] + moved


def other_model(made: list[Any]) -> list[Any]:
    return [type(made[0])(**{**vars(made[0]), "model": "other"}), *made[1:]]


def short_document(made: list[Any]) -> list[Any]:
    return [*made[:-1], DocumentLoss(**{**vars(made[-1]), "loss_nats": [0.2]})]


def swapped_arms(made: list[Any]) -> list[Any]:
    names = {"native": "k8v8-f", "k8v8-f": "native", "k16v8-f": "k16v8-f"}
    return [type(record)(**{**vars(record), "recipe": names[record.recipe]}) for record in made]


@pytest.mark.parametrize(
    "mutate",
    [
        without_arm,
        without_item,
        item_twice,
        other_items,
        nan_loss,
        no_documents,
        swapped_arms,
        shuffled_pairs,
        other_model,
        short_document,
    ],
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


def changed(**sections: Any) -> dict[str, Any]:
    """The study with other values in some of its sections."""
    study = copy.deepcopy(STUDY)
    for name, values in sections.items():
        study[name] = {**study[name], **values} if isinstance(values, dict) else values
    return study


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (changed(gates={"sums": {**STUDY["gates"]["sums"], "statistic": "value"}}), "computes no `value`"),
        (changed(gates={"loss": {**STUDY["gates"]["loss"], "generator": "mt"}}), "the generator is `mt`"),
        (changed(certificates={"objectives": {}}), "names no objective"),
        (changed(certificates={"objectives": {"preservation": []}}), "one without a gate"),
        (changed(models={"toy": {}, "other": {}}), "the models toy are judged, planned are other, toy"),
        (
            changed(certificates={"family_alpha": 0.1, "slots": 3}),
            "2 certificates of an objective share the level of 3",
        ),
        (changed(certificates={"family_alpha": 0.05, "slots": 2}), "the level is 0.05, and 0.05 in 2 slots is 0.025"),
        (changed(endpoints={"nll": {"documents": 8, "context_tokens": 100, "targets": 3}}), "2 targets, planned are 3"),
        (changed(split="development"), "the records are of split confirmation, planned is development"),
    ],
)
def test_what_is_not_as_planned_is_an_error_and_no_pass(
    run_stage: Callable[..., Any], tmp_path: Path, study: dict[str, Any], said: str
) -> None:
    ran = judge(run_stage, tmp_path, records(), study)
    assert ran.code == 1 and said in ran.outcome.reason, ran.outcome.reason


def test_a_shared_level_is_spent_on_every_gate(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    study = changed(alpha=0.025, certificates={"family_alpha": 0.05, "slots": 2})
    ran = judge(run_stage, tmp_path, records(), study)
    assert {gate["alpha"] for gate in ran.records("gate")} == {0.025}
    assert {(made["alpha"], made["family_alpha"], made["slots"]) for made in ran.records("certificate")} == {
        (0.025, 0.05, 2)
    }
    assert {made["verdict"] for made in ran.records("certificate") if made["candidate"] == "k16v8-f"} == {"pass"}


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
