"""Decide the timing comparisons from the cells' raw stamps: ratios within blocks, sign test, Holm, screen, verdict.

First it is decided which blocks count, by evidence and by the limits that the study froze (kassay.validity): each block
leaves a record that names the rule and the cell, and none is dropped in silence. Where fewer blocks count than the
study needs, every comparison is `invalidated`: nothing was found out, and nothing is rejected. The family was planned
before the first cell; a comparison that was not measured keeps p = 1. A candidate can gain only if it is certified for
the study's route against every planned control, not merely against the one it is timed with; the certificates are read
from the file whose digest the request states. On a machine where the quantized cache is slower the answer is `no
confirmed gain`, which is a result; where no stage makes certificates, it is `descriptive`. Guards, where the study
has any, are described and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kassay import objectives, validity
from kassay.kinds.timing import TIMED, BlockRecord, GpuState, HostState, TimingCell
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GuardRecord
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.record import read_kind
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import (
    BlockCell,
    ContrastVerdict,
    PlannedContrast,
    block_ratios,
    contrast_verdicts,
    guard_median,
)
from kassay.stats.certificate import Qualification
from kassay.stats.orders import Order, require_design

UNCERTIFIED = "unestablished"  # in a study without certificates, whose comparisons are descriptive


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The blocks of one load: which count, and the rates of their cells, numbered anew."""

    planned: int
    valid: list[int]
    orders: list[Order]  # of the valid blocks
    cells: list[BlockCell]  # likewise

    def ratios(self, candidate: str, control: str) -> tuple[float, ...]:
        """Within-block ratios of the valid blocks."""
        return block_ratios(self.cells, orders=self.orders, candidate=candidate, control=control) if self.valid else ()


def run(stage: Stage) -> Metrics:
    """What became of every block, then the verdict of every planned comparison of the family, then the guards."""
    require_own_protocol(stage)
    study = stage.params["study"]
    timing = study["timing"]
    orders = stage.json_input("orders")
    found = judged_blocks(stage, TIMED, orders["orders"])
    needed = (timing.get("conditions") or {}).get("valid_blocks", timing["blocks"])
    sha256 = verified_sha256(stage, "certificates") if "certificates" in stage.inputs else ""
    made = certificates(stage)
    family = [planned_contrast(study, study["comparisons"][name], made, found) for name in timing["family"]]
    decided = contrast_verdicts(
        family,
        planned_blocks=len(found.valid),
        alpha=timing["alpha"],
        interval_alpha=timing["interval_alpha"],
        screen_ratio=timing["screen_ratio"],
        invalid="" if len(found.valid) >= needed else short_of(found, needed),
    )
    for planned, verdict in zip(family, decided, strict=True):
        stage.append(contrast_record(stage, planned, verdict, sha256, found, needed))
    for name, guard in (study.get("guards") or {}).items():
        stage.append(guard_record(stage, name, guard, orders["guards"][name]))
    counted: Metrics = {"blocks that count": f"{len(found.valid)} of {found.planned}"}
    return counted | {verdict.contrast: verdict.verdict for verdict in decided}


def judged_blocks(stage: Stage, load: str, orders: list[list[str]]) -> Blocks:
    """The blocks of one load, each with a record of whether it counts."""
    planned = [tuple(order) for order in orders]
    found = evidence(stage.inputs["timing"], load)
    require_design([(cell.block, cell.position, cell.recipe) for cell in found.cells], planned)
    require_alike(found.cells)
    faults = validity.faults(found, stage.params["study"]["timing"].get("conditions"))
    valid = validity.valid_blocks(len(planned), faults)
    for block, order in enumerate(planned):
        own = [asdict(fault) for fault in faults if fault.block == block]
        stage.append(
            BlockRecord(
                model=stage.params["model"],
                load=load,
                block=block,
                order=list(order),
                valid=block in valid,
                faults=[{key: value for key, value in fault.items() if key != "block"} for fault in own],
            )
        )
    cells = [
        BlockCell(block=valid.index(cell.block), position=cell.position, arm=cell.recipe, rate_per_s=cell.rate_per_s())
        for cell in found.cells
        if cell.block in valid
    ]
    return Blocks(planned=len(planned), valid=valid, orders=[planned[block] for block in valid], cells=cells)


def evidence(path: Path, load: str) -> validity.Evidence:
    """Cells and conditions of one load of a timing stage, pilots left out."""
    return validity.Evidence(
        cells=tuple(one for one in read_kind(path, TimingCell) if one.load == load and not one.pilot),
        hosts=tuple(one for one in read_kind(path, HostState) if one.load == load and not one.pilot),
        gpus=tuple(one for one in read_kind(path, GpuState) if one.load == load and not one.pilot),
    )


