"""The install check: does this host's vLLM keep K16/V8, by the routes that it claims? Writes install/receipt.json.

One engine with the candidate's fixed scales serves requests that arrive while others decode, twice, and the oracle
reads the worker's own cache after every step of the first time. `"passed": true` only if all findings of
kassay.backend.vllm_install hold. It is no benchmark and qualifies nothing. Drawn weights are refused: their text is no
evidence. Unmet without a GPU or vLLM.
"""

import json

from kassay import digest
from kassay.backend import vllm_install, vllm_prompts, vllm_traffic
from kassay.backend.vllm import Engine, require_vllm
from kassay.backend.vllm_arguments import cell_of, require_real
from kassay.backend.vllm_watch import Watch
from kassay.stage import Metrics, Rejection, Stage, main

ARM = "candidate"


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
    seen = vllm_traffic.served(stage, engine, words, scales["scales"], Watch(engine))
    found = vllm_install.findings(seen)
    for record in (*seen.checks, *vllm_install.records(found, ARM)):
        stage.append(record)
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


if __name__ == "__main__":
    main(run)
