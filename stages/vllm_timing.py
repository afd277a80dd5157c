"""Time complete requests of vLLM arms in counterbalanced blocks: one fresh engine, a process, for each arm and block.

Where the study makes certificates they are an input, and an arm that none of them judges is not timed; what they say
decides in stages/contrast.py, which reads them again. An arm of a `role` runs with the interpreter of that role's
stack, so that forks are compared in one block.

Pilot blocks come first, are marked and never count. Orders are rows of the Williams design, fixed by the plan. A cell
whose engine is not, by its own attestation, what was asked for is a crash of this stage and no slow cell. This stage
measures only; stages/contrast.py and stages/vllm_ratio.py say what the blocks say. Unmet without a GPU or vLLM.
"""

import json
from dataclasses import asdict
from typing import Any

from kassay.backend.vllm import require_vllm
from kassay.backend.vllm_attest import effective
from kassay.cell import run_cell
from kassay.errors import KassayError
from kassay.kinds.timing import GpuState, HostState, TimingCell
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats.orders import balance_report, counterbalanced_orders

KEPT = (TimingCell, HostState, GpuState, VllmEngine, VllmSpan, VllmRequest)


def run(stage: Stage) -> Metrics:
    """All cells of all blocks."""
    params = stage.params
    require_vllm()
    arms = list(params["arms"])
    if "certificates" in stage.inputs:
        require_judged(stage.json_input("certificates"), params["model"], arms)
    pilots = counterbalanced_orders(arms, params["pilot_blocks"]) if params["pilot_blocks"] else ()
    orders = counterbalanced_orders(arms, params["blocks"])
    stage.write_json("orders", {"orders": [list(order) for order in orders], "balance": asdict(balance_report(orders))})
    planned = [(True, block, order) for block, order in enumerate(pilots)]
    planned += [(False, block, order) for block, order in enumerate(orders)]
    total, done = sum(len(order) for _, _, order in planned), 0
    for pilot, block, order in planned:
        for position, arm in enumerate(order):
            time_cell(stage, {"pilot": pilot, "block": block, "position": position, "arm": arm})
            done += 1
            stage.progress(done, total, f"{'pilot' if pilot else 'block'} {block}, {arm}")
    return {"cells": total, "blocks": params["blocks"]}


def require_judged(certificates: list[dict[str, Any]], model: str, arms: list[str]) -> None:
    """Raise KassayError for an arm that no certificate of the model has as its candidate or its control."""
    own = [one for one in certificates if one["model"] == model]
    known = {one[side] for one in own for side in ("candidate", "control")}
    if unknown := [arm for arm in arms if arm not in known]:
        raise KassayError(
            f"no certificate of `{model}` judges {', '.join(f'`{arm}`' for arm in unknown)}: what is timed without one "
            "could never be a gain",
            hint="the study's certificates.comparisons name what is certified",
        )


def time_cell(stage: Stage, place: dict[str, Any]) -> None:
    """One cell in a process of its own; what it leaves becomes the stage's."""
    name = f"{'pilot' if place['pilot'] else 'block'}-{place['block']}-{place['position']}-{place['arm']}"
    role = stage.params["arms"][place["arm"]].get("role")
    own = {} if role is None else {"python": json.loads(stage.inputs_of("stacks")[role].read_bytes())["python"]}
    directory = run_cell(stage, name, "vllm_timing_cell", {**stage.params, **place}, **own)
    for kind in KEPT:
        for record in read_kind(directory / "records.jsonl", kind):
            stage.append(record)
            if isinstance(record, VllmEngine):
                stage.attest(record.arm, **effective(record))


if __name__ == "__main__":
    main(run)
