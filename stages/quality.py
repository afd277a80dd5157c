"""What each recipe answers and predicts, item by item, on one model: retrieval, arithmetic, prediction loss.

The study's endpoints say how many items at which context; a record carries the name of its endpoint.

Every item's context is prefilled natively once; its operands fill the cache of each recipe, and the rest is decoded
through that cache. An endpoint with `data` takes its items from the file that is the stage's input of that name.
Only raw records come out: no margin, no bound and no verdict is known here.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from kassay.backend import answers, checkpoint, files, inputs, reference, text
from kassay.backend.answers import GSM8K
from kassay.backend.text import Passage, Question
from kassay.errors import KassayError
from kassay.kinds.quality import AnswerCounts, ArmStorage, DocumentLoss, ItemLength
from kassay.kv.cache import Prefilled, RecipeCache
from kassay.kv.recipe import Recipe, recipe_named
from kassay.stage import Metrics, Stage, main

NLL = "nll"
MEASURES = (*answers.READERS, GSM8K, NLL)


class Study:
    """The model, its scales and where the records go."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params: dict[str, Any] = stage.params
        self.endpoints: dict[str, dict[str, Any]] = self.params["endpoints"]
        self.checkpoint = checkpoint.of_stage(stage)
        self.model = self.checkpoint.model
        self.text = self.checkpoint.text
        self.recipes = [recipe_named(name, self.params["sixteen"]) for name in self.params["recipes"]]
        self.scales = inputs.scales_of(stage)
        self.total = sum(planned[size_of(planned)] for planned in self.endpoints.values())
        self.done = 0
        self.counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for planned in self.endpoints.values():
            more = planned["targets"] if planned["measure"] == NLL else self.cap_tokens(planned)
            self.checkpoint.check_length((planned["context_tokens"] or 0) + more)
        self.rows = {name: of_file(self, planned) for name, planned in self.endpoints.items() if planned.get("data")}

    def cap_tokens(self, planned: dict[str, Any]) -> int:
        """Longest answer of an endpoint."""
        return int(planned.get("answer_cap_tokens") or self.params["answer_cap_tokens"])

    def asked(self, planned: dict[str, Any]) -> dict[str, Any]:
        """Which texts an endpoint asks for."""
        return {"split": self.params["split"], "seed": self.params["seed"], "count": planned[size_of(planned)]}

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


def size_of(planned: dict[str, Any]) -> str:
    """What an endpoint counts. Raises KassayError for one that this stage does not measure."""
    if planned["measure"] not in MEASURES:
        raise KassayError(f"this stage measures {', '.join(MEASURES)}, not `{planned['measure']}`")
    if planned["measure"] == GSM8K and not planned.get("data"):
        raise KassayError(f"`{GSM8K}` takes its items from a file: the endpoint's `data` names an input of the stage")
    return "documents" if planned["measure"] == NLL else "items"


def run(stage: Stage) -> Metrics:
    """Every endpoint under all recipes."""
    study = Study(stage)
    attest_storage(study)
    for endpoint, planned in study.endpoints.items():
        rows = study.rows.get(endpoint) or generated(study, planned)
        if planned["measure"] == NLL:
            inputs.check_unseen(stage, study.params["split"], [found.document.content_digest for found in rows])
            for texts in text.batches(rows, study.params["batch"]):
                score_batch(study, planned, texts)
            continue
        for questions in text.batches(rows, study.params["batch"]):
            answer_batch(study, endpoint, questions)
    append_counts(study)
    return {"items": study.total, "recipes": len(study.recipes)}


def generated(study: Study, planned: dict[str, Any]) -> Sequence[Any]:
    """The texts of an endpoint, made from the seed."""
    asked = {**study.asked(planned), "context_tokens": planned["context_tokens"]}
    if planned["measure"] == NLL:
        return study.text.passages(**asked, targets=planned["targets"])
    return study.text.questions(planned["measure"], **asked, keys=planned.get("keys") or 1)


