"""Decide the timing comparisons from the cells' raw stamps: ratios within blocks, sign test, Holm, screen, verdict.

The family was planned before the first cell; a comparison that was not measured keeps p = 1. On a machine where the
quantized cache is slower the answer is `no confirmed gain`, which is a result.
"""

from typing import Any

from kassay.kinds.timing import TimingCell
from kassay.kinds.verdict import ContrastRecord
from kassay.pooling import require_own_protocol
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, ContrastVerdict, PlannedContrast, block_ratios, contrast_verdicts


def run(stage: Stage) -> Metrics:
    """The verdict of every planned comparison of the family."""
    require_own_protocol(stage)
    study = stage.params["study"]
    timing = study["timing"]
    cells = [cell for cell in read_kind(stage.inputs["timing"], TimingCell) if not cell.pilot]
    check_identity(cells)
    orders = [tuple(order) for order in stage.json_input("orders")["orders"]]
    measured = [
        BlockCell(block=cell.block, position=cell.position, arm=cell.recipe, rate_per_s=cell.rate_per_s())
        for cell in cells
    ]
    verdicts = certificate_verdicts(stage)
    family = [planned_contrast(study["comparisons"][name], verdicts, measured, orders) for name in timing["family"]]
    decided = contrast_verdicts(
        family,
        planned_blocks=timing["blocks"],
        alpha=timing["alpha"],
        interval_alpha=timing["interval_alpha"],
        screen_ratio=timing["screen_ratio"],
    )
    for planned, verdict in zip(family, decided, strict=True):
        stage.append(contrast_record(planned, verdict))
    return {verdict.contrast: verdict.verdict for verdict in decided}


def planned_contrast(
    pair: dict[str, str], verdicts: dict[str, str], cells: list[BlockCell], orders: list[tuple[str, ...]]
) -> PlannedContrast:
    """One comparison of the family with what was measured for it."""
    candidate, control = pair["candidate"], pair["control"]
    return PlannedContrast(
        contrast=f"{candidate} / {control}",
        candidate=candidate,
        control=control,
        certificate=verdicts[candidate],
        ratios=block_ratios(cells, orders=orders, candidate=candidate, control=control),
        reason="" if verdicts[candidate] == "pass" else f"its quality certificate is `{verdicts[candidate]}`",
    )


def certificate_verdicts(stage: Stage) -> dict[str, str]:
    """Certificate verdict of each candidate on the timed model."""
    found: list[dict[str, Any]] = stage.json_input("certificates")
    return {made["candidate"]: made["verdict"] for made in found if made["model"] == stage.params["model"]}


def check_identity(cells: list[TimingCell]) -> None:
    """Raise InvalidData unless all cells served the same prompts completely, each in a process of its own."""
    if len({(cell.prompts_sha256, cell.batch, cell.output_tokens) for cell in cells}) > 1:
        raise InvalidData("timing cells served different prompts or sizes: their rates may not be compared")
    for cell in cells:
        if any(done != cell.batch * cell.output_tokens for done in cell.completed_tokens):
            raise InvalidData(f"cell {cell.position} of block {cell.block} did not complete all tokens")
    if len({(cell.block, cell.pid) for cell in cells}) != len(cells):
        raise InvalidData("two timing cells of one block ran in one process")


def contrast_record(planned: PlannedContrast, decided: ContrastVerdict) -> ContrastRecord:
    """A verdict as a record."""
    summary = decided.summary
    return ContrastRecord(
        contrast=decided.contrast,
        candidate=decided.candidate,
        control=decided.control,
        ratios=None if planned.ratios is None else list(planned.ratios),
        median=None if summary is None else summary.median,
        lower=None if summary is None else summary.interval.lower,
        upper=None if summary is None else summary.interval.upper,
        wins=None if summary is None else summary.sign.wins,
        p=None if summary is None else summary.sign.p,
        holm_p=decided.holm_p,
        family_size=decided.family_size,
        alpha=decided.alpha,
        screen_ratio=decided.screen_ratio,
        certificate=planned.certificate,
        verdict=decided.verdict,
        reason=decided.reason,
    )


if __name__ == "__main__":
    main(run)
