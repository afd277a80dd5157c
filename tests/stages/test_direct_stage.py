"""Direct comparisons of candidates from raw records: McNemar, centered bootstrap, Holm over all models."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kassay.kinds.quality import Answer, DocumentLoss
from kassay.record import Writer
from kassay.stats.bootstrap import centered_test
from kassay.stats.exact import mcnemar_test

ITEMS, DOCUMENTS = 40, 6
PAIR = {"comparisons": ["a-r"], "sidedness": "two-sided", "family_size": 2, "alpha": 0.05}
STUDY: dict[str, Any] = {
    "models": {"firm": {}, "frail": {}},
    "comparisons": {"a-r": {"candidate": "k16v8-d", "control": "k8v16-d"}},
    "seed": 5,
    "endpoints": {
        "keys": {"measure": "retrieval", "items": ITEMS, "context_tokens": 300},
        "loss": {"measure": "nll", "documents": DOCUMENTS, "context_tokens": 100, "targets": 2},
    },
    "gates": {"loss": {"statistic": "relative-nll", "endpoint": "loss", "draws": 500}},
    "contrasts": {
        "keys": {"endpoint": "keys", "test": "mcnemar-exact", "p_formula": None, **PAIR},
        "loss": {"endpoint": "loss", "test": "centered-bootstrap", "p_formula": "(k+1)/(B+1)", **PAIR},
    },
}


def losses_of(recipe: str, broken: bool) -> list[float]:
    rng = np.random.default_rng(3)
    values = 0.2 + 0.1 * rng.random(DOCUMENTS)
    return list(values + (0.5 + 0.1 * rng.random(DOCUMENTS) if broken and recipe.startswith("k8") else 0.0))


def write(path: Path, model: str, broken: bool) -> Path:
    """Records of two recipes; where it is broken, 8-bit keys lose 12 answers and half a nat."""
    writer = Writer(path)
    for recipe in ("k16v8-d", "k8v16-d"):
        lost = 12 if broken and recipe == "k8v16-d" else 0
        for number in range(ITEMS):
            outcome = "wrong" if number < lost else "correct"
            same = {"model": model, "recipe": recipe, "split": "development", "item_digest": f"{number}"}
            writer.append(
                Answer(
                    **same,
                    task="keys",
                    item_id=f"keys-{number}",
                    expected="1",
                    text="1",
                    parsed="1",
                    outcome=outcome,
                    tokens=2,
                )
            )
        for number, loss in enumerate(losses_of(recipe, broken)):
            writer.append(
                DocumentLoss(
                    model=model,
                    recipe=recipe,
                    split="development",
                    item_id=f"document-{number}",
                    item_digest=f"d{number}",
                    context_tokens=100,
                    loss_nats=[loss, loss],
                )
            )
    writer.close()
    return path


@pytest.fixture
def judged(run_stage: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    inputs = {f"quality.{name}": write(tmp_path / f"{name}.jsonl", name, name == "frail") for name in ("firm", "frail")}
    return lambda study: run_stage("direct", {"study": study}, inputs)


def test_each_family_is_adjusted_over_all_models(judged: Callable[..., Any]) -> None:
    ran = judged(STUDY)
    assert ran.code == 0, ran.stderr
    found = {(body["family"], body["model"]): body for body in ran.records("direct")}
    assert len(found) == 4
    keys = found["keys", "frail"]
    assert (keys["gains"], keys["losses"], keys["estimate"], keys["n"]) == (12, 0, 12 / ITEMS, ITEMS)
    assert keys["p"] == mcnemar_test(gains=12, losses=0).p and keys["holm_p"] == 2 * keys["p"] and keys["different"]
    same = found["keys", "firm"]
    assert (same["p"], same["holm_p"], same["different"]) == (1.0, 1.0, False)
    loss = found["loss", "frail"]
    arms = [np.array(losses_of(recipe, True)) for recipe in ("k8v16-d", "k16v8-d")]
    wanted = centered_test(*arms, draws=500, rng=np.random.Generator(np.random.PCG64(5)))
    assert (loss["p"], loss["estimate"]) == (wanted.p, wanted.estimate) and loss["estimate"] < -0.5
    assert loss["holm_p"] == min(1.0, 2 * wanted.p) and loss["family_size"] == 2
    assert ran.outcome.metrics["keys: different"] == "1 of 2"


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("contrasts", "keys", "family_size"), 3, "has 2 comparisons, planned are 3"),
        (("contrasts", "keys", "sidedness"), "one-sided", "sidedness is `one-sided`"),
        (("contrasts", "loss", "p_formula"), "k/(B-1)", "no test `centered-bootstrap` with p = k/(B-1)"),
        (("endpoints", "keys", "items"), ITEMS + 1, f"allowed: {ITEMS + 1}"),
        (("endpoints", "loss", "context_tokens"), 200, "k8v16-d"),
        (("gates", "loss", "endpoint"), "keys", "`loss`"),
        (("models",), {"firm": {}}, "are compared, planned are firm"),
        (("comparisons", "a-r", "control"), "k8v8-d", "k8v8-d"),
    ],
)
def test_what_was_not_planned_is_an_error_and_no_answer(
    where: tuple[str, ...], value: object, said: str, judged: Callable[..., Any]
) -> None:
    study = copy.deepcopy(STUDY)
    place = study
    for word in where[:-1]:
        place = place[word]
    place[where[-1]] = value
    ran = judged(study)
    assert ran.code == 1 and said in ran.outcome.reason, ran.outcome.reason
