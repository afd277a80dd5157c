"""Decode throughput over batch on a vLLM engine, at fixed contexts: the points of the saturation curve of every arm.

The grid is fixed by the plan: the listed batches up to the largest, as far as the pool holds their 16-bit caches, so
that all arms have the same points. Every arm has an engine in a process of its own, once in each counterbalanced round;
a point's measurements are those of all rounds, warm-ups first. The steps are timed inside the engine
(kassay.backend.vllm_sweep). Weights of a geometry are drawn, which its engine's record says. This stage measures only;
stages/saturation.py fits. Unmet without a GPU or vLLM.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from kassay.backend.vllm import require_vllm
from kassay.backend.vllm_attest import effective
from kassay.cell import run_cell
from kassay.errors import KassayError
from kassay.kinds.timing import SweepCell
from kassay.kinds.vllm import VllmEngine, VllmRequest, VllmSpan
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats.orders import balance_report, counterbalanced_orders

KEPT = (VllmEngine, VllmSpan, VllmRequest)


def run(stage: Stage) -> Metrics:
    """All rounds, then every point once."""
    params = stage.params
    require_vllm()
    orders = counterbalanced_orders(list(params["arms"]), params["rounds"])
    stage.write_json("orders", {"orders": [list(order) for order in orders], "balance": asdict(balance_report(orders))})
    parts: dict[tuple[str, int, int], list[SweepCell]] = {}
    done, total = 0, sum(map(len, orders))
    for number, order in enumerate(orders):
        for position, arm in enumerate(order):
            stage.progress(done, total, f"round {number}, {arm}")
            for cell in one_arm(stage, {"round": number, "position": position, "arm": arm}):
                parts.setdefault((cell.recipe, cell.context_tokens, cell.batch), []).append(cell)
            done += 1
    stage.progress(done, total, "engines")
    for rounds in parts.values():
        stage.append(joined(rounds, params["rounds"]))
    return {"cells": len(parts), "rounds": params["rounds"], "drawn weights": bool(params["geometry"])}


def one_arm(stage: Stage, place: dict[str, Any]) -> list[SweepCell]:
    """One engine in a process of its own; what it leaves becomes the stage's, its points are given back."""
    name = f"round-{place['round']}-{place['position']}-{place['arm']}"
    records = run_cell(stage, name, "vllm_sweep_cell", {**stage.params, **place}) / "records.jsonl"
    for kind in KEPT:
        for record in read_kind(records, kind):
            stage.append(record)
            if isinstance(record, VllmEngine):
                stage.attest(record.arm, **effective(record))
    return read_kind(records, SweepCell)


def joined(parts: Sequence[SweepCell], rounds: int) -> SweepCell:
    """A point of all rounds, warm-ups first. Raises KassayError unless each round served it, and the same prompts."""
    first = parts[0]
    if len(parts) != rounds or len({one.prompts_sha256 for one in parts}) != 1:
        raise KassayError(
            f"{first.recipe} at batch {first.batch} and {first.context_tokens} tokens: {len(parts)} of {rounds} "
            f"rounds, {len({one.prompts_sha256 for one in parts})} sets of prompts"
        )
    warm = [ns for one in parts for ns in one.elapsed_ns[: one.warmups]]
    measured = [ns for one in parts for ns in one.elapsed_ns[one.warmups :]]
    return replace(first, warmups=len(warm), elapsed_ns=warm + measured)


if __name__ == "__main__":
    main(run)
