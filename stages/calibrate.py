"""Fold fixed scales, one per layer and component, over calibration documents: prefill and decode operands.

The operands are what a cache writer sees: keys after norm and RoPE, values, rounded to 16 bit; for a model with a key
bias also keys without it. A second pass counts what saturates under the scales, on the same documents (none may) and on
development documents (a measure of how well the scales carry over). The splits are proven disjoint by digest. Rejected
if an operand of the calibration saturates or a layer saw nothing but zeros.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kassay.backend import checkpoint, reference, structure, text
from kassay.backend.structure import ModelError
from kassay.backend.text import Passage
from kassay.kinds.calibration import ScaleRecord
from kassay.kv import calibrate
from kassay.kv.calibrate import AmaxFold, LayerScale
from kassay.kv.plane import as_numpy
from kassay.kv.prebias import KeyBias
from kassay.kv.recipe import NATIVE
from kassay.stage import Metrics, Rejection, Stage, main

SPLIT, CHECK = "calibration", "development"
COMPONENTS = ("k", "v", "k_residual")

Counts = dict[tuple[str, int], int]  # component, layer -> saturated operands


class Calibration:
    """The model, and its operands batch by batch."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params: dict[str, Any] = stage.params
        self.checkpoint = checkpoint.of_stage(stage)
        self.model = self.checkpoint.model
        self.checkpoint.check_length(max(self.params["contexts_tokens"]) + self.params["decode_tokens"])
        self.layers = structure.geometry_of(self.model).layers
        self.key_bias = key_bias(self.model)
        self.components = COMPONENTS if self.key_bias else COMPONENTS[:2]
        self.done = 0

    def documents(self, split: str, count: int) -> list[list[Passage]]:
        """`count` documents of a split at every context length."""
        return [
            self.checkpoint.text.passages(
                split=split,
                seed=self.params["seed"],
                count=count,
                context_tokens=context_tokens,
                targets=self.params["decode_tokens"],
            )
            for context_tokens in self.params["contexts_tokens"]
        ]

    def operands(self, groups: Sequence[Sequence[Passage]]) -> Iterator[tuple[str, int, Any]]:
        """Component, layer and operand of every batch: context by prefill, continuation by decode, natively."""
        for documents in groups:
            for batch in text.batches(documents, self.params["batch"]):
                yield from self.batch(batch)
                self.done += len(batch)
                self.stage.progress(self.done, self.total(), "documents")

    def total(self) -> int:
        """Documents of all passes."""
        lengths = len(self.params["contexts_tokens"])
        return lengths * (2 * self.params["documents"] + self.params["check_documents"])

    def batch(self, batch: Sequence[Passage]) -> Iterator[tuple[str, int, Any]]:
        """The operands of one batch."""
        context_BT = self.checkpoint.rows(found.context for found in batch)
        targets_BT = self.checkpoint.rows(found.continuation for found in batch)
        sixteen = self.params["sixteen"]
        prefilled = reference.prefill(self.model, context_BT[:, :-1], sixteen)
        cache = reference.filled(self.model, NATIVE.on(sixteen), None, prefilled, targets_BT.shape[1])
        reference.score(self.model, cache, context_BT[:, -1:], targets_BT)
        for layer, (k_BHTD, v_BHTD) in enumerate(cache.prefilled().operands):
            yield "k", layer, as_numpy(k_BHTD)
            yield "v", layer, as_numpy(v_BHTD)
            if self.key_bias is not None:
                rotated_1HTD = self.key_bias.offset(layer)(0, k_BHTD.shape[2], k_BHTD.device)
                yield "k_residual", layer, as_numpy(k_BHTD.float() - rotated_1HTD)


def run(stage: Stage) -> Metrics | Rejection:
    """Scales of one model."""
    found = Calibration(stage)
    texts = found.documents(SPLIT, stage.params["documents"])
    others = found.documents(CHECK, stage.params["check_documents"])
    digests = {split: contents(groups) for split, groups in ((SPLIT, texts), (CHECK, others))}
    counted = calibrate.check_disjoint(digests)
    fold = AmaxFold()
    for component, layer, operand in found.operands(texts):
        fold.add(component, layer, operand)
    scales = fold.scales(found.layers, found.components)
    own, carried = (saturations(found, groups, scales) for groups in (texts, others))
    for scale in scales:
        at = (scale.component, scale.layer)
        append(stage, scale, own[at], carried[at])
    stage.write_json("scales", body(stage, scales, digests))
    return conclude(stage, scales, counted, sum(own.values()), sum(carried.values()))


def key_bias(model: Any) -> KeyBias | None:
    """The key bias of a model that has one which a pre-bias recipe could take off."""
    try:
        return structure.key_bias_of(model)
    except ModelError:
        return None


def contents(groups: Sequence[Sequence[Passage]]) -> list[str]:
    """Digests of what the documents say, whatever they are called."""
    return [found.document.content_digest for documents in groups for found in documents]


def saturations(found: Calibration, groups: Sequence[Sequence[Passage]], scales: Sequence[LayerScale]) -> Counts:
    """How many operands of a pass saturate under the scales."""
    by_place = {(scale.component, scale.layer): scale.scale for scale in scales}
    counts = dict.fromkeys(by_place, 0)
    for component, layer, operand in found.operands(groups):
        counts[component, layer] += calibrate.saturated(operand, by_place[component, layer])
    return counts


def append(stage: Stage, scale: LayerScale, own: int, carried: int) -> None:
    """One scale as a record."""
    stage.append(
        ScaleRecord(
            model=stage.params["model"],
            sixteen=stage.params["sixteen"],
            **asdict(scale),
            all_zero=scale.all_zero,
            saturated=own,
            saturated_elsewhere=carried,
        )
    )


def body(stage: Stage, scales: Sequence[LayerScale], digests: dict[str, list[str]]) -> dict[str, Any]:
    """scales.json."""
    return {
        "schema": calibrate.SCHEMA,
        "model": stage.params["model"],
        "model_sha256": stage.input_sha256("model"),
        "sixteen": stage.params["sixteen"],
        "contexts_tokens": stage.params["contexts_tokens"],
        "decode_tokens": stage.params["decode_tokens"],
        "contents": digests,
        "scales": calibrate.by_component(scales),
    }


def conclude(
    stage: Stage, scales: Sequence[LayerScale], counted: dict[str, int], own: int, carried: int
) -> Metrics | Rejection:
    """Rejected for a layer of zeros, and if a scale does not hold what it was folded over."""
    metrics: Metrics = {
        "documents": counted[SPLIT],
        "largest key": max(s.amax for s in scales if s.component == "k"),
        "saturated": own,
        f"saturated on {counted[CHECK]} of {CHECK}": carried,
    }
    zero = [f"layer {scale.layer}, component `{scale.component}`" for scale in scales if scale.all_zero]
    said = [f"nothing but zeros in {', '.join(zero)}"] if zero else []
    said += [f"{own} calibration operands saturate under their own scales"] if own else []
    return stage.rejected("; ".join(said), **metrics) if said else metrics


if __name__ == "__main__":
    main(run)
