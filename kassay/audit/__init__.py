"""Does what a run concluded follow from what it recorded? `make audit` derives all of it again, in other processes.

    files      plan, protocol, outcomes, artifacts and records are those whose digests the run states; each request asks
               what the plan asks, of the very files that its inputs left; no line is torn, nothing lacks or is added
    rederive   every stage that judges runs again in a process and a folder of its own, on the files of the run
               directory alone; records, outcome and artifacts must be those that the run has
    recount    answers are read and scored again, losses and gains counted, bounds checked against their definition, and
               certificates put together; which timed blocks count, their ratios and verdicts, every row of a matrix
               and rho, served loads from every request, and receipts of installed workers from engines, tokens and
               comparisons; by code that shares nothing with kassay.stats or the stages

Values are compared bit for bit. Where a number comes from a resampling, a special function or a fit, whose last digits
may differ between processors, the tolerance of kassay.audit.compare is allowed, and how many values needed it is said.

It catches: a file that was edited, cut, swapped, added or lost after the run; an edited plan or study; a verdict that
its records do not give; a stage that judged other files than it names; a judgement that depends on anything but its
inputs. With digests made to fit, an edit of raw records is still caught unless every judgement was made again as well.

A run may also be audited out of the tar of `make export`, on another machine and from anybody (kassay.export.unpack).

It cannot catch: raw records that were wrong or invented when they were written, with everything after them made to fit;
an error that the stage programs and the recount share; a plan that was replaced whole, with its hash (the frozen
protocol.json beside .config tells that). It measures nothing, and what never ran it cannot derive: it says so.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from kassay.errors import EXIT_PASSED, EXIT_REJECTED, EXIT_UNMET

# Programs that touch no model: what they leave follows from their inputs and parameters.
JUDGES = (
    "certify",
    "contrast",
    "direct",
    "saturation",
    "composition",
    "matrix",
    "published",
    "probes",
    "serving_verdict",
    "fusion_law",
)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as the run says."""

    stage: str  # the stage, or `run` for the run as a whole
    record: str  # the file, or the record by what identifies it
    field: str  # the field, or what of the file
    recorded: str  # as the run has it
    derived: str  # as it should be

    def line(self) -> str:
        """All of it in one line."""
        return f"{self.stage}: {self.record}: {self.field}: recorded {self.recorded}, derived {self.derived}"


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One stage that was derived again, or counted again."""

    stage: str
    how: str  # `rederived` or `recounted`
    values: int  # values that were compared
    loose: int  # of them, those that only agree within their tolerance
    note: str  # what a reader should know, such as code that is another one now; empty for nothing

    def line(self) -> str:
        """All of it in one line."""
        agreed = f"{self.loose} within tolerance only" if self.loose else "bit for bit"
        return f"{self.stage}: {self.how}: {self.values} values, {agreed}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What was found in a run."""

    audited: tuple[Audited, ...]
    differences: tuple[Difference, ...]
    open: tuple[str, ...]  # stages that judge and left nothing to derive again, with the reason

    @property
    def exit_code(self) -> int:
        """3 where something differs, 4 where something could not be derived, 0 where all follows."""
        if self.differences:
            return EXIT_REJECTED
        return EXIT_UNMET if self.open or not self.audited else EXIT_PASSED

    def lines(self) -> list[str]:
        """For people and pipes: a line a stage, a line a difference."""
        told = [one.line() for one in self.audited]
        told += [f"{reason}" for reason in self.open]
        told += [f"difference: {one.line()}" for one in self.differences]
        if not self.audited and not self.open:
            told.append("no stage of this run judges: there is nothing to derive")
        return told


def audit(run_dir: Path) -> Audit:
    """The audit of a run directory. Raises RunError for one that is none, VersionError for one of another kassay."""
    from kassay import versions
    from kassay.audit import files, recount, rederive

    run = files.load(run_dir)
    versions.require_ours(run_dir)
    found = files.differences(run)
    audited: list[Audited] = []
    left_open: list[str] = []
    for stage in run.plan.stages:
        if stage.program not in JUDGES:
            continue
        if reason := run.open(stage):
            left_open.append(f"{stage.name}: not derived: {reason}")
            continue
        told, different = rederive.stage(run, stage)
        audited.append(told)
        found += different
    counted, different = recount.run(run)
    return Audit(
        audited=(*audited, *counted), differences=tuple(dict.fromkeys((*found, *different))), open=tuple(left_open)
    )


def audit_tar(tar: Path) -> Audit:
    """The audit of an exported run, out of its tar. Raises RunError for one that is none, or hostile."""
    import tempfile

    from kassay.export.unpack import unpack

    with tempfile.TemporaryDirectory(prefix="kassay-audit-") as folder:
        run_dir, changed = unpack(tar, Path(folder).resolve())
        found = audit(run_dir)
    return replace(found, differences=tuple(dict.fromkeys((*changed, *found.differences))))
