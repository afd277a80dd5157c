"""Fold fixed scales in a vLLM worker, one per layer and component: the operands that the plug-in's writer sees.

Texts of the calibration split, prefilled and decoded on recipe `native`; for a named geometry without weights drawn
ids, and the scales say so. Unmet without a GPU or vLLM.
"""

from kassay.backend import vllm_calibrate, vllm_prompts
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import cell_of
from kassay.backend.vllm_attest import effective, plug_in_state
from kassay.backend.vllm_geometry import model_folder
from kassay.stage import Metrics, Stage, main

SPLIT = "calibration"


def run(stage: Stage) -> Metrics:
    """Scales of one model or geometry."""
    params = stage.params
    require_vllm()
    geometry = params["geometry"]
    model = model_folder(geometry, stage.directory) if geometry else stage.inputs["model"]
    asked = {"seed": params["seed"], "count": params["documents"], "context_tokens": params["context_tokens"]}
    texts = [] if geometry else vllm_prompts.text_of(model).passages(split=SPLIT, targets=1, **asked)
    drawn = vllm_prompts.drawn(params["documents"], params["context_tokens"], params["seed"]) if geometry else []
    prompts = drawn or [list(one.context) for one in texts]
    cell = cell_of(
        params["engine"], model=str(model), dummy=bool(geometry), recipe="native", attention="plug-in", scales=None,
        observe=(), calibrate=True, seed=params["seed"],
    )  # fmt: skip
    engine = Engine(cell, "calibration")
    stage.append(engine.attested)
    stage.attest("calibration", **effective(engine.attested))
    vllm_calibrate.forget(plug_in_state())
    served = engine.serve(prompts, params["decode_tokens"], repetition=0, warmup=False, forced=True)
    stage.append(served.span)
    made = vllm_calibrate.scales(
        plug_in_state(), engine.attested.layers, model=geometry or params["model"],
        model_sha256="" if geometry else stage.input_sha256("model"), sixteen=cell.sixteen, dummy=bool(geometry),
        contents={SPLIT: [one.document.content_digest for one in texts]} if texts else {},
    )  # fmt: skip
    stage.write_json("scales", made)
    return {"layers": engine.attested.layers, "documents": len(prompts), "drawn weights": bool(geometry)}


if __name__ == "__main__":
    main(run)
