"""The records of a run that a report shows, read stage by stage.

Only stages that ended with a result (passed or rejected) are read: what a crashed stage wrote is no evidence.
Lines of kinds that a report does not show (answers, losses: most of a run) are passed over unparsed. A
records file that cannot be read becomes a fault, which the report prints first; nothing of that file is
shown.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from kassay import paths, versions
from kassay.errors import RecordError, VersionError
from kassay.kinds.composition import CompositionRecord
from kassay.kinds.device import DeviceRecord
from kassay.kinds.direct import DirectRecord
from kassay.kinds.fusion import FusionCell, FusionClaim, FusionFit, FusionVerdict
from kassay.kinds.law import LawRecord
from kassay.kinds.matrix import CaseGateRecord, MatrixRow
from kassay.kinds.memory import AllocatorRecord, MemoryGate, MemoryPart, MemoryWindow
from kassay.kinds.oracle import OracleCase
from kassay.kinds.probe import ProbeArm, ProbeFinding, ProbeText
from kassay.kinds.published import FigureAnswer
from kassay.kinds.quality import ArmStorage
from kassay.kinds.serving import ServedLoad, ServedRequest, ServingCheck, ServingContrast, ServingGate
from kassay.kinds.source import PackageRecord, SourceRecord
from kassay.kinds.speculation import AcceptanceRecord, SpeculationCell
from kassay.kinds.timing import BlockRecord, GpuState, HostState, SweepCell, TimingCell
from kassay.kinds.verdict import (
    CertificateRecord,
    ContrastRecord,
    GateRecord,
    GuardRecord,
    QualificationRecord,
    SaturationRecord,
)
from kassay.kinds.vllm import VllmFinding, VllmRatio
from kassay.record import Record, parse_line
from kassay.report.model import RunView, StageView, load_run

SHOWN: tuple[type[Record], ...] = (
    AcceptanceRecord,
    AllocatorRecord,
    ArmStorage,
    BlockRecord,
    CaseGateRecord,
    CertificateRecord,
    CompositionRecord,
    ContrastRecord,
    DirectRecord,
    FigureAnswer,
    FusionCell,
    FusionClaim,
    FusionFit,
    FusionVerdict,
    GateRecord,
    GpuState,
    GuardRecord,
    HostState,
    LawRecord,
    MatrixRow,
    MemoryGate,
    MemoryPart,
    MemoryWindow,
    OracleCase,
    PackageRecord,
    ProbeArm,
    ProbeFinding,
    ProbeText,
    QualificationRecord,
    SaturationRecord,
    ServedLoad,
    ServedRequest,
    ServingCheck,
    ServingContrast,
    ServingGate,
    SourceRecord,
    SpeculationCell,
    SweepCell,
    TimingCell,
    VllmFinding,
    VllmRatio,
    DeviceRecord,
)
KINDS = {kind.schema.rpartition("/")[0]: kind for kind in SHOWN}
FIRST_OF: dict[type[Record], str] = {ServedRequest: "token_ns"}  # a list of which only the first item is ever shown
KIND_OF_LINE = re.compile(rb'\s*\{\s*"schema"\s*:\s*"([^"/]*)/')

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, kw_only=True)
class Report:
    """A run and its records: all that is rendered."""

    run: RunView
    records: tuple[Record, ...]  # in plan order, then in file order
    counts: dict[str, int]  # stage -> number of its records, those that are not shown included
    faults: tuple[str, ...]  # records files that could not be read

    @cached_property
    def by_kind(self) -> dict[type[Record], tuple[Record, ...]]:
        """The records of each kind: a page asks for kinds many times, and a run may have a hundred thousand records."""
        found: dict[type[Record], list[Record]] = {}
        for record in self.records:
            found.setdefault(type(record), []).append(record)
        return {kind: tuple(own) for kind, own in found.items()}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """The records of one kind."""
        return cast(tuple[R, ...], self.by_kind.get(kind, ()))


def load_report(run_dir: Path, programs: tuple[str, ...] | None = None) -> Report:
    """The report of a run directory; `programs` limits which stages' records are read."""
    run = load_run(run_dir)
    records: list[Record] = []
    counts: dict[str, int] = {}
    faults: list[str] = []
    for stage in run.stages:
        if not stage.ended or (programs is not None and stage.program not in programs):
            continue
        try:
            found, counts[stage.name] = stage_records(run_dir, stage)
            records += found
        except VersionError as error:
            said = f"{error}; {versions.reader(run_dir)}"
            faults.append(f"the records of `{stage.name}` cannot be read: {said}".replace(f"{run_dir}/", ""))
        except (RecordError, TypeError) as error:
            faults.append(f"the records of `{stage.name}` cannot be read: {error}".replace(f"{run_dir}/", ""))
    return Report(run=run, records=tuple(records), counts=counts, faults=tuple(faults))


def stage_records(run_dir: Path, stage: StageView) -> tuple[list[Record], int]:
    """The shown records of one stage, and how many it has in all."""
    path = paths.stage_dir(run_dir, stage.name) / paths.RECORDS
    found: list[Record] = []
    count = 0
    for raw in lines(path):
        count += 1
        match = KIND_OF_LINE.match(raw)
        kind = KINDS.get(match[1].decode(errors="replace")) if match else None
        if match is not None and kind is None:
            continue
        where = f"{path}:{count}"
        body = parse_line(raw, where)  # raises where no kind was found, too
        if kind is None:
            raise RecordError(f"{where}: the schema names no kind")
        if (name := FIRST_OF.get(kind)) is not None:
            body[name] = body[name][:1]
        found.append(kind.from_json(body, where))
    return found, count


def lines(path: Path) -> Iterator[bytes]:
    """The raw lines of a file, none if it does not exist."""
    if path.exists():
        with path.open("rb") as stream:
            yield from stream
