"""Does a fork's engine store what its recipe says, load the scales, admit prompts beside decodes, and repeat itself?

One arm on one role's stack, in this process: requests that arrive while others decode, twice. What a fork does not tell
(fallbacks, replays, operands) is named in check/receipt.json beside `passed`, and no oracle reads it: this is less than
the install check of the plug-in (stages/vllm_smoke.py) and no qualification. Unmet without a GPU, vLLM or a checkpoint.
"""

from kassay import digest
from kassay.backend import vllm_install, vllm_prompts, vllm_traffic
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import cell_of
from kassay.stage import Metrics, Rejection, Stage, main


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
    text = vllm_prompts.text_of(stage.inputs["model"])
    seen = vllm_traffic.served(stage, engine, text, calibrated)
    found = vllm_install.findings_of_fork(seen, cell.cache_recipe)
    for record in vllm_install.records(found, params["arm"]):
        stage.append(record)
    folder = stage.directory / "check"
    folder.mkdir(exist_ok=True)
    digest.write_json(folder / "receipt.json", vllm_install.receipt_of_fork(found, seen.engine))
    stage.add_artifact("check", folder / "receipt.json")
    told = {one.name: one.said for one in found}
    if all(one.passed for one in found):
        return told
    return stage.rejected("not so: " + "; ".join(f"{one.name} ({one.said})" for one in found if not one.passed), **told)


if __name__ == "__main__":
    main(run)
