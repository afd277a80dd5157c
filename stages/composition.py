"""Do a quantized cache and speculation multiply? rho = S_combined / (S_quantized S_speculative), paired within blocks.

It reads the timing cells of four arms and touches no model: `timing.<load>` and `orders.<load>` for each load, which is
a record of its own, for rho of one says nothing of another. Which blocks of a load count is decided by the limits that
the study froze (kassay.judging), as for contrasts and the matrix: each leaves a record that names the rule and the
cell. Of arms that the study says to draft, cells need the evidence of their drafts (kassay.speculated). Where fewer
count than the study needs, the load is `invalidated`: it has no rho, and no class. Cells that served other prompts, are
missing or repeated are an error. Descriptive: the stage states classes and rejects nothing.
"""

from typing import Any

from kassay import judging
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.timing import TimingCell
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import INVALIDATED
from kassay.stats.composition import ROLES, Composition, composition


def run(stage: Stage) -> Metrics:
    """One record for each load."""
    require_own_protocol(stage)
    for name in stage.inputs:
        verified_sha256(stage, name)
    arms: dict[str, str] = stage.params["arms"]
    study: dict[str, Any] = stage.params["study"]
    require_arms(arms)
    timed = stage.inputs_of("timing")
    if not timed:
        raise InvalidData("no load is among the inputs, allowed are `timing.<load>` and `orders.<load>`")
    told: Metrics = {}
    for load, path in timed.items():
        found = judging.evidence(path, load)
        orders = stage.json_input(f"orders.{load}")["orders"]
        blocks = judging.judged(found, orders, study["timing"], study.get("speculation"))
        first = found.cells[0]
        for block in blocks.records(first.model, load):
            stage.append(block)
        record = record_of(first, arms, blocks, study["timing"])
        stage.append(record)
        rho = "" if record.median is None else f"{record.median:.6g}, "
        told[f"rho on {load}"] = f"{rho}{record.interval_class}"
        told[f"blocks of {load} that count"] = f"{len(blocks.valid)} of {len(blocks.planned)}"
    return told


def require_arms(arms: dict[str, str]) -> None:
    """Raise InvalidData unless the four roles have arms of their own."""
    if sorted(arms) != sorted(ROLES) or len(set(arms.values())) != len(ROLES):
        raise InvalidData(f"the arms are {arms}, allowed are {', '.join(ROLES)}, four different ones")


def rates(arms: dict[str, str], blocks: judging.Blocks) -> dict[str, list[float]]:
    """Rates of each role in the blocks that count. Raises InvalidData for an arm that no block was planned with."""
    for role, arm in arms.items():
        if not all(arm in order for order in blocks.planned):
            raise InvalidData(f"`{arm}`, the {role} arm, was not timed: the planned blocks hold {blocks.planned[0]}")
    return {role: blocks.rates(arm) for role, arm in arms.items()}


def record_of(
    cell: TimingCell, arms: dict[str, str], blocks: judging.Blocks, timing: dict[str, Any]
) -> CompositionRecord:
    """The answer of one load as a record; without enough blocks it has no numbers."""
    needed, found = judging.needed_ratios(timing), rates(arms, blocks)
    short = blocks.short_of(needed)
    made = None if short else composition(found, alpha=timing["interval_alpha"])
    return CompositionRecord(
        load=cell.load,
        model=cell.model,
        batch=cell.batch,
        context_tokens=cell.context_tokens,
        output_tokens=cell.output_tokens,
        blocks=len(blocks.planned),
        valid_blocks=blocks.valid,
        needed_blocks=needed,
        alpha=timing["interval_alpha"],
        **(figures(made) | arms),
        reason=short,
    )


def figures(made: Composition | None) -> dict[str, Any]:
    """The numbers of a record, none where too few blocks count."""
    if made is None:
        without = dict.fromkeys(("median", "lower", "upper", "below", "above", "point_class"))
        speedups: dict[str, list[float]] = {f"{role}_speedups": [] for role in ROLES[1:]}
        return {**without, **speedups, "rhos": [], "interval_class": INVALIDATED}
    return {
        **{f"{role}_speedups": list(made.speedups[role]) for role in ROLES[1:]},
        "rhos": list(made.rhos),
        "median": made.median,
        "lower": made.interval.lower,
        "upper": made.interval.upper,
        "below": made.below,
        "above": made.above,
        "point_class": made.point_class,
        "interval_class": made.interval_class,
    }


if __name__ == "__main__":
    main(run)
