"""Fold fixed scales, one per layer and component, over calibration documents: prefill and decode operands.

The operands are what a cache writer sees: keys after norm and RoPE, values, rounded to FP16. Calibration
documents are disjoint from development and confirmation by construction (kassay.kv.tasks.splits).
"""

from dataclasses import asdict
from typing import Any

from kassay import digest
from kassay.backend import reference, workload
from kassay.kinds.calibration import ScaleRecord
from kassay.kv.calibrate import AmaxFold
from kassay.kv.recipe import recipe_named
from kassay.kv.tasks import document
from kassay.stage import Metrics, Stage, main

SPLIT = "calibration"


def run(stage: Stage) -> Metrics:
    """Scales of one model."""
    params = stage.params
    model = reference.load(stage.inputs["model"], stage.cpus)
    documents = document.documents(
        split=SPLIT,
        seed=params["seed"],
        count=params["documents"],
        context_tokens=params["context_tokens"],
        targets=params["decode_tokens"],
    )
    fold = AmaxFold()
    done = 0
    for batch in workload.batches(documents, params["batch"]):
        fold_batch(fold, model, batch)
        done += len(batch)
        stage.progress(done, len(documents), "documents")
    layers = reference.geometry_of(model).layers
    scales = fold.scales(layers)
    for scale in scales:
        stage.append(ScaleRecord(model=params["model"], **asdict(scale)))
    stage.write_json(
        "scales",
        {
            "model": params["model"],
            "model_sha256": stage.input_sha256("model"),
            "split": SPLIT,
            "documents_sha256": digest.of_value([found.digest for found in documents]),
            "scales": {name: [one.scale for one in scales if one.component == name] for name in ("k", "v")},
        },
    )
    return {"documents": len(documents), "largest key": max(s.amax for s in scales if s.component == "k")}


def fold_batch(fold: AmaxFold, model: Any, batch: Any) -> None:
    """Fold the operands of one batch: context by prefill, continuation by decode through a native cache."""
    context_BT = workload.context_rows([found.context for found in batch])
    targets_BT = workload.text_rows([found.continuation for found in batch])
    cache = reference.filled(
        model, recipe_named("native"), None, reference.prefill(model, context_BT[:, :-1]), targets_BT.shape[1]
    )
    reference.score(model, cache, context_BT[:, -1:], targets_BT)
    for layer, (k_BHTD, v_BHTD) in enumerate(cache.operands()):
        fold.add("k", layer, k_BHTD.numpy())
        fold.add("v", layer, v_BHTD.numpy())


if __name__ == "__main__":
    main(run)
