"""Time complete requests in counterbalanced blocks: one fresh process per arm and block, orders fixed beforehand.

Pilot blocks come first, are marked and never count. The number of blocks is the plan's: none is added after a result.
This stage only measures; stages/contrast.py decides.
"""

from dataclasses import asdict

from kassay.cell import run_cell
from kassay.kinds.timing import TimingCell
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main

WILLIAMS = "williams"  # else the study writes out the order of every block


def run(stage: Stage) -> Metrics:
    """All cells of all blocks."""
    params = stage.params
    orders = planned_orders(params["arms"], params["blocks"])
    if params["orders"] != WILLIAMS:
        orders = params["orders"]
    stage.write_json("orders", {"orders": orders, "balance": balance(orders)})
    pilots = planned_orders(params["arms"], params["pilot_blocks"])
    plan = [(True, block, order) for block, order in enumerate(pilots)]
    plan += [(False, block, order) for block, order in enumerate(orders)]
    total = sum(len(order) for _, _, order in plan)
    done = 0
    for pilot, block, order in plan:
        for position, recipe in enumerate(order):
            place = {"block": block, "pilot": pilot, "position": position, "recipe": recipe}
            name = f"{'pilot' if pilot else 'block'}-{block}-{position}-{recipe}"
            directory = run_cell(stage, name, "timing_cell", {**params, **place})
            for cell in read_kind(directory / "records.jsonl", TimingCell):
                stage.append(cell)
            done += 1
            stage.progress(done, total, name)
    return {"cells": total, "blocks": params["blocks"]}


def planned_orders(arms: list[str], blocks: int) -> list[list[str]]:
    """The order of arms in each block: rows of the Williams design in turn, a function of the plan alone."""
    from kassay.stats.blocks import counterbalanced_orders

    return [list(order) for order in counterbalanced_orders(arms, blocks)] if blocks else []


def balance(orders: list[list[str]]) -> dict[str, object]:
    """How often each arm stands in each place and follows each other one."""
    from kassay.stats.blocks import balance_report

    return asdict(balance_report([tuple(order) for order in orders]))


if __name__ == "__main__":
    main(run)
