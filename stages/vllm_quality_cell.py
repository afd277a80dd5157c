"""A cell of a vLLM quality study: this fresh process starts one arm's engine and answers every endpoint, in cohorts."""

import json
from pathlib import Path
from typing import Any

from kassay.backend import inputs, vllm_prompts
from kassay.backend import text as texts
from kassay.backend.endpoints import NLL, Endpoints
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import Asked, arm_arguments, cell_of
from kassay.backend.vllm_attest import effective
from kassay.backend.vllm_quality import Questioner
from kassay.errors import KassayError
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """Answers and losses of one arm."""
    require_vllm()
    arm, model = stage.params["arm"], stage.inputs["model"]
    endpoints = Endpoints(stage, words_of(model), positions_of(model))
    for endpoint, planned in endpoints.planned.items():
        if planned["measure"] == NLL:
            seen = [found.document.content_digest for found in endpoints.rows(endpoint)]
            inputs.check_unseen(stage, stage.params["split"], seen)
    engine = Engine(cell(stage), arm)
    stage.append(engine.attested)
    Questioner(stage, endpoints, engine, arm).run()
    attested = engine.attest()
    stage.append(attested)
    stage.attest(arm, **effective(attested))
    return {"items": endpoints.total}


def cell(stage: Stage) -> Asked:
    """What this arm's engine is asked for: weights are loaded, never drawn."""
    params: dict[str, Any] = stage.params
    return cell_of(
        params["engine"], model=str(stage.inputs["model"]), dummy=False, seed=params["seed"],
        **arm_arguments(params["arms"][params["arm"]], stage.inputs),
    )  # fmt: skip


def words_of(model: Path) -> texts.Text:
    """How the model reads the tasks; with a tokenizer a text ends where the checkpoint's generation settings say."""
    from kassay.backend import checkpoint

    if any((model / name).is_file() for name in texts.TOKENIZER_FILES):
        return texts.of_folder(model, checkpoint.ends_of(model, checkpoint.config_of(model)))
    return vllm_prompts.text_of(model)


def positions_of(model: Path) -> Any:
    """A check that raises KassayError for more tokens than the model has positions."""
    most = json.loads((model / "config.json").read_bytes()).get("max_position_embeddings")

    def check(tokens: int) -> None:
        if most is not None and tokens > most:
            raise KassayError(f"the model has {most} positions, and {tokens} tokens are asked for")

    return check


if __name__ == "__main__":
    main(run)
