"""One timing cell: this fresh process serves one batch of requests completely, several times, with one recipe.

A repetition is prefill, filling the recipe's cache, and a forced number of greedy decode steps; the clock starts after
imports, model load and prompts, and stops when the last token is there. A device would be synchronized at both ends; on
a CPU every operation has ended when it returns.
"""

import os
import time

from kassay import host
from kassay.backend import inputs, reference, workload
from kassay.kinds.timing import TimingCell
from kassay.kv.recipe import recipe_named
from kassay.stage import Metrics, Stage, main


def run(stage: Stage) -> Metrics:
    """One record with every repetition."""
    params = stage.params
    model = reference.load(stage.inputs["model"], stage.cpus)
    scales = inputs.scales_of(stage)
    recipe = recipe_named(params["recipe"], params["sixteen"])
    context_BT = workload.speed_prompts(params["batch"], params["context_tokens"], params["seed"])
    load_before = host.load_1min()
    started_ns, ended_ns, completed = [], [], []
    for _ in range(params["warmups"] + params["repetitions"]):
        started_ns.append(time.monotonic_ns())
        context = reference.prefill(model, context_BT[:, :-1], params["sixteen"])
        cache = reference.filled(model, recipe, scales, context, params["output_tokens"])
        output_BT = reference.forced(model, cache, context_BT[:, -1:], params["output_tokens"])
        ended_ns.append(time.monotonic_ns())
        completed.append(output_BT.numel())
    stage.append(
        TimingCell(
            **{name: params[name] for name in ("block", "pilot", "position", "model", "recipe", "batch")},
            **{name: params[name] for name in ("context_tokens", "output_tokens", "warmups")},
            started_ns=started_ns,
            ended_ns=ended_ns,
            completed_tokens=completed,
            prompts_sha256=workload.rows_digest(context_BT),
            output_sha256=workload.rows_digest(output_BT),
            load_before=load_before,
            load_after=host.load_1min(),
            pid=os.getpid(),
        )
    )
    return {"tokens": sum(completed)}


if __name__ == "__main__":
    main(run)
