"""Does a fork's engine store what its recipe says, load the scales, admit prompts beside decodes, and repeat itself?

One arm on one role's stack, in this process: requests that arrive while others decode, twice. What a fork does not tell
(fallbacks, replays, operands) is named in check/receipt.json beside `passed`, and no oracle reads it: this is less than
the install check of the plug-in (stages/vllm_smoke.py) and no qualification. Unmet without a GPU, vLLM or a checkpoint.
"""

from typing import Any

from kassay import digest
from kassay.backend import vllm_install, vllm_prompts
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import cell_of
from kassay.backend.vllm_attest import effective
from kassay.stage import Metrics, Rejection, Stage, main

SPLIT = "development"
REPETITIONS = 2
ARRIVALS = (0, 0, 0, 2, 5, 5, 9, 14, 14, 20)
SHORTEST, LONGER = 40, 13  # tokens of the first prompt, and of each next one more


def run(stage: Stage) -> Metrics | Rejection:
    """Serve, look, conclude; rejected with what was not so."""
    params = stage.params
    require_vllm()
    calibrated = stage.json_input("scales")["scales"] if "scales" in stage.inputs else {}
    cell = cell_of(
        params["engine"], model=str(stage.inputs["model"]), dummy=False, recipe=params["recipe"], attention="fork",
        scales=str(stage.inputs["scales"]) if calibrated and params["recipe"] != "native" else None, observe=(),
        calibrate=False, seed=params["seed"], variables=params["variables"],
    )  # fmt: skip
    engine = Engine(cell, params["arm"])
    seen = served(stage, engine, calibrated)
    found = vllm_install.findings_of_fork(seen, cell.cache_recipe)
    folder = stage.directory / "check"
    folder.mkdir(exist_ok=True)
    digest.write_json(folder / "receipt.json", vllm_install.receipt_of_fork(found, seen.engine))
    stage.add_artifact("check", folder / "receipt.json")
    told = {one.name: one.said for one in found}
    if all(one.passed for one in found):
        return told
    return stage.rejected("not so: " + "; ".join(f"{one.name} ({one.said})" for one in found if not one.passed), **told)


def served(stage: Stage, engine: Engine, calibrated: dict[str, list[float]]) -> vllm_install.Evidence:
    """The same requests twice; every record is kept, and what the engine used stands in the receipt."""
    import torch

    words = vllm_prompts.text_of(stage.inputs["model"])
    lengths = [SHORTEST + LONGER * index for index in range(len(ARRIVALS))]
    prompts = vllm_prompts.rows(words, split=SPLIT, seed=stage.params["seed"], lengths=lengths)
    spans: list[Any] = []
    outputs, allocated = [], []
    for repetition in range(REPETITIONS):
        one = engine.serve(
            prompts, stage.params["output_tokens"], repetition=repetition, warmup=False, forced=True, arrivals=ARRIVALS
        )
        for record in (one.span, *one.requests):
            stage.append(record)
        spans.append(one.span)
        outputs.append(one.outputs)
        allocated.append(torch.cuda.memory_allocated())
    attested = engine.attest()
    stage.append(attested)
    stage.attest(engine.arm, **effective(attested))
    return vllm_install.Evidence(
        engine=attested, calibrated=calibrated, spans=spans, outputs=outputs, checks=[],
        free_blocks=engine.free_blocks(), allocated_bytes=allocated,
    )  # fmt: skip


if __name__ == "__main__":
    main(run)
