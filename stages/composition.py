"""Do a quantized cache and speculation multiply? rho = S_combined / (S_quantized S_speculative), paired within blocks.

It reads the timing cells of four arms and touches no model. Every load (model, batch, context) is a record of its own:
rho of one says nothing of another. Cells that served other prompts, are incomplete, missing or repeated are an error.
Descriptive: the stage states classes and rejects nothing.
"""

from collections import Counter, defaultdict

from kassay import validity
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.timing import TimingCell
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.composition import ROLES, Composition, composition

Load = tuple[str, int, int, int]  # model, batch, context, output


def run(stage: Stage) -> Metrics:
    """One record for each load."""
    arms: dict[str, str] = stage.params["arms"]
    require_arms(arms)
    loads: dict[Load, list[TimingCell]] = defaultdict(list)
    for cell in read_kind(stage.inputs["timing"], TimingCell):
        if not cell.pilot and cell.recipe in arms.values():
            loads[cell.model, cell.batch, cell.context_tokens, cell.output_tokens].append(cell)
    if not loads:
        raise InvalidData(f"no timing cell is of the arms {sorted(arms.values())}")
    told: Metrics = {}
    for load, cells in sorted(loads.items()):
        made = composition(rates(load, cells, arms, stage.params["blocks"]), alpha=stage.params["interval_alpha"])
        stage.append(record_of(load, arms, made))
        told[f"rho on {load[0]}, batch {load[1]} at {load[2]} tokens"] = f"{made.median:.6g}, {made.interval_class}"
    return told


def require_arms(arms: dict[str, str]) -> None:
    """Raise InvalidData unless the four roles have arms of their own."""
    if sorted(arms) != sorted(ROLES) or len(set(arms.values())) != len(ROLES):
        raise InvalidData(f"the arms are {arms}, allowed are {', '.join(ROLES)}, four different ones")


def rates(load: Load, cells: list[TimingCell], arms: dict[str, str], blocks: int) -> dict[str, list[float]]:
    """Rates of each role in block order.

    Raises InvalidData unless every planned block has each arm exactly once, all cells served the same prompts, and each
    has its evidence: complete, scheduled as planned, in a process of its own (kassay.validity).
    """
    planned = Counter((block, arm) for block in range(blocks) for arm in arms.values())
    found = Counter((cell.block, cell.recipe) for cell in cells)
    if wrong := sorted((planned - found) + (found - planned)):
        block, arm = wrong[0]
        raise InvalidData(
            f"{len(wrong)} cells of {load} are missing, repeated or not planned, first `{arm}` in block {block}; "
            f"allowed is each of four arms once in each of {blocks} blocks"
        )
    if len({cell.prompts_sha256 for cell in cells}) > 1:
        raise InvalidData(f"the cells of {load} served different prompts: their rates may not be compared")
    validity.require_evidence(cells)
    measured = {(cell.block, cell.recipe): cell.rate_per_s() for cell in cells}
    return {role: [measured[block, arm] for block in range(blocks)] for role, arm in arms.items()}


def record_of(load: Load, arms: dict[str, str], made: Composition) -> CompositionRecord:
    """An answer as a record."""
    model, batch, context_tokens, output_tokens = load
    return CompositionRecord(
        model=model,
        batch=batch,
        context_tokens=context_tokens,
        output_tokens=output_tokens,
        **arms,
        **{f"{role}_speedups": list(made.speedups[role]) for role in ROLES[1:]},
        rhos=list(made.rhos),
        median=made.median,
        lower=made.interval.lower,
        upper=made.interval.upper,
        alpha=made.interval.alpha,
        below=made.below,
        above=made.above,
        point_class=made.point_class,
        interval_class=made.interval_class,
    )


if __name__ == "__main__":
    main(run)
