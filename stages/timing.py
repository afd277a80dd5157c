"""Time complete requests in counterbalanced blocks: one fresh process per arm and block, orders fixed beforehand.

Pilot blocks come first, are marked and never count. The number of blocks is the plan's: none is added after a result.
Guards, where the study has any, come last: few blocks of two arms under another load, described and never judged.
In a family of many loads each has a stage of its own, which is told the load's name (`load`); its cells carry it. A
stage that is told no sizes takes those of the study's load of that name.
Around every cell the conditions of the host and of its GPUs are recorded (kassay.conditions). This stage only measures;
which blocks count, and what they say, is decided by stages/contrast.py.
"""

from dataclasses import asdict, dataclass
from typing import Any

from kassay.cell import run_cell
from kassay.kinds.speculation import SpeculationCell
from kassay.kinds.timing import TIMED, GpuState, HostState, TimingCell
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main

KEPT = (TimingCell, SpeculationCell, HostState, GpuState)  # of what a cell leaves
SIZES = {"batch": "requests", "context_tokens": "input_tokens", "output_tokens": "output_tokens"}  # of a load
WILLIAMS = "williams"  # else the study writes out the order of every block


@dataclass(frozen=True, kw_only=True)
class Part:
    """Blocks of one load."""

    load: str
    guard: bool
    pilot: bool
    orders: list[list[str]]
    params: dict[str, Any]  # of its cells


def run(stage: Stage) -> Metrics:
    """All cells of all blocks."""
    params = stage.params
    guards = [guard_part(params, name) for name in params.get("guards") or {}]
    orders = planned_orders(params["arms"], params["blocks"])
    if params["orders"] != WILLIAMS:
        orders = params["orders"]
    of_guards = {guard.load: guard.orders for guard in guards}
    stage.write_json("orders", {"orders": orders, "balance": balance(orders), "guards": of_guards})
    own = {name: value for name, value in params.items() if name not in ("guards", "workloads", "comparisons")}
    pilots = planned_orders(params["arms"], params["pilot_blocks"])
    load = params.get("load") or TIMED
    if "batch" not in own:
        own |= {name: params["workloads"][load][word] for name, word in SIZES.items()}
    parts = [Part(load=load, guard=False, pilot=True, orders=pilots, params=own)]
    parts += [Part(load=load, guard=False, pilot=False, orders=orders, params=own), *guards]
    total = sum(len(order) for part in parts for order in part.orders)
    done = 0
    for part in parts:
        for block, order in enumerate(part.orders):
            for position, recipe in enumerate(order):
                done += 1
                time_cell(stage, part, {"block": block, "position": position, "recipe": recipe})
                stage.progress(done, total, f"{part.load}, block {block}, {recipe}")
    return {"cells": total, "blocks": params["blocks"]}


def time_cell(stage: Stage, part: Part, place: dict[str, Any]) -> None:
    """One cell in a process of its own; what it leaves becomes the stage's."""
    kind = "pilot" if part.pilot else part.load if part.guard else "block"
    name = f"{kind}-{place['block']}-{place['position']}-{place['recipe']}"
    given = {**part.params, **place, "load": part.load, "pilot": part.pilot}
    directory = run_cell(stage, name, "timing_cell", given)
    for record_kind in KEPT:
        for record in read_kind(directory / "records.jsonl", record_kind):
            stage.append(record)


def guard_part(params: dict[str, Any], name: str) -> Part:
    """The blocks of a guard: control and candidate of its comparison, under its load."""
    guard = params["guards"][name]
    load, pair = params["workloads"][guard["workload"]], params["comparisons"][guard["comparison"]]
    given = {name: params[name] for name in ("model", "sixteen", "warmups", "repetitions", "seed")}
    given |= {name: params[name] for name in ("backend",) if name in params}
    given |= {name: load[word] for name, word in SIZES.items()}
    orders = planned_orders([pair["control"], pair["candidate"]], guard["blocks"])
    return Part(load=name, guard=True, pilot=False, orders=orders, params=given)


def planned_orders(arms: list[str], blocks: int) -> list[list[str]]:
    """The order of arms in each block: rows of the Williams design in turn, a function of the plan alone."""
    from kassay.stats.orders import counterbalanced_orders

    return [list(order) for order in counterbalanced_orders(arms, blocks)] if blocks else []


def balance(orders: list[list[str]]) -> dict[str, object]:
    """How often each arm stands in each place and follows each other one."""
    from kassay.stats.orders import balance_report

    return asdict(balance_report([tuple(order) for order in orders]))


if __name__ == "__main__":
    main(run)
