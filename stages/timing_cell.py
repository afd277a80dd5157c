"""One timing cell: this fresh process serves one batch of requests completely, several times, with one recipe.

A repetition is prefill, filling the recipe's cache, and a forced number of greedy decode steps; the clock starts after
imports, model load and prompts, and stops when the last token is there. A GPU is synchronized at both ends; on the
processor every operation has ended when it returns. The conditions of host and GPUs are recorded right before the first
repetition and right after the last one, and before the GPU has any context of this process. Which backend serves is
the params' (kassay.backend.speed).
"""

import os

import torch

from kassay import conditions
from kassay.backend import speed, workload
from kassay.backend.passes import Schedule
from kassay.backend.speed import Served, idle_ns
from kassay.kinds.timing import AFTER, BEFORE, TimingCell
from kassay.stage import Metrics, Stage, Unmet, main


def run(stage: Stage) -> Metrics:
    """One record with every repetition, between two records of the conditions."""
    params = stage.params
    place = {name: params[name] for name in ("load", "block", "pilot", "position", "recipe")}
    gpus = conditions.Gpus() if stage.gpus else None
    if gpus is not None and gpus.lack:
        raise Unmet(f"the conditions of the GPU cannot be recorded: {gpus.lack}")
    untouched = gpus.states(place, BEFORE) if gpus else []
    backend = speed.of_stage(stage)
    context_BT = backend.prompts(params["batch"], params["context_tokens"], params["seed"])
    backend.prepare(params["recipe"], context_BT, params["output_tokens"])
    backend.schedule(params["batch"])  # what was prepared is no repetition
    before = conditions.host_state(place, BEFORE)
    cell = served(stage, backend, context_BT)
    after = conditions.host_state(place, AFTER)
    for record in (
        before,
        *untouched,
        cell,
        *backend.evidence(cell),
        after,
        *(gpus.states(place, AFTER) if gpus else []),
    ):
        stage.append(record)
    return {"tokens": sum(cell.completed_tokens)}


def served(stage: Stage, backend: Served, context_BT: torch.Tensor) -> TimingCell:
    """All repetitions, as the cell's record."""
    params = stage.params
    started_ns, ended_ns, outputs = [], [], []
    schedules: list[Schedule] = []
    for _ in range(params["warmups"] + params["repetitions"]):
        started_ns.append(idle_ns(backend.device))
        output_BT = backend.complete(params["recipe"], context_BT, params["output_tokens"])
        ended_ns.append(idle_ns(backend.device))
        outputs.append(output_BT.cpu())
        schedules.append(backend.schedule(params["batch"]))
    return TimingCell(
        **{name: params[name] for name in ("load", "block", "pilot", "position", "model", "recipe", "batch")},
        **{name: params[name] for name in ("context_tokens", "output_tokens", "warmups")},
        started_ns=started_ns,
        ended_ns=ended_ns,
        request_tokens=[[row.numel() for row in output_BT] for output_BT in outputs],
        **{name: [getattr(one, name) for one in schedules] for name in Schedule.__dataclass_fields__},
        prompts_sha256=workload.rows_digest(context_BT),
        prompt_sha256s=[workload.rows_digest(row_T) for row_T in context_BT],
        output_sha256s=[workload.rows_digest(output_BT) for output_BT in outputs],
        pid=os.getpid(),
    )


if __name__ == "__main__":
    main(run)
