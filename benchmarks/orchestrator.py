"""What does orchestration cost? The same DAGs of trivial stages by kassay, ninja, doit and snakemake, two workers.

`python -m benchmarks.orchestrator` prints Markdown for docs/findings; raw values lie in build/bench/*.jsonl. Tools take
turns within a round and their order is rotated from round to round, so that a busy neighbour meets all of them; what is
compared is compared within one run. `--profile` shows where kassay's own time goes (benchmarks/hotspots.py).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bar import missed
from benchmarks.hotspots import hotspots
from benchmarks.kassay_tool import ROOT, kassay
from benchmarks.row import Row, keep, not_installed, rows_of, start_up
from benchmarks.shape import SHAPES
from benchmarks.table import markdown
from benchmarks.tool import ADAPTERS, Tool, known

BENCH = ROOT / "build" / "bench"
NAMES = ("kassay", *ADAPTERS)
ONCE = {"snakemake": ("fan-1000", "diamonds-10x100")}  # 20 to 40 s each: the first round only
HELPS = 3  # of `--help` a round


def arguments() -> argparse.Namespace:
    """The words of the command line."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.orchestrator", description=__doc__)
    asked.add_argument("--rounds", type=int, default=5, help="how often each tool runs each shape")
    asked.add_argument("--tools", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    asked.add_argument("--shapes", default=",".join(SHAPES), help=f"of {', '.join(SHAPES)}")
    asked.add_argument("--folder", type=Path, default=BENCH, help="where to work; /dev/shm leaves the disk out of it")
    asked.add_argument("--bars", action="store_true", help="exit 1 if kassay misses a bar by more than its slack")
    asked.add_argument("--profile", choices=["kassay"], help="profile kassay on the first shape instead")
    found = asked.parse_args()
    found.tools, found.shapes = found.tools.split(","), found.shapes.split(",")
    if stray := [*(set(found.tools) - set(NAMES)), *(set(found.shapes) - set(SHAPES))]:
        asked.error(f"unknown: {', '.join(sorted(stray))}")
    return found


def main() -> int:
    """Measure, print, judge."""
    BENCH.mkdir(parents=True, exist_ok=True)
    asked = arguments()
    raw = BENCH / f"orchestrator-{time.strftime('%Y%m%dT%H%M%S')}.jsonl"
    # Not in /tmp, where everybody makes and removes files (benchmarks.shape.file_cost_ms).
    with tempfile.TemporaryDirectory(prefix="work-", dir=asked.folder, ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        if asked.profile:
            for line in hotspots(kassay(place / "kassay"), SHAPES[asked.shapes[0]](), place):
                print(line)
            return 0
        rows = []
        for row in measured(asked, place):
            keep(row, raw)
            rows.append(row)
            print(f"{row.tool} {row.shape} {row.phase}: {row.fault or f'{row.wall_s:.3f} s'}", file=sys.stderr)
    for line in markdown(rows):
        print(line)
    print(f"raw values: {raw.relative_to(ROOT)}", file=sys.stderr)
    faults = missed([row for row in rows if row.tool == "kassay"]) if asked.bars else []
    for fault in faults:
        print(f"missed: {fault}", file=sys.stderr)
    return 1 if faults else 0


def measured(asked: argparse.Namespace, place: Path) -> Iterator[Row]:
    """Every row of every round, in the order in which they are measured."""
    tools: list[Tool] = []
    for name in asked.tools:
        tool = kassay(place / "kassay") if name == "kassay" else known(name, BENCH)
        if tool is None:
            yield not_installed(name)
        else:
            tools.append(tool)
    for number in range(asked.rounds):
        turned = tools[number % len(tools) :] + tools[: number % len(tools)] if tools else []
        for tool in turned:
            yield from (start_up(tool, number, place / "help.log") for _ in range(HELPS))
        for shape in asked.shapes:
            for tool in turned:
                if number == 0 or shape not in ONCE.get(tool.name, ()):
                    yield from rows_of(tool, SHAPES[shape](), number, place)


if __name__ == "__main__":
    raise SystemExit(main())
