"""A row of raw values, and the round that makes them: cold, nothing to do, planned, one leaf changed.

Rows go to a JSONL file as they come; the table is made from them alone.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.sample import Sample, measure
from benchmarks.shape import Shape, file_cost_ms, floor
from benchmarks.tool import Case, Tool

# In the order in which they are measured. The first no-op may look into all that a cold run left, the second not.
# `fresh` is measured only where a tool keeps a composed workflow.
PHASES = ("cold", "noop", "again", "fresh", "plan", "leaf")
START = "start"
NOT_INSTALLED = "not installed"


@dataclass(frozen=True, kw_only=True)
class Row(Sample):
    """One command of one tool on one shape."""

    tool: str
    version: str
    shape: str  # START for `--help`
    stages: int
    round: int  # from 0 on
    phase: str
    fault: str  # empty, or why the values are none
    floor_wall_s: float  # mean of the bare spawns just before and just after a cold run; 0 for other phases
    floor_cpu_s: float
    file_ms: float  # what making a file took just before a cold run; 0 for other phases
    ran: int  # stages whose output was written anew


def rows_of(tool: Tool, shape: Shape, number: int, folder: Path) -> Iterator[Row]:
    """All phases of one tool on one shape, in a fresh folder, which is left: removing files makes work for the next."""
    place = folder / f"{tool.name}-{shape.name}-{number}"
    case = tool.prepare(shape, place)
    for phase in PHASES:
        if phase == "fresh":
            if case.forget is None:
                continue
            case.forget()
        if phase == "plan":
            change_leaf(case)
        file_ms = file_cost_ms(place / "files") if phase == "cold" else 0.0
        before = bare(shape, place / "before") if phase == "cold" else (0.0, 0.0)
        row = measured(tool, shape, number, phase, case, place / "log")
        after = bare(shape, place / "after") if phase == "cold" else (0.0, 0.0)
        wall_s, cpu_s = ((first + last) / 2 for first, last in zip(before, after, strict=True))
        row = replace(row, floor_wall_s=wall_s, floor_cpu_s=cpu_s, file_ms=file_ms)
        yield row
        if phase == "cold" and row.fault:
            break


def bare(shape: Shape, folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of the floor, its outputs in a new folder."""
    folder.mkdir()
    return floor(shape, folder)


def measured(tool: Tool, shape: Shape, number: int, phase: str, case: Case, log: Path) -> Row:
    """The row of one phase; its floor is not known yet."""
    before = times(case)
    sample = measure(case.plan if phase == "plan" else case.run, log)
    after = times(case)
    ran = sum(now != then for now, then in zip(after, before, strict=True))
    fault = f"exit code {sample.exit_code}, see {log.parent.name}/log" if sample.exit_code else ""
    if not fault and not all(path.is_file() and path.read_text() == "x\n" for path in case.outputs):
        fault = f"an output is missing, see {log.parent.name}/log"
    return Row(
        tool=tool.name,
        version=tool.version,
        shape=shape.name,
        stages=shape.count(),
        round=number,
        phase=phase,
        fault=fault,
        floor_wall_s=0.0,
        floor_cpu_s=0.0,
        file_ms=0.0,
        ran=ran,
        **asdict(sample),
    )


def times(case: Case) -> list[tuple[int, int]]:
    """When and as which file each output was written last."""
    found = []
    for path in case.outputs:
        try:
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_ino))
        except FileNotFoundError:
            found.append((0, 0))
    return found


def change_leaf(case: Case) -> None:
    """Append to the first leaf."""
    leaf = sorted(case.leaves.iterdir())[0]
    with leaf.open("a") as out:
        out.write("changed\n")


def start_up(tool: Tool, number: int, log: Path) -> Row:
    """The row of `--help`."""
    sample = measure(tool.help, log)
    fault = f"exit code {sample.exit_code}" if sample.exit_code != tool.help_code else ""
    return without_shape(tool.name, tool.version, number, fault, sample)


def not_installed(name: str) -> Row:
    """The row of a tool that cannot be had here."""
    nothing = Sample(wall_s=0.0, cpu_s=0.0, largest_bytes=0, driver_bytes=0, exit_code=0, load=0.0)
    return without_shape(name, "", 0, NOT_INSTALLED, nothing)


def without_shape(tool: str, version: str, number: int, fault: str, sample: Sample) -> Row:
    """A row of no DAG."""
    return Row(
        tool=tool,
        version=version,
        shape=START,
        stages=0,
        round=number,
        phase="help",
        fault=fault,
        floor_wall_s=0.0,
        floor_cpu_s=0.0,
        file_ms=0.0,
        ran=0,
        **asdict(sample),
    )


def keep(row: Row, path: Path) -> None:
    """Append a row to the raw values."""
    with path.open("a") as out:
        out.write(json.dumps(asdict(row)) + "\n")


def load(path: Path) -> list[Row]:
    """The rows of a file of raw values."""
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]
