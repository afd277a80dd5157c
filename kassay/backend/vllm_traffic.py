"""The traffic by which an engine is checked: the same requests twice, alone, together, and while others decode."""

from typing import TYPE_CHECKING, Any

from kassay.backend import text as texts
from kassay.backend import vllm_install, vllm_prompts
from kassay.backend.vllm import Engine
from kassay.backend.vllm_attest import effective
from kassay.kinds.vllm import VllmOutput, VllmRest
from kassay.stage import Stage

if TYPE_CHECKING:
    from kassay.backend.vllm_watch import Watch

ARRIVALS = (0, 0, 0, 2, 5, 5, 9, 14, 14, 20)  # the step before which each request arrives
SPLIT = "development"
REPETITIONS = 2
SHORTEST, LONGER = 40, 13  # tokens of the first prompt, and of each next one more


def served(
    stage: Stage, engine: Engine, text: texts.Text, calibrated: dict[str, list[float]], watch: "Watch | None" = None
) -> vllm_install.Evidence:
    """Serve it, watched the first time by `watch`; every record is kept, the receipt has what was effective."""
    import torch

    lengths = [SHORTEST + LONGER * index for index in range(len(ARRIVALS))]
    prompts = vllm_prompts.rows(text, split=SPLIT, seed=stage.params["seed"], lengths=lengths)
    tokens = stage.params["output_tokens"]
    spans: list[Any] = []
    outputs: list[Any] = []
    rests: list[VllmRest] = []
    for repetition in range(REPETITIONS):
        between = watch.between if watch and repetition == 0 else None
        one = engine.serve(
            prompts, tokens, repetition=repetition, warmup=False, forced=True, arrivals=ARRIVALS, between=between
        )
        for record in (one.span, *one.requests):
            stage.append(record)
        for index, row in enumerate(one.outputs):
            stage.append(VllmOutput(arm=engine.arm, repetition=repetition, request=index, token_ids=list(row)))
        rests.append(
            VllmRest(
                arm=engine.arm, repetition=repetition, free_blocks=engine.free_blocks(),
                allocated_bytes=torch.cuda.memory_allocated(),
            )
        )  # fmt: skip
        stage.append(rests[-1])
        spans.append(one.span)
        outputs.append(one.outputs)
        stage.progress(repetition + 1, REPETITIONS, "repetitions")
    attested = engine.attest()
    stage.append(attested)
    stage.attest(engine.arm, **effective(attested))
    return vllm_install.Evidence(
        engine=attested, calibrated=calibrated, spans=spans, outputs=outputs, checks=watch.checks if watch else [],
        free_blocks=rests[-1].free_blocks, allocated_bytes=[one.allocated_bytes for one in rests],
    )  # fmt: skip
