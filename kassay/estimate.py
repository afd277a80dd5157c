"""`make estimate`: time, disk and GPU-hours of a plan, each figure with where it comes from.

A stage that has ended before tells its own time, in the newest run in which it passed, whatever its parameters were;
what nobody has measured is not guessed: the profile's own statement stands beside the sum of what is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kassay import needs, paths
from kassay.config import profiles
from kassay.earlier import Earlier
from kassay.entry import Stage
from kassay.errors import KassayError
from kassay.outcome import load
from kassay.plan import Plan

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Known:
    """What an earlier run tells of a stage."""

    run: str
    duration_s: float
    disk_bytes: int


def known(earlier: Earlier, stage: Stage) -> Known | None:
    """The newest result of a stage that passed or was rejected, in any run."""
    for directory in earlier.of(stage.name):
        try:
            outcome = load(directory)
        except KassayError:
            continue
        if outcome is not None and outcome.word in ("passed", "rejected"):
            real = directory.resolve()
            size = sum(path.stat().st_size for path in real.rglob("*") if path.is_file() and not path.is_symlink())
            return Known(run=outcome.run, duration_s=outcome.duration_s, disk_bytes=size)
    return None


def lines(plan: Plan, results: Path) -> Iterator[str]:
    """One line a stage, the sums of what is measured, and what the profile itself states."""
    earlier = Earlier(results)
    found = {stage.name: known(earlier, stage) for stage in plan.stages}
    total_s = gpu_s = 0.0
    disk = 0
    for stage in plan.stages:
        told = found[stage.name]
        if told is None:
            yield f"{stage.name:20} {'-':>10}  no earlier run"
            continue
        total_s += told.duration_s
        gpu_s += told.duration_s * stage.gpus
        disk += told.disk_bytes
        yield f"{stage.name:20} {told.duration_s:8.1f} s  measured in {told.run}"
    unknown = [name for name, told in found.items() if told is None]
    rest = f"; {len(unknown)} of {len(found)} stages are not in it" if unknown else ""
    hours = f"{gpu_s / SECONDS_PER_HOUR:.2f} GPU-hours"
    yield f"measured: {total_s:.0f} s one after another, {disk / 2**20:.0f} MiB of results, {hours}{rest}"
    yield f"stated: {stated(plan.profile)}"
    if disk_gib := max((float(stage.host.get("disk_gib", 0)) for stage in plan.stages), default=0.0):
        free = needs.lacking_disk(disk_gib)
        yield f"stated: {disk_gib:g} GiB in {paths.shown(paths.build())} ({free[0] if free else 'there is room'})"


def stated(profile: str) -> str:
    """Time and hardware as the first line of the profile's file states them."""
    name = profile.partition("+")[0]
    files = profiles.profiles().get(name, [])
    head = profiles.head_comment(files[0]) if files else {}
    return ", ".join(f"{key} {head[key]}" for key in ("time", "hardware") if key in head) or "nothing"
