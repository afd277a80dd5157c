"""What a Slurm job's state means for its stage: goes on, ended by itself, or ended by Slurm. Pure; nothing is asked.

Slurm's exit codes decide nothing, as it gives 0 to jobs that it killed itself: the process's end is what the launcher
left, and a state can only take from it. A word that is not known here is never an end that passes.
"""

import re
from dataclasses import dataclass

from kassay.engine import Ended
from kassay.engine.attempt import Left

ACTIVE = set(
    "PENDING CONFIGURING RUNNING SUSPENDED COMPLETING STAGE_OUT SIGNALING STOPPED RESIZING REQUEUED REQUEUE_FED "
    "REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT UPDATE_DB POWER_UP_NODE EXPEDITING".split()
)
ITS_OWN = {"COMPLETED": True, "FAILED": False}  # the process ended by itself; whether with 0
TIME_UP = {"TIMEOUT"}
BY_SLURM = set(
    "CANCELLED PREEMPTED NODE_FAIL BOOT_FAIL OUT_OF_MEMORY DEADLINE REVOKED LAUNCH_FAILED RECONFIG_FAIL".split()
)
# Reasons for which a job waits for ever, unless somebody changes the job or the cluster.
NEVER_STARTS = set(
    "PartitionTimeLimit BadConstraints InvalidAccount InvalidQOS DependencyNeverSatisfied "
    "AssocMaxWallDurationPerJobLimit QOSMaxWallDurationPerJobLimit AssocMaxCpuPerJobLimit QOSMaxCpuPerJobLimit "
    "AssocMaxMemPerJob QOSMaxMemoryPerJob".split()
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What Slurm says of one job."""

    job: str  # id
    name: str
    state: str  # one word: `CANCELLED by 0` and `CANCELLED+` are CANCELLED
    reason: str  # why it waits, as squeue says; empty from sacct
    listed: bool  # by squeue, which knows; sacct may be behind or have lost an end


def word_of(text: str) -> str:
    """The state word of `CANCELLED by 0`, `CANCELLED+`, `running`."""
    found = re.match(r"[A-Z_]+", text.strip().upper())
    return found.group() if found else text


def goes_on(row: Row) -> bool:
    """Whether the job waits or runs; an unknown word does while squeue lists the job."""
    return row.listed and row.state not in {*ITS_OWN, *TIME_UP, *BY_SLURM}


def never_starts(row: Row) -> bool:
    """Whether the job waits for what will not come."""
    return row.state == "PENDING" and row.reason in NEVER_STARTS


def the_one(rows: list[Row], name: str, left: Left | None) -> Row | None:
    """The job of that name: one that goes on, else the one that ran. A submission may have been taken twice."""
    own = [row for row in rows if row.name == name]
    return max(own, key=lambda row: (goes_on(row), left is not None and row.job == left.job), default=None)


def how_it_ended(stage: str, row: Row | None, left: Left | None, late: bool) -> Ended | None:
    """How a job ended, None while it goes on or its files may still show up.

    `row` is None if neither squeue nor sacct knows the job; `late` says that the files have had their time.
    """
    if row is not None and goes_on(row):
        return None
    if row is None or row.state in ACTIVE:  # sacct keeps RUNNING for ever where the end was lost
        return by_its_files(stage, "Slurm does not know the job any more", left, late)
    if row.state in TIME_UP:
        return Ended(stage=stage, exit_code=None, timed_out=True, fault="", peak_bytes=None)
    if row.state not in ITS_OWN:
        return Ended(
            stage=stage,
            exit_code=None,
            timed_out=False,
            fault=f"Slurm says {row.state} of job {row.job}",
            peak_bytes=None,
        )
    if left is not None and (left.exit_code == 0) != ITS_OWN[row.state]:
        fault = f"Slurm says {row.state} of job {row.job}, but its process ended with {left.exit_code}"
        return Ended(stage=stage, exit_code=left.exit_code, timed_out=left.timed_out, fault=fault, peak_bytes=None)
    return by_its_files(stage, f"Slurm says {row.state} of job {row.job}", left, late)


def by_its_files(stage: str, said: str, left: Left | None, late: bool) -> Ended | None:
    """How the launcher says that it ended; a launcher that left nothing, even late, was killed."""
    if left is not None:
        return Ended(stage=stage, exit_code=left.exit_code, timed_out=left.timed_out, fault="", peak_bytes=None)
    fault = f"{said}, and it left no exit status"
    return Ended(stage=stage, exit_code=None, timed_out=False, fault=fault, peak_bytes=None) if late else None
