"""The loads of a plan on one server: warm-ups and requests of each, closed or open.

A load is `{name, requests, warmups, context_tokens, output_tokens}` with `concurrency`, or with `per_minute` and
`arrivals`.
"""

import asyncio
from dataclasses import replace
from typing import Any

from kassay.serving import arrivals, prompts
from kassay.serving.arm import Arm
from kassay.serving.client import Answer, Planned, closed_loop, open_loop
from kassay.stage import Stage

Load = dict[str, Any]
PHASES = ("warmups", "requests")
SECONDS = 60  # of a minute


def loads_of(served: dict[str, Any]) -> list[Load]:
    """The loads of the plan, each open one with its rate per second."""
    return [
        {**load, "per_s": load["per_minute"] / SECONDS} if "per_minute" in load else load for load in served["loads"]
    ]


def planned(served: dict[str, Any], block: str, load: Load, phase: str, count: int) -> list[Planned]:
    """The requests of one phase of one load."""
    sizes = {"count": count, "context_tokens": load["context_tokens"]}
    return prompts.planned(seed=served["seed"], block=block, load=load["name"], phase=phase, **sizes)


def drive(stage: Stage, running: Arm, block: str, load: Load) -> tuple[list[Answer], list[Answer]]:
    """Warm-ups, then requests; both have the load's own form."""
    warmups, answers = (one_loop(stage, running, block, load, phase) for phase in PHASES)
    return warmups, answers


def one_loop(stage: Stage, running: Arm, block: str, load: Load, phase: str) -> list[Answer]:
    """Send the requests of one phase."""
    sent = planned(stage.params["served"], block, load, phase, load[phase])

    def told(ended: int) -> None:
        stage.progress(ended, len(sent) + 1, f"{block}, {running.name}, {load['name']}: {phase}")

    if not sent:
        return []
    target = replace(running.target, output_tokens=load["output_tokens"])
    if "concurrency" in load:
        return asyncio.run(closed_loop(target, sent, load["concurrency"], told))
    seed = prompts.seed_of(stage.params["served"]["seed"], block, load["name"], "arrivals", phase)
    offsets = arrivals.offsets(load["arrivals"], per_s=load["per_s"], count=len(sent), seed=seed)
    return asyncio.run(open_loop(target, sent, offsets, told))
