"""What each recipe answers and predicts, item by item, on one model: retrieval, arithmetic, prediction loss.

The study's endpoints say how many items at which context (kassay.backend.endpoints); a record carries the name of its
endpoint. Every item's context is prefilled natively once; its operands fill the cache of each recipe, and the rest is
decoded through that cache. Only raw records come out: no margin, no bound and no verdict is known here. The same items
on a serving worker are stages/vllm_quality.py's.
"""

from collections.abc import Sequence

import torch

from kassay.backend import checkpoint, inputs, reference, text
from kassay.backend.endpoints import NLL, Endpoints
from kassay.backend.text import Passage, Question
from kassay.kinds.quality import ArmStorage
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.recipe import Recipe, recipe_named
from kassay.stage import Metrics, Stage, main


class Study:
    """The model, its scales and its endpoints."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.params = stage, stage.params
        self.checkpoint = checkpoint.of_stage(stage)
        self.model = self.checkpoint.model
        self.recipes = [recipe_named(name, self.params["sixteen"]) for name in self.params["recipes"]]
        self.scales = inputs.scales_of(stage)
        self.endpoints = Endpoints(stage, self.checkpoint.text, self.checkpoint.check_length)

    def prefill(self, ids_BT: torch.Tensor) -> Prefilled:
        """The native prefill that every recipe's cache is filled from."""
        return reference.prefill(self.model, ids_BT, self.params["sixteen"])

    def cache(self, recipe: Recipe, context: Prefilled, more_tokens: int) -> RecipeCache:
        """A recipe's cache that holds the batch's context."""
        return reference.filled(self.model, recipe, self.scales, context, more_tokens)


def run(stage: Stage) -> Metrics:
    """Every endpoint under all recipes."""
    study = Study(stage)
    attest_storage(study)
    for endpoint, planned in study.endpoints.planned.items():
        rows = study.endpoints.rows(endpoint)
        if planned["measure"] == NLL:
            inputs.check_unseen(stage, study.params["split"], [found.document.content_digest for found in rows])
            for texts in text.batches(rows, study.params["batch"]):
                score_batch(study, endpoint, texts)
            continue
        for questions in text.batches(rows, study.params["batch"]):
            answer_batch(study, endpoint, questions)
    study.endpoints.append_counts()
    return {"items": study.endpoints.total, "recipes": len(study.recipes)}


def attest_storage(study: Study) -> None:
    """Record what each recipe's cache really stores: dtypes as the tensors report them after a write."""
    rows_BT = study.checkpoint.rows([(0, 0)])
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


def answer_batch(study: Study, endpoint: str, batch: Sequence[Question]) -> None:
    """Answers of every recipe to one batch of items."""
    context = study.prefill(study.checkpoint.rows(found.context for found in batch))
    question_BT = study.checkpoint.rows(found.question for found in batch)
    planned = study.endpoints.planned[endpoint]
    cap_tokens, stops = study.endpoints.cap_tokens(planned), study.endpoints.stops(planned)
    study.endpoints.append_lengths(endpoint, batch)
    for recipe in study.recipes:
        cache = study.cache(recipe, context, question_BT.shape[1] + cap_tokens)
        rows = reference.generate(study.model, cache, question_BT, cap_tokens, stops)
        for found, row in zip(batch, rows, strict=True):
            study.endpoints.append_answer(recipe.name, endpoint, found, row)
    study.endpoints.step(len(batch), endpoint)


def score_batch(study: Study, endpoint: str, batch: Sequence[Passage]) -> None:
    """Losses of every recipe on one batch of documents."""
    context_BT = study.checkpoint.rows(found.context for found in batch)
    targets_BT = study.checkpoint.rows(found.continuation for found in batch)
    context = study.prefill(context_BT[:, :-1])
    for recipe in study.recipes:
        cache = study.cache(recipe, context, targets_BT.shape[1])
        losses_BT = reference.score(study.model, cache, context_BT[:, -1:], targets_BT)
        for found, loss_T in zip(batch, losses_BT.tolist(), strict=True):
            study.endpoints.append_loss(recipe.name, endpoint, found, loss_T)
    study.endpoints.step(len(batch), "documents")


if __name__ == "__main__":
    main(run)
