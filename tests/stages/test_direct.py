"""Candidates compared with each other: exact p values, Holm over the whole family, and no family that is not whole."""

import copy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.record import Writer

ARMS = ["k16v8-f", "k8v16-f", "k8v8-f"]
MODELS = ["first", "second"]
ITEMS, DOCUMENTS, DRAWS = 40, 12, 999
FAMILY = {"comparisons": ["a-r", "a-s"], "sidedness": "two-sided", "family_size": 4, "alpha": 0.05}
STUDY: dict[str, Any] = {
    "name": "tiny",
    "models": {name: {} for name in MODELS},
    "comparisons": {
        "a-r": {"candidate": "k16v8-f", "control": "k8v16-f"},
        "a-s": {"candidate": "k16v8-f", "control": "k8v8-f"},
    },
    "seed": 5,
    "endpoints": {"sums": {"items": ITEMS}, "nll": {"documents": DOCUMENTS, "context_tokens": 8, "targets": 2}},
    "gates": {"loss": {"statistic": "relative-nll", "endpoint": "nll", "draws": DRAWS}},
    "contrasts": {
        "sums": {"endpoint": "sums", "test": "mcnemar-exact", "p_formula": None, **FAMILY},
        "nll": {"endpoint": "nll", "test": "centered-bootstrap", "p_formula": "(k+1)/(B+1)", **FAMILY},
    },
}
WRONG = {("first", "k8v16-f"): 10, ("first", "k8v8-f"): 6}  # first items that an arm answers wrong; the others none
SHIFT = {("first", "k8v16-f"): 0.5}  # nats by which an arm's losses are higher


def answer(model: str, arm: str, index: int) -> Answer:
    """One answer."""
    right = index >= WRONG.get((model, arm), 0)
    return Answer(
        model=model, recipe=arm, task="sums", split="confirmation", item_id=f"item-{index:02d}",
        item_digest=f"d{index}",
        expected="1", text="1", parsed="1", outcome="correct" if right else "wrong", tokens=2,
    )  # fmt: skip


def loss(model: str, arm: str, index: int) -> DocumentLoss:
    """The losses of one document."""
    mean = 1 + 0.1 * index + SHIFT.get((model, arm), 0.0) + 0.001 * ((index * 7 + len(arm)) % 5)
    return DocumentLoss(
        model=model, recipe=arm, split="confirmation", item_id=f"document-{index:02d}", item_digest=f"d{index}",
        context_tokens=8, loss_nats=[mean, mean],
    )  # fmt: skip


def records(model: str) -> list[Any]:
    """What one model recorded."""
    answers = [answer(model, arm, index) for arm in ARMS for index in range(ITEMS)]
    return [*answers, *(loss(model, arm, index) for arm in ARMS for index in range(DOCUMENTS))]


def compare(
    run_stage: Callable[..., Any],
    tmp_path: Path,
    study: dict[str, Any] = STUDY,
    change: Callable[[list[Any]], list[Any]] = list,
    models: tuple[str, ...] = ("first", "second"),
) -> Any:
    """Run the stage; `change` is made to the first model's records."""
    inputs = {}
    for model in models:
        path = tmp_path / f"{model}.jsonl"
        path.unlink(missing_ok=True)
        writer = Writer(path)
        for record in change(records(model)) if model == "first" else records(model):
            writer.append(record)
        writer.close()
        inputs[f"quality.{model}"] = path
    return run_stage("direct", {"study": study}, inputs)


def changed(family: str, **values: Any) -> dict[str, Any]:
    """The study with another family."""
    study = copy.deepcopy(STUDY)
    study["contrasts"][family] |= values
    return study


