"""Drive an OpenAI-compatible server of every arm over HTTP: closed loops and open loops, in counterbalanced blocks.

A block holds one cell per arm: a fresh server on a free loopback port, all loads of the plan one after the other, and
its end. All arms of a block answer the same prompts, other blocks other ones. Pilot blocks come first and never
count; no block is added after a result. Every request leaves a record, whatever became of it, and a server that dies in
the middle is the recorded failure of its requests. This stage only measures; stages/serving_verdict.py decides.
"""

from dataclasses import asdict
from typing import Any

from kassay.kinds.serving import OK, ServedRequest
from kassay.serving import arm, loops, metrics, vllm_counts
from kassay.stage import Metrics, Stage, main
from kassay.stats.orders import balance_report, counterbalanced_orders


def run(stage: Stage) -> Metrics:
    """All cells of all blocks."""
    params = stage.params
    names = params["arms"]
    orders = [list(order) for order in counterbalanced_orders(names, params["blocks"])]
    balance = asdict(balance_report([tuple(order) for order in orders]))
    stage.write_json("orders", {"orders": orders, "balance": balance})
    plan = [(True, block, names) for block in range(params["pilot_blocks"])]
    plan += [(False, block, order) for block, order in enumerate(orders)]
    total = sum(len(order) for _, _, order in plan)
    done, bad = 0, 0
    for pilot, block, order in plan:
        for position, name in enumerate(order):
            stage.progress(done, total, f"{'pilot' if pilot else 'block'} {block}, {name}")
            bad += serve_arm(stage, {"arm": name, "block": block, "pilot": pilot, "position": position})
            done += 1
    stage.progress(done, total, "cells")
    return {"cells": total, "blocks": params["blocks"], "failed or empty": bad}


def serve_arm(stage: Stage, place: dict[str, Any]) -> int:
    """One cell: a server, and all loads on it. How many requests failed or were empty, warm-ups included."""
    block = block_name(place)
    with arm.serving(stage, f"{block}-{place['position']}-{place['arm']}", place) as running:
        loaded = [(load, *loops.drive(stage, running, block, load)) for load in loops.loads_of(stage.params["served"])]
    # Only a shipped model's token is a character; of another one the server alone knows.
    characters = stage.params["served"]["backend"]["checkpoint"] == "shipped" and running.counts
    where = {name: place[name] for name in ("arm", "block", "pilot")}
    bad = 0
    every = [answer for _, *phases in loaded for phase in phases for answer in phase]
    for load, warmups, answers in loaded:
        for warmup, phase in ((True, warmups), (False, answers)):
            for answer in phase:
                stage.append(ServedRequest(**where, load=load["name"], warmup=warmup, **asdict(answer)))
                bad += answer.status != OK
        made = metrics.served_load(
            answers,
            place=where,
            load=load,
            prompt_tokens=load["context_tokens"] if characters else None,
            lag_limit_s=stage.params["lag_limit_s"],
        )
        off = arm.disagreements(answers, running.counted) if running.own else vllm_counts.miscounts(running.told, every)
        stage.append(metrics.with_faults(made, off))
    for counted in running.counted:
        stage.append(counted)
    return bad


def block_name(place: dict[str, Any]) -> str:
    """A block in ids and folder names."""
    return f"{'pilot' if place['pilot'] else 'block'}-{place['block']}"


if __name__ == "__main__":
    main(run)
