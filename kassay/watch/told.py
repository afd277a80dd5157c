"""What a stage directory tells from outside while its stage runs: how far it is, its GPUs, the end of its log.

Any of these files may be absent, or change while it is read; what cannot be read is not told, and is asked again.
"""

import json
import re
from pathlib import Path
from typing import Any

from kassay import paths
from kassay.report.words import clean, one_line
from kassay.tail import end_of, last_lines

TAIL_LINES = 20  # of stderr.log, told when a stage crashes
TAIL_BYTES = 16384
LAST_BYTES = 2048  # enough for a last line that fits a screen
LONGEST_UUID = 12  # `GPU-` or `MIG-` and eight digits, which CUDA_VISIBLE_DEVICES takes too
COLOUR = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file that may be absent or half written; empty if it cannot be read as one."""
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def progress(directory: Path) -> str:
    """How far a running stage is: what it told last, else the last line of its logs."""
    told = read_object(directory / paths.PROGRESS)
    if {"done", "total", "what"} <= set(told):
        return one_line(f"{told['done']} of {told['total']} {told['what']}")
    logs = [directory / name for name in (paths.STDOUT, paths.STDERR)]
    written = [(changed_ns(path), path) for path in logs]
    return last_line(max(written)[1])


def changed_ns(path: Path) -> int:
    """When a file that is not empty was last written to; 0 if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_mtime_ns if status.st_size else 0


def last_line(path: Path) -> str:
    """The last line of a log that says something; a bar that is drawn over and over is read at its last state."""
    for line in reversed(end_of(path, LAST_BYTES).splitlines()):
        if said := one_line(COLOUR.sub("", line)):
            return said
    return ""


def gpus(directory: Path) -> str:
    """The GPUs that a stage was given: indices or UUIDs with commas, or how many where the cluster chooses them."""
    grant = read_object(directory / paths.OUTCOME).get("grant") or read_object(directory / paths.REQUEST).get("grant")
    if not isinstance(grant, dict):
        return ""
    if ids := grant.get("gpu_ids"):
        return ",".join(one_line(name, 80) for name in ids)
    return f"{grant['gpus']} of the cluster's" if grant.get("gpus") else ""


def shortened(ids: str) -> str:
    """GPU ids for a narrow column."""
    return ",".join(name[:LONGEST_UUID] if name.startswith(("GPU-", "MIG-")) else name for name in ids.split(","))


def crash_report(run_dir: Path, stage: str) -> list[str]:
    """The log of a stage that crashed and its last lines; nothing if it left none."""
    log = paths.stage_dir(run_dir, stage) / paths.STDERR
    lines = last_lines(log, TAIL_BYTES)[-TAIL_LINES:]
    return [paths.shown(log) + ":", *(f"  {clean(COLOUR.sub('', line))}" for line in lines)] if lines else []