def test_exact_p_values_and_holm_over_all_models(run_stage: Callable[..., Any], tmp_path: Path) -> None:
    ran = compare(run_stage, tmp_path)
    assert ran.code == 0, ran.stderr
    sums = {(b["model"], b["comparison"]): b for b in ran.records("direct") if b["endpoint"] == "sums"}
    assert len(sums) == 4 and {body["family_size"] for body in sums.values()} == {4}
    first = sums["first", "a-r"]
    assert (first["gains"], first["losses"], first["p_exact"]) == (10, 0, "1/512")  # 2 / 2^10
    assert first["holm_p_exact"] == "1/128" and first["different"] is True
    second = sums["first", "a-s"]
    assert (second["gains"], second["p_exact"], second["holm_p_exact"]) == (6, "1/32", "3/32")
    assert second["different"] is False, "raw p is below 0.05, the family's is not"
    same = sums["second", "a-r"]
    assert (same["p"], same["unchanged"], same["different"]) == (1.0, True, False)
    assert ran.outcome.metrics["sums: different"] == "1 of 4"


def test_the_bootstrap_is_centered_paired_and_reproduces_from_its_seed(
    run_stage: Callable[..., Any], tmp_path: Path
) -> None:
    found = {(b["model"], b["comparison"]): b for b in compare(run_stage, tmp_path).records("direct") if b["draws"]}
    body = found["first", "a-s"]
    means = {arm: np.array([loss("first", arm, i).loss_nats[0] for i in range(DOCUMENTS)]) for arm in ARMS}
    difference = means["k16v8-f"] - means["k8v8-f"]
    drawn = np.random.Generator(np.random.PCG64(5)).integers(0, DOCUMENTS, size=(DRAWS, DOCUMENTS))
    centered = (difference - difference.mean())[drawn].mean(axis=1)
    extreme = int((np.abs(centered) >= abs(difference.mean())).sum())
    assert Fraction(body["p_exact"]) == Fraction(extreme + 1, DRAWS + 1) and (body["draws"], body["seed"]) == (DRAWS, 5)
    shifted = found["first", "a-r"]
    assert (
        Fraction(shifted["p_exact"]) == Fraction(1, DRAWS + 1) and shifted["estimate"] < -0.49 and shifted["different"]
    )
    plain = compare(run_stage, tmp_path, changed("nll", p_formula="k/B")).records("direct")
    again = next(b for b in plain if (b["model"], b["comparison"], b["endpoint"]) == ("first", "a-s", "nll"))
    assert Fraction(again["p_exact"]) == Fraction(extreme, DRAWS)


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (changed("sums", sidedness="one-sided"), "sidedness is `one-sided`, allowed is two-sided"),
        (changed("sums", family_size=8), "family `sums` has 4 comparisons, planned are 8"),
        (changed("nll", p_formula=None), "no test `centered-bootstrap` with p = None"),
        ({**STUDY, "gates": {}}, "endpoint `nll` has no gate relative-nll or nll-difference that states the draws"),
        ({**STUDY, "models": {**STUDY["models"], "third": {}}}, "planned are first, second, third"),
    ],
)
def test_another_plan_than_the_stage_can_carry_out_is_an_error(
    run_stage: Callable[..., Any], tmp_path: Path, study: dict[str, Any], said: str
) -> None:
    ran = compare(run_stage, tmp_path, study)
    assert ran.code == 1 and said in ran.outcome.reason, ran.outcome.reason


CHANGES: list[tuple[Callable[[list[Any]], list[Any]], str]] = [
    (lambda made: [one for one in made if one.recipe != "k8v8-f"], "arm `k8v8-f` is missing"),
    (lambda made: made[1:], "lacks `item-00`"),
    (lambda made: [*made, made[0]], "holds `item-00` more than once"),
    (lambda made: [type(made[0])(**{**vars(made[0]), "item_digest": "x"}), *made[1:]], "saw different content"),
    (lambda made: [*made[:-1], type(made[-1])(**{**vars(made[-1]), "loss_nats": [1.0, float("nan")]})], "loss_nats[1]"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=["arm", "item", "twice", "content", "nan"])
def test_a_family_is_judged_whole_or_not_at_all(
    run_stage: Callable[..., Any], tmp_path: Path, change: Callable[[list[Any]], list[Any]], said: str
) -> None:
    ran = compare(run_stage, tmp_path, change=change)
    assert ran.code == 1 and said in ran.outcome.reason, ran.outcome.reason
    lone = compare(run_stage, tmp_path, models=("first",))
    assert lone.code == 1 and "the models first are compared" in lone.outcome.reason
