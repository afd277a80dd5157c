"""Decide the timing comparisons from the cells' raw stamps: ratios within blocks, sign test, Holm, screen, verdict.

The family was planned before the first cell; a comparison that was not measured keeps p = 1. A candidate can gain only
if it is certified for the study's route against every planned control, not merely against the one it is timed with; the
certificates are read from the file whose digest the request states. On a machine where the quantized cache is slower
the answer is `no confirmed gain`, which is a result.
"""

from typing import Any

from kassay import objectives
from kassay.kinds.timing import TimingCell
from kassay.kinds.verdict import CertificateRecord, ContrastRecord
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import BlockCell, ContrastVerdict, PlannedContrast, block_ratios, contrast_verdicts
from kassay.stats.certificate import Qualification


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
    sha256 = verified_sha256(stage, "certificates")
    made = certificates(stage)
    family = [planned_contrast(study, study["comparisons"][name], made, measured, orders) for name in timing["family"]]
    decided = contrast_verdicts(
        family,
        planned_blocks=timing["blocks"],
        alpha=timing["alpha"],
        interval_alpha=timing["interval_alpha"],
        screen_ratio=timing["screen_ratio"],
    )
    for planned, verdict in zip(family, decided, strict=True):
        stage.append(contrast_record(stage, planned, verdict, sha256))
    return {verdict.contrast: verdict.verdict for verdict in decided}


def certificates(stage: Stage) -> list[CertificateRecord]:
    """The certificates of the timed model. Raises InvalidData where they are another study's."""
    bodies = stage.json_input("certificates")
    found = [CertificateRecord.from_json({"schema": CertificateRecord.schema, **body}) for body in bodies]
    study = stage.params["study"]
    if strange := {made.study for made in found} - {study["name"]}:
        raise InvalidData(f"the certificates are of study {', '.join(sorted(strange))}, allowed is {study['name']}")
    return [made for made in found if made.model == stage.params["model"]]


def planned_contrast(
    study: dict[str, Any],
    pair: dict[str, str],
    made: list[CertificateRecord],
    cells: list[BlockCell],
    orders: list[tuple[str, ...]],
) -> PlannedContrast:
    """One comparison of the family with what was measured for it."""
    candidate, control = pair["candidate"], pair["control"]
    held = objectives.qualified(study, made, candidate, objectives.route_of(study))
    return PlannedContrast(
        contrast=f"{candidate} / {control}",
        candidate=candidate,
        control=control,
        certificate=held.verdict,
        ratios=block_ratios(cells, orders=orders, candidate=candidate, control=control),
        reason=lacking(held),
    )


def lacking(held: Qualification) -> str:
    """Which certificates a candidate lacks, in words; empty if it has all."""
    bad = [
        f"its certificate for {held.objective} against {control} is `{verdict}`"
        for control, verdict in zip(held.controls, held.verdicts, strict=True)
        if verdict != "pass"
    ]
    return "; ".join(bad)


def check_identity(cells: list[TimingCell]) -> None:
    """Raise InvalidData unless all cells served the same prompts completely, each in a process of its own."""
    if len({(cell.model, cell.prompts_sha256, cell.batch, cell.output_tokens) for cell in cells}) > 1:
        raise InvalidData("timing cells served different prompts or sizes: their rates may not be compared")
    for cell in cells:
        if any(done != cell.batch * cell.output_tokens for done in cell.completed_tokens):
            raise InvalidData(f"cell {cell.position} of block {cell.block} did not complete all tokens")
    if len({(cell.block, cell.pid) for cell in cells}) != len(cells):
        raise InvalidData("two timing cells of one block ran in one process")


def contrast_record(stage: Stage, planned: PlannedContrast, decided: ContrastVerdict, sha256: str) -> ContrastRecord:
    """A verdict as a record."""
    return ContrastRecord(
        model=stage.params["model"],
        contrast=decided.contrast,
        candidate=decided.candidate,
        control=decided.control,
        **decided.figures() | {"ratios": None if planned.ratios is None else list(planned.ratios)},
        objective=objectives.route_of(stage.params["study"]),
        certificate=planned.certificate,
        certificates_sha256=sha256,
        verdict=decided.verdict,
        reason=decided.reason,
    )


if __name__ == "__main__":
    main(run)
