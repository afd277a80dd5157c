"""What each recipe answers and predicts, item by item, on one model: retrieval, arithmetic, prediction loss.

Every item's context is prefilled natively once; its operands fill the cache of each recipe, and the rest is decoded
through that cache. Only raw records come out: no margin, no bound and no verdict is known here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kassay.backend import inputs, reference, workload
from kassay.kinds.quality import Answer, ArmStorage, DocumentLoss
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.recipe import Recipe, recipe_named
from kassay.kv.tasks import arithmetic, document, retrieval, vocabulary
from kassay.kv.tasks.document import Document
from kassay.kv.tasks.item import Item
from kassay.stage import Metrics, Stage, main

READERS: dict[str, Callable[[str], str | None]] = {
    "retrieval": lambda text: text or None,
    "arithmetic": arithmetic.last_labelled_answer,
}


class Study:
    """The model, its scales and where the records go."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params: dict[str, Any] = stage.params
        self.model = reference.load(stage.inputs["model"], stage.cpus)
        self.recipes = [recipe_named(name, self.params["sixteen"]) for name in self.params["recipes"]]
        self.scales = inputs.scales_of(stage)
        self.total = self.params["nll"]["documents"] + sum(self.params[task]["items"] for task in READERS)
        self.done = 0

    def step(self, count: int, what: str) -> None:
        """Tell that `count` more items are done."""
        self.done += count
        self.stage.progress(self.done, self.total, what)

    def prefill(self, ids_BT: torch.Tensor) -> Prefilled:
        """The native prefill that every recipe's cache is filled from."""
        return reference.prefill(self.model, ids_BT, self.params["sixteen"])

    def cache(self, recipe: Recipe, context: Prefilled, more_tokens: int) -> RecipeCache:
        """A recipe's cache that holds the batch's context."""
        return reference.filled(self.model, recipe, self.scales, context, more_tokens)


def run(stage: Stage) -> Metrics:
    """All three tasks under all recipes."""
    study = Study(stage)
    attest_storage(study)
    for task, make in (("retrieval", retrieval.items), ("arithmetic", arithmetic.items)):
        planned = study.params[task]
        items = make(
            split=study.params["split"],
            seed=study.params["seed"],
            count=planned["items"],
            context_tokens=planned["context_tokens"],
        )
        for batch in workload.batches(items, study.params["batch"]):
            answer_batch(study, task, batch)
    planned = study.params["nll"]
    documents = document.documents(
        split=study.params["split"],
        seed=study.params["seed"],
        count=planned["documents"],
        context_tokens=planned["context_tokens"],
        targets=planned["targets"],
    )
    inputs.check_unseen(stage, study.params["split"], [found.content_digest for found in documents])
    for batch in workload.batches(documents, study.params["batch"]):
        score_batch(study, batch)
    return {"items": study.total, "recipes": len(study.recipes)}


def attest_storage(study: Study) -> None:
    """Record what each recipe's cache really stores: dtypes as the tensors report them after a write."""
    rows_BT = torch.zeros((1, 2), dtype=torch.long)
    context = study.prefill(rows_BT)
    scales_sha256 = study.stage.input_sha256("scales")
    for recipe in study.recipes:
        held = {storage.part: storage.tensor for storage in study.cache(recipe, context, 0).storages()}
        study.stage.append(
            ArmStorage(
                model=study.params["model"],
                recipe=recipe.name,
                key_dtype=str(held["keys"].dtype),
                value_dtype=str(held["values"].dtype),
                scales_sha256=scales_sha256 if recipe.policy == "fixed" else None,
            )
        )


def answer_batch(study: Study, task: str, batch: Sequence[Item]) -> None:
    """Answers of every recipe to one batch of items."""
    context = study.prefill(workload.context_rows([item.context for item in batch]))
    question_BT = workload.text_rows([item.question for item in batch])
    cap_tokens = study.params["answer_cap_tokens"]
    for recipe in study.recipes:
        cache = study.cache(recipe, context, question_BT.shape[1] + cap_tokens)
        rows = reference.generate(study.model, cache, question_BT, cap_tokens, vocabulary.NEWLINE)
        for item, row in zip(batch, rows, strict=True):
            study.stage.append(answer(study, task, recipe, item, row))
    study.step(len(batch), task)


def answer(study: Study, task: str, recipe: Recipe, item: Item, row: list[int]) -> Answer:
    """One generated row as a record; a right labelled answer at the cap counts as correct."""
    ended = bool(row) and row[-1] == vocabulary.NEWLINE
    text = vocabulary.decode(row[:-1] if ended else row)
    parsed = READERS[task](text)
    if parsed == item.expected:
        outcome = "correct"
    elif not ended:
        outcome = "truncated"
    else:
        outcome = "unreadable" if parsed is None else "wrong"
    return Answer(
        model=study.params["model"],
        recipe=recipe.name,
        task=task,
        split=item.split,
        item_id=item.item_id,
        item_digest=item.digest,
        expected=item.expected,
        text=text,
        parsed=parsed,
        outcome=outcome,
        tokens=len(row),
    )


def score_batch(study: Study, batch: Sequence[Document]) -> None:
    """Losses of every recipe on one batch of documents."""
    context_BT = workload.context_rows([found.context for found in batch])
    targets_BT = workload.text_rows([found.continuation for found in batch])
    context = study.prefill(context_BT[:, :-1])
    for recipe in study.recipes:
        cache = study.cache(recipe, context, targets_BT.shape[1])
        losses_BT = reference.score(study.model, cache, context_BT[:, -1:], targets_BT)
        for found, loss_T in zip(batch, losses_BT.tolist(), strict=True):
            study.stage.append(
                DocumentLoss(
                    model=study.params["model"],
                    recipe=recipe.name,
                    split=found.split,
                    item_id=found.item_id,
                    item_digest=found.digest,
                    context_tokens=study.params["nll"]["context_tokens"],
                    loss_nats=loss_T,
                )
            )
    study.step(len(batch), "documents")


if __name__ == "__main__":
    main(run)
