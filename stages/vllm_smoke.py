"""The install check: does this host's vLLM keep K16/V8, by the routes that it claims? Writes install/receipt.json.

One engine with the candidate's fixed scales serves requests that arrive while others decode, twice, and the oracle
reads the worker's own cache after every step of the first time. `"passed": true` only if all findings of
kassay.backend.vllm_install hold. It is no benchmark and qualifies nothing. Drawn weights are refused: their text is no
evidence. Unmet without a GPU or vLLM.
"""

import json
from typing import Any

from kassay import digest
from kassay.backend import vllm_install, vllm_prompts
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import cell_of, require_real
from kassay.backend.vllm_attest import effective
from kassay.backend.vllm_watch import Watch
from kassay.stage import Metrics, Rejection, Stage, main

SPLIT = "development"
ARM = "candidate"
REPETITIONS = 2
# The step before which each request arrives: alone, together, and while others decode.
ARRIVALS = (0, 0, 0, 2, 5, 5, 9, 14, 14, 20)
SHORTEST, LONGER = 40, 13  # tokens of the first prompt, and of each next one more


def run(stage: Stage) -> Metrics | Rejection:
    """Serve, check, conclude; rejected with what was not seen."""
    params = stage.params
    scales = stage.json_input("scales")
    require_real(scales)
    require_vllm()
    model = stage.inputs["model"]
    engine_params = params["engine"]
    cell = cell_of(
        engine_params, model=str(model), dummy=False, recipe=params["recipe"], attention="plug-in",
        scales=str(stage.inputs["scales"]), observe=tuple(params["observe"]), calibrate=False, seed=params["seed"],
    )  # fmt: skip
    engine = Engine(cell, ARM)
    words = vllm_prompts.text_of(model)
    lengths = [SHORTEST + LONGER * index for index in range(len(ARRIVALS))]
    prompts = vllm_prompts.rows(words, split=SPLIT, seed=params["seed"], lengths=lengths)
    seen = traffic(stage, engine, prompts, params["output_tokens"], scales["scales"])
    found = vllm_install.findings(seen)
    for check in seen.checks:
        stage.append(check)
    folder = stage.directory / "install"
    folder.mkdir(exist_ok=True)
    digest.write_json(folder / "receipt.json", vllm_install.receipt(found, seen.engine))
    stage.add_artifact("install", folder / "receipt.json")
    stage.write_text("text.txt", "\n".join(words.answer(row) for row in seen.outputs[0]) + "\n")
    passed = json.loads((folder / "receipt.json").read_bytes())["passed"]
    told = {one.name: one.said for one in found}
    if passed:
        return told
    return stage.rejected(
        "not seen: " + "; ".join(f"{one.name} ({one.said})" for one in found if not one.passed), **told
    )


def traffic(
    stage: Stage, engine: Engine, prompts: list[list[int]], tokens: int, calibrated: dict[str, list[float]]
) -> vllm_install.Evidence:
    """The same requests twice, watched the first time; every record is kept."""
    import torch

    watch = Watch(engine)
    spans: list[Any] = []
    outputs, allocated = [], []
    for repetition in range(REPETITIONS):
        between = watch.between if repetition == 0 else None
        served = engine.serve(
            prompts, tokens, repetition=repetition, warmup=False, forced=True, arrivals=ARRIVALS, between=between
        )
        for one in (served.span, *served.requests):
            stage.append(one)
        spans.append(served.span)
        outputs.append(served.outputs)
        allocated.append(torch.cuda.memory_allocated())
        stage.progress(repetition + 1, REPETITIONS, "repetitions")
    attested = engine.attest()
    stage.append(attested)
    stage.attest(ARM, **effective(attested))
    return vllm_install.Evidence(
        engine=attested, calibrated=calibrated, spans=spans, outputs=outputs, checks=watch.checks,
        free_blocks=engine.free_blocks(), allocated_bytes=allocated,
    )  # fmt: skip


if __name__ == "__main__":
    main(run)
