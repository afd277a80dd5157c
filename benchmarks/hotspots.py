"""Where kassay's own time goes: cProfile of a cold run, a no-op, one leaf changed, a plan; and what its imports cost.

cProfile slows calls down, so a share is worth more than a second. Stages are processes of their own and are not in it.
"""

import pstats
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

from benchmarks.row import change_leaf
from benchmarks.sample import Command, measure
from benchmarks.shape import Shape
from benchmarks.tool import Tool

TOP = 25  # functions
IMPORTS = 20  # modules
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")  # self us, cumulative us, depth, module


def hotspots(tool: Tool, shape: Shape, folder: Path) -> Iterator[str]:
    """The report, line by line."""
    case = tool.prepare(shape, folder / shape.name)
    for phase in ("cold", "noop", "again", "leaf", "plan"):
        if phase == "leaf":
            change_leaf(case)
        command = case.plan if phase == "plan" else case.run
        yield from profiled(command, f"{shape.name}, {phase}", folder)
    yield from imports(case.run, f"{shape.name}, no-op", folder)
    yield from imports(tool.help, "--help", folder)


def profiled(command: Command, title: str, folder: Path) -> Iterator[str]:
    """The functions with the most time of their own."""
    kept = folder / "profile"
    sample = measure(python_with(command, "-m", "cProfile", "-o", str(kept)), folder / "log")
    text = StringIO()
    statistics = pstats.Stats(str(kept), stream=text)
    statistics.strip_dirs().sort_stats("tottime").print_stats(TOP)
    statistics.sort_stats("cumtime").print_stats(r"^(?!<).*\.py", TOP)
    noise = (str(folder), "Ordered by", "List reduced", "function calls")
    yield f"## {title}: {sample.wall_s:.3f} s under cProfile, exit code {sample.exit_code}"
    yield from (
        line for line in text.getvalue().splitlines() if line.strip() and not any(word in line for word in noise)
    )


def imports(command: Command, title: str, folder: Path) -> Iterator[str]:
    """The modules whose import took the most, those below them included."""
    log = folder / "imports"
    log.unlink(missing_ok=True)
    measure(python_with(command, "-X", "importtime"), log)
    found = [match.groups() for match in IMPORT_LINE.finditer(log.read_text())]
    yield f"## imports of {title}: {len(found)} modules, {sum(int(own) for own, *_ in found) / 1e3:.0f} ms"
    longest = sorted(found, key=lambda entry: -int(entry[1]))[:IMPORTS]
    yield from (f"{int(total) / 1e3:8.1f} ms  {depth}{name}" for _, total, depth, name in longest)


def python_with(command: Command, *words: str) -> Command:
    """The same command with words for its interpreter."""
    python, *rest = command.argv
    return replace(command, argv=(python, *words, *rest))
