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

from typing import Any

from kassay import judging, objectives
from kassay.kinds.timing import TIMED
from kassay.kinds.verdict import CertificateRecord, ContrastRecord, GuardRecord
from kassay.pooling import require_own_protocol, verified_sha256
from kassay.stage import Metrics, Stage, main
from kassay.stats import InvalidData
from kassay.stats.blocks import ContrastVerdict, PlannedContrast, contrast_verdicts, guard_median
from kassay.stats.certificate import Qualification

UNCERTIFIED = "unestablished"  # in a study without certificates, whose comparisons are descriptive


def run(stage: Stage) -> Metrics:
    """What became of every block, then the verdict of every planned comparison of the family, then the guards."""
    require_own_protocol(stage)
    study = stage.params["study"]
    timing = study["timing"]
    orders = stage.json_input("orders")
    found = judged_blocks(stage, TIMED, orders["orders"])
    needed = judging.needed_blocks(timing)
    sha256 = verified_sha256(stage, "certificates") if "certificates" in stage.inputs else ""
    made = certificates(stage)
    family = [planned_contrast(study, study["comparisons"][name], made, found) for name in timing["family"]]
    decided = contrast_verdicts(
        family,
        planned_blocks=len(found.valid),
        alpha=timing["alpha"],
        interval_alpha=timing["interval_alpha"],
        screen_ratio=timing["screen_ratio"],
        invalid=found.short_of(needed),
    )
    for planned, verdict in zip(family, decided, strict=True):
        stage.append(contrast_record(stage, planned, verdict, sha256, found, needed))
    for name, guard in (study.get("guards") or {}).items():
        stage.append(guard_record(stage, name, guard, orders["guards"][name]))
    counted: Metrics = {"blocks that count": f"{len(found.valid)} of {len(found.planned)}"}
    return counted | {verdict.contrast: verdict.verdict for verdict in decided}


def judged_blocks(stage: Stage, load: str, orders: list[list[str]]) -> judging.Blocks:
    """The blocks of one load, each with a record of whether it counts."""
    found = judging.judged(judging.evidence(stage.inputs["timing"], load), orders, stage.params["study"]["timing"])
    for record in found.records(stage.params["model"], load):
        stage.append(record)
    return found


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
    found: judging.Blocks,
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
        blocks=len(found.planned),
        valid_blocks=found.valid,
        ratios=list(ratios),
        median=median,
        at_least=guard["at_least"],
        seen=None if median is None else median >= guard["at_least"],
        verdict="descriptive",
    )


def contrast_record(
    stage: Stage, planned: PlannedContrast, decided: ContrastVerdict, sha256: str, found: judging.Blocks, needed: int
) -> ContrastRecord:
    """A verdict as a record."""
    return ContrastRecord(
        model=stage.params["model"],
        contrast=decided.contrast,
        candidate=decided.candidate,
        control=decided.control,
        blocks=len(found.planned),
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