def require_alike(cells: Sequence[TimingCell]) -> None:
    """Raise InvalidData unless all cells are of one model, one set of prompts and one size: else no rates compare."""
    if len({(cell.model, cell.prompts_sha256, cell.batch, cell.output_tokens) for cell in cells}) > 1:
        raise InvalidData("timing cells served different prompts or sizes: their rates may not be compared")


def short_of(found: Blocks, needed: int) -> str:
    """That too few blocks count, in words; what is wrong with each stands in its own record."""
    bad = [str(block) for block in range(found.planned) if block not in found.valid]
    return (
        f"{len(found.valid)} of {found.planned} blocks count and {needed} are needed; a rule invalidates "
        f"block{'s' if len(bad) > 1 else ''} {', '.join(bad)}"
    )


def certificates(stage: Stage) -> list[CertificateRecord] | None:
    """The certificates of the timed model, None where no stage makes any. Raises InvalidData for another study's."""
    if "certificates" not in stage.inputs:
        return None
    bodies = stage.json_input("certificates")
    found = [CertificateRecord.from_json({"schema": CertificateRecord.schema, **body}) for body in bodies]
    study = stage.params["study"]
    if strange := {made.study for made in found} - {study["name"]}:
        raise InvalidData(f"the certificates are of study {', '.join(sorted(strange))}, allowed is {study['name']}")
    return [made for made in found if made.model == stage.params["model"]]


def planned_contrast(
    study: dict[str, Any],
    pair: dict[str, str],
    made: list[CertificateRecord] | None,
    found: Blocks,
) -> PlannedContrast:
    """One comparison of the family with what was measured for it."""
    candidate, control = pair["candidate"], pair["control"]
    if made is None:
        certificate, without = UNCERTIFIED, "no stage asks what its models answer: no gain can be confirmed"
    else:
        held = objectives.qualified(study, made, candidate, objectives.route_of(study))
        certificate, without = held.verdict, lacking(held)
    ratios = found.ratios(candidate, control)
    few = "" if len(ratios) > 1 else f"{len(ratios)} blocks count: no median and no test"
    return PlannedContrast(
        contrast=f"{candidate} / {control}",
        candidate=candidate,
        control=control,
        certificate=certificate,
        ratios=None if few else ratios,
        reason="; ".join(filter(None, (without, few))),
    )


def lacking(held: Qualification) -> str:
    """Which certificates a candidate lacks, in words; empty if it has all."""
    bad = [
        f"its certificate for {held.objective} against {control} is `{verdict}`"
        for control, verdict in zip(held.controls, held.verdicts, strict=True)
        if verdict != "pass"
    ]
    return "; ".join(bad)


def guard_record(stage: Stage, name: str, guard: dict[str, Any], orders: list[list[str]]) -> GuardRecord:
    """A guard as a record; too few valid blocks leave it without a median, and that is all."""
    pair = stage.params["study"]["comparisons"][guard["comparison"]]
    found = judged_blocks(stage, name, orders)
    ratios = found.ratios(pair["candidate"], pair["control"])
    median = guard_median(ratios)
    return GuardRecord(
        model=stage.params["model"],
        guard=name,
        workload=guard["workload"],
        candidate=pair["candidate"],
        control=pair["control"],
        blocks=found.planned,
        valid_blocks=found.valid,
        ratios=list(ratios),
        median=median,
        at_least=guard["at_least"],
        seen=None if median is None else median >= guard["at_least"],
        verdict="descriptive",
    )


def contrast_record(
    stage: Stage, planned: PlannedContrast, decided: ContrastVerdict, sha256: str, found: Blocks, needed: int
) -> ContrastRecord:
    """A verdict as a record."""
    return ContrastRecord(
        model=stage.params["model"],
        contrast=decided.contrast,
        candidate=decided.candidate,
        control=decided.control,
        blocks=found.planned,
        valid_blocks=found.valid,
        needed_blocks=needed,
        **decided.figures() | {"ratios": None if planned.ratios is None else list(planned.ratios)},
        objective=objectives.route_of(stage.params["study"]) if sha256 else "none",
        certificate=planned.certificate,
        certificates_sha256=sha256,
        verdict=decided.verdict,
        reason=decided.reason,
    )


if __name__ == "__main__":
    main(run)