def of_file(study: Study, planned: dict[str, Any]) -> Sequence[Any]:
    """The texts of an endpoint, taken from its file. Raises Unmet if it has fewer than are asked for."""
    if planned["data"] not in study.stage.inputs:
        raise KassayError(f"`data` names `{planned['data']}`, which is no input of this stage")
    path, asked = study.stage.inputs[planned["data"]], study.asked(planned)
    if planned["measure"] == NLL:
        lengths = {"context_tokens": planned["context_tokens"], "targets": planned["targets"]}
        return files.windows(study.text, path, **asked, **lengths)
    if planned["measure"] != GSM8K:
        raise KassayError(f"`data` goes with {GSM8K} and {NLL}, not `{planned['measure']}`")
    made = files.problems(study.text, path, **asked)
    longest = max(len(found.context) + len(found.question) for found in made)
    study.checkpoint.check_length(longest + study.cap_tokens(planned))
    return made


def append_counts(study: Study) -> None:
    """Record how the answers to problems of files ended."""
    for (endpoint, recipe), counted in study.counts.items():
        planned = study.endpoints[endpoint]
        study.stage.append(
            AnswerCounts(
                model=study.params["model"],
                recipe=recipe,
                task=endpoint,
                data_sha256=study.stage.input_sha256(planned["data"]),
                items=planned["items"],
                correct=counted["correct"],
                wrong=counted["wrong"],
                unreadable=counted["unreadable"],
                truncated=counted["truncated"],
                no_marker=counted["no marker"],
            )
        )


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
    planned = study.endpoints[endpoint]
    cap_tokens, stops = study.cap_tokens(planned), answers.stops(planned["measure"], study.text)
    if not study.text.exact:
        append_lengths(study, endpoint, batch)
    for recipe in study.recipes:
        cache = study.cache(recipe, context, question_BT.shape[1] + cap_tokens)
        rows = reference.generate(study.model, cache, question_BT, cap_tokens, stops)
        for found, row in zip(batch, rows, strict=True):
            said = answers.read(planned["measure"], study.text, row, found.item.expected)
            made = answers.record(study.params["model"], recipe.name, endpoint, found.item, said, len(row))
            study.stage.append(made)
            if planned.get("data"):
                study.counts[endpoint, recipe.name].update([said.outcome, *([] if said.marked else ["no marker"])])
    study.step(len(batch), endpoint)


def append_lengths(study: Study, endpoint: str, batch: Sequence[Question]) -> None:
    """Record how long contexts are that only come near the planned length."""
    for found in batch:
        study.stage.append(
            ItemLength(
                model=study.params["model"],
                task=endpoint,
                item_id=found.item.item_id,
                item_digest=found.item.digest,
                planned_tokens=study.endpoints[endpoint]["context_tokens"],
                context_tokens=len(found.context),
                question_tokens=len(found.question),
            )
        )


def score_batch(study: Study, planned: dict[str, Any], batch: Sequence[Passage]) -> None:
    """Losses of every recipe on one batch of documents."""
    context_BT = study.checkpoint.rows(found.context for found in batch)
    targets_BT = study.checkpoint.rows(found.continuation for found in batch)
    context = study.prefill(context_BT[:, :-1])
    for recipe in study.recipes:
        cache = study.cache(recipe, context, targets_BT.shape[1])
        losses_BT = reference.score(study.model, cache, context_BT[:, -1:], targets_BT)
        for found, loss_T in zip(batch, losses_BT.tolist(), strict=True):
            study.stage.append(
                DocumentLoss(
                    model=study.params["model"],
                    recipe=recipe.name,
                    split=found.document.split,
                    item_id=found.document.item_id,
                    item_digest=found.document.digest,
                    context_tokens=planned["context_tokens"],
                    loss_nats=loss_T,
                )
            )
    study.step(len(batch), "documents")


if __name__ == "__main__":
    main(run)
