"""One probe of precision on one model: each arm decodes the same documents, and its logits stand beside native ones.

An arm is a recipe, or a recipe with another one in a single layer. A context is prefilled natively once; its operands
fill a cache of each arm, and the continuation is decoded through it. With `retrieval`, each arm also answers questions.
An arm that the model cannot have is recorded with the reason. Only raw records come out: stages/probes.py concludes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from kassay.backend import answers, checkpoint, inputs, reference, structure, text
from kassay.backend.text import Passage, Question
from kassay.kinds.probe import ProbeArm, ProbeText
from kassay.kv.cache import Prefilled
from kassay.kv.recipe import Recipe, recipe_named
from kassay.kv.tasks.document import Document
from kassay.stage import Metrics, Stage, main

NATIVE_ARM = "native"
RETRIEVAL = "retrieval"


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A recipe, and another one in a single attention layer if `layer` is a number."""

    name: str
    recipe: Recipe
    layer: int | None = None
    instead: Recipe | None = None

    @property
    def layers(self) -> dict[int, Recipe]:
        """The layers that differ."""
        return {} if self.layer is None or self.instead is None else {self.layer: self.instead}


class Probe:
    """The model, its scales, and the arms that it can have."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params: dict[str, Any] = stage.params
        self.checkpoint = checkpoint.of_stage(stage)
        self.model = self.checkpoint.model
        self.text = self.checkpoint.text
        self.scales = inputs.scales_of(stage)
        planned = arms(self.params, structure.geometry_of(self.model).layers)
        self.arms = [arm for arm in planned if self.record(arm)]

    def record(self, arm: Arm) -> bool:
        """Record a planned arm; whether the model can have it."""
        reason = structure.ineligible(self.model, arm.recipe, *arm.layers.values())
        self.stage.append(
            ProbeArm(
                model=self.params["model"],
                probe=self.params["probe"],
                arm=arm.name,
                recipe=arm.recipe.name,
                layer=arm.layer,
                layer_recipe=None if arm.instead is None else arm.instead.name,
                eligible=not reason,
                reason=reason,
            )
        )
        return not reason

    def prefill(self, ids_BT: torch.Tensor) -> Prefilled:
        """The native prefill that every arm's cache is filled from."""
        return reference.prefill(self.model, ids_BT, self.params["sixteen"])

    def cache(self, arm: Arm, context: Prefilled, more_tokens: int) -> Any:
        """An arm's cache that holds a context."""
        return reference.filled(self.model, arm.recipe, self.scales, context, more_tokens, arm.layers)


def arms(params: dict[str, Any], layers: int) -> list[Arm]:
    """Native first, then the planned recipes, then every single layer of each exchange."""
    sixteen = params["sixteen"]
    names = [NATIVE_ARM, *(name for name in params["recipes"] if name != NATIVE_ARM)]
    made = [Arm(name=name, recipe=recipe_named(name, sixteen)) for name in names]
    for exchange in params["exchanges"]:
        base, instead = (recipe_named(exchange[role], sixteen) for role in ("base", "instead"))
        made += [
            Arm(name=f"{exchange['name']}-{layer}", recipe=base, layer=layer, instead=instead)
            for layer in range(layers)
        ]
    return made


def run(stage: Stage) -> Metrics:
    """All arms on all documents, and on the questions if there are any."""
    probe = Probe(stage)
    params = probe.params
    documents = probe.text.passages(
        split=params["split"],
        seed=params["seed"],
        count=params["documents"],
        context_tokens=params["context_tokens"],
        targets=params["targets"],
    )
    asked = params["retrieval"]
    items = probe.text.questions(
        RETRIEVAL,
        split=params["split"],
        seed=params["seed"],
        count=asked["items"],
        context_tokens=asked["context_tokens"],
    )
    total, done = len(documents) + len(items), 0
    for texts in text.batches(documents, params["batch"]):
        compare(probe, texts)
        done += len(texts)
        stage.progress(done, total, "documents")
    for questions in text.batches(items, params["batch"]):
        answer(probe, questions)
        done += len(questions)
        stage.progress(done, total, "questions")
    return {"arms": len(probe.arms), "documents": len(documents), "questions": len(items)}


def compare(probe: Probe, batch: Sequence[Passage]) -> None:
    """One batch of documents through every arm."""
    context_BT = probe.checkpoint.rows(found.context for found in batch)
    targets_BT = probe.checkpoint.rows(found.continuation for found in batch)
    context = probe.prefill(context_BT[:, :-1])
    fed_BT = torch.cat([context_BT[:, -1:], targets_BT[:, :-1]], dim=1)
    native_BTV = torch.empty(0)
    for arm in probe.arms:
        cache = probe.cache(arm, context, targets_BT.shape[1])
        logits_BTV = probe.model(fed_BT, past_key_values=cache, use_cache=True).logits.float()
        if arm.name == NATIVE_ARM:
            native_BTV = logits_BTV
        for row, found in enumerate(batch):
            append(probe, arm, found.document, logits_BTV[row], native_BTV[row], targets_BT[row])


def append(
    probe: Probe, arm: Arm, found: Document, logits_TV: torch.Tensor, native_TV: torch.Tensor, targets_T: torch.Tensor
) -> None:
    """One arm on one document as a record."""
    error_TV = (logits_TV - native_TV).abs()
    probe.stage.append(
        ProbeText(
            model=probe.params["model"],
            probe=probe.params["probe"],
            arm=arm.name,
            item_id=found.item_id,
            item_digest=found.digest,
            loss_nats=cross_entropy(logits_TV, targets_T, reduction="none").tolist(),
            logit_error=float(error_TV.double().mean()),
            largest_logit_error=float(error_TV.max()),
            agreed=int((logits_TV.argmax(-1) == native_TV.argmax(-1)).sum()),
        )
    )


def answer(probe: Probe, batch: Sequence[Question]) -> None:
    """One batch of questions to every arm."""
    context = probe.prefill(probe.checkpoint.rows(found.context for found in batch))
    question_BT = probe.checkpoint.rows(found.question for found in batch)
    cap_tokens, stops = probe.params["answer_cap_tokens"], answers.stops(RETRIEVAL, probe.text)
    for arm in probe.arms:
        cache = probe.cache(arm, context, question_BT.shape[1] + cap_tokens)
        rows = reference.generate(probe.model, cache, question_BT, cap_tokens, stops)
        for found, row in zip(batch, rows, strict=True):
            said = answers.read(RETRIEVAL, probe.text, row, found.item.expected)
            probe.stage.append(answers.record(probe.params["model"], arm.name, RETRIEVAL, found.item, said, len(row)))


if __name__ == "__main__":
    main(run)
