"""What each arm of a vLLM study answers and predicts, item by item, on one model: cohorts in fresh engine processes.

The items, the reading of answers and the records are those of the reference (kassay.backend.endpoints): certificates
and audits read both alike. What goes through the cache, and what is refused because it would not feel it, is
kassay.backend.vllm_quality's. Every arm, controls included, has a process of its own with an engine that attests its
formats before the first cohort and after the last. Only raw records come out. Unmet without a GPU or vLLM.
"""

from typing import Any

from kassay.backend import inputs
from kassay.backend.vllm import require_vllm
from kassay.backend.vllm_attest import effective
from kassay.backend.vllm_quality import require_alike, require_felt
from kassay.cell import run_cell
from kassay.kinds.quality import Answer, AnswerCounts, ArmStorage, DocumentLoss, ItemLength
from kassay.kinds.vllm import VllmCohort, VllmEngine
from kassay.kv.recipe import recipe_named
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main

KEPT = (VllmEngine, VllmCohort, Answer, AnswerCounts, DocumentLoss)


def run(stage: Stage) -> Metrics:
    """Every endpoint under all arms."""
    params = stage.params
    require_felt(params, stage.json_input("scales"))
    inputs.scales_of(stage)
    require_vllm()
    cohorts: list[VllmCohort] = []
    for done, arm in enumerate(params["arms"], start=1):
        cohorts += answered(stage, arm, first=done == 1)
        stage.progress(done, len(params["arms"]), arm)
    require_alike(cohorts)
    return {
        "items": sum(one.requests for one in cohorts) // len(params["arms"]),
        "arms": len(params["arms"]),
        "cohorts": len(cohorts) // len(params["arms"]),
        "preemptions": sum(one.preemptions for one in cohorts),
    }


def answered(stage: Stage, arm: str, *, first: bool) -> list[VllmCohort]:
    """One arm's cell; what it leaves becomes the stage's, lengths of items once."""
    records = run_cell(stage, arm, "vllm_quality_cell", {**stage.params, "arm": arm}) / "records.jsonl"
    engines = list(read_kind(records, VllmEngine))
    stage.append(storage(stage, arm, engines[-1]))
    stage.attest(arm, **effective(engines[-1]))
    for kind in (*KEPT, ItemLength) if first else KEPT:
        for record in read_kind(records, kind):
            stage.append(record)
    return list(read_kind(records, VllmCohort))


def storage(stage: Stage, arm: str, engine: VllmEngine) -> ArmStorage:
    """What an arm's cache held, by its engine's own word after the last cohort."""
    params: dict[str, Any] = stage.params
    fixed = recipe_named(params["arms"][arm]["recipe"], params["sixteen"]).policy == "fixed"
    return ArmStorage(
        model=params["model"],
        recipe=arm,
        key_dtype=engine.key_format,
        value_dtype=engine.value_format,
        scales_sha256=stage.input_sha256("scales") if fixed else None,
    )


if __name__ == "__main__":
    main(run)
