"""Compositions of two accelerations counted once more: blocks from cells and conditions, rho from the stamps.

The interval of the median is not drawn again here (kassay.audit.rederive does); the classes are taken from it.
"""

import statistics

from kassay import paths
from kassay.audit import compare
from kassay.audit.blocks import cells_of, needed_of, rate, recount_blocks, recount_design
from kassay.audit.checks import Body, bodies, check
from kassay.audit.files import Run
from kassay.audit.matrix import files_of, orders_of
from kassay.entry import Stage

NUMBERS = ("median", "lower", "upper", "below", "above", "point_class")


def recount(run: Run, stage: Stage, told: compare.Compared) -> None:
    """Every load of a stage `composition`."""
    made, timing = run.folder(stage.name) / paths.RECORDS, stage.params["study"]["timing"]
    recorded = {one["load"]: one for one in bodies(made, "composition")}
    timed, orders = (dict(files_of(run, stage, group)) for group in ("timing", "orders"))
    check(told, "loads", "presence", sorted(recorded), sorted(timed))
    for load, raw in timed.items():
        cells = cells_of(raw)[load]
        recount_design(told, load, cells, orders_of(orders[load]))
        good = recount_blocks(told, raw, load, cells, timing, made, stage.params["study"].get("speculation"))
        if load in recorded:
            recount_load(told, recorded[load], stage.params["arms"], cells, good, timing)


def recount_load(
    told: compare.Compared, one: Body, arms: dict[str, str], cells: list[Body], good: list[int], timing: Body
) -> None:
    """One load against its cells."""
    name, needed = f"composition of {one['load']}", needed_of(timing)
    for field in ("model", "batch", "context_tokens", "output_tokens"):
        check(told, name, field, one[field], cells[0][field])
    for role, arm in arms.items():
        check(told, name, role, one[role], arm)
    check(told, name, "blocks", one["blocks"], timing["blocks"])
    check(told, name, "valid_blocks", one["valid_blocks"], good)
    check(told, name, "needed_blocks", one["needed_blocks"], needed)
    if len(good) < needed:
        check(told, name, "interval_class", one["interval_class"], "invalidated")
        check(told, name, "numbers", [one[field] for field in NUMBERS], [None] * len(NUMBERS))
        check(told, name, "rhos", one["rhos"], [])
        return
    rates = {(cell["block"], cell["recipe"]): rate(cell) for cell in cells}
    speedups = {
        role: [rates[block, arm] / rates[block, arms["plain"]] for block in good]
        for role, arm in arms.items()
        if role != "plain"
    }
    for role, derived in speedups.items():
        check(told, name, f"{role}_speedups", one[f"{role}_speedups"], derived)
    rhos = [
        both / (quantized * speculative)
        for both, quantized, speculative in zip(
            speedups["combined"], speedups["quantized"], speedups["speculative"], strict=True
        )
    ]
    check(told, name, "rhos", one["rhos"], rhos)
    check(told, name, "median", one["median"], statistics.median(rhos))
    check(told, name, "below", one["below"], sum(rho < 1 for rho in rhos))
    check(told, name, "above", one["above"], sum(rho > 1 for rho in rhos))
    check(told, name, "interval", one["lower"] <= one["median"] <= one["upper"], True)
    check(told, name, "point_class", one["point_class"], class_of(one["median"], one["median"]))
    check(told, name, "interval_class", one["interval_class"], class_of(one["lower"], one["upper"]))


def class_of(lower: float, upper: float) -> str:
    """Where an interval lies beside 1."""
    if lower == upper == 1:
        return "multiplicative"
    return "sub-multiplicative" if upper < 1 else "super-multiplicative" if lower > 1 else "undecided"
