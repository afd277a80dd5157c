"""GPUs are granted once: two drivers side by side on a host with two GPUs, and what each stage really saw.

    python scripts/gpu-trial.py        with a Python that has torch; needs no other package

Each of two drivers runs four stages of one GPU, one of two, one of none, one that wants to be alone and one that asks
for sixteen. Prints what every stage was granted and what torch found, and exits 1 if two stages had a GPU at the same
time, if one saw another GPU than its own, or if anything ran beside the one that is alone.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
PROGRAM = """
import os, sys, time
sys.path.insert(0, {top!r})
from kassay.stage import main
def run(stage):
    began = time.time()
    import torch
    seen = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    if seen:
        (torch.ones(4096, 4096, device="cuda") @ torch.ones(4096, 4096, device="cuda")).sum().item()
    time.sleep(3)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    stage.write_json("seen", {{"visible": visible, "uuids": seen, "began": began, "ended": time.time()}})
    return {{}}
main(run)
"""


class Quiet:
    """A watcher that says nothing."""

    def event(self, event: object) -> None:
        """Nothing."""

    def tick(self, states: dict[str, str], waits_for: Callable[[str], str]) -> None:
        """Nothing."""


def stages(driver: str) -> dict[str, Any]:
    """What one driver runs."""

    def one(gpus: int, **more: Any) -> dict[str, Any]:
        asked = {"cpus": 1, "memory_gib": 1, **({"gpus": gpus} if gpus else {}), **more}
        return {"program": "see", "params": {"driver": driver}, "resources": asked}

    single = {name: one(1) for name in "abcd"}
    return {**single, "pair": one(2), "none": one(0), "alone": one(1, exclusive=True), "many": one(16)}


def drive(root: Path, driver: str) -> int:
    """One driver; what its stages had goes to standard output, a JSON line each."""
    sys.path.insert(0, str(TOP))
    from kassay import paths, plan
    from kassay.engine.local import LocalEngine
    from kassay.run import Run
    from kassay.rundir import Setup

    paths.ROOT = root
    none: frozenset[str] = frozenset()
    setup = Setup(
        results=root / driver, settings={}, overrides=[], interpreter=sys.executable, timeout_s=300,
        only=none, force=none, keep=none,
    )  # fmt: skip
    run = Run(plan.build("gpus", "trial", {"stages": stages(driver)}), setup, LocalEngine(cpus=8, memory_gib=64))
    run.go(Quiet())
    for name, outcome in run.outcomes.items():
        seen = paths.stage_dir(run.directory, name) / "seen.json"
        told = json.loads(seen.read_bytes()) if seen.exists() else None
        row = {"driver": driver, "stage": name, "word": outcome.word, "reason": outcome.reason, "grant": outcome.grant}
        print(json.dumps({**row, "seen": told}), flush=True)
    return 0


def faults(rows: list[dict[str, Any]]) -> list[str]:
    """What must not have happened."""
    ran = [row for row in rows if row["seen"]]
    found = [f"{row['stage']}: saw {row['seen']['uuids']}, granted {row['grant']['gpu_ids']}" for row in ran
             if len(row["seen"]["uuids"]) != row["grant"]["gpus"]]  # fmt: skip
    for one, other in itertools.combinations(ran, 2):
        beside = one["seen"]["began"] < other["seen"]["ended"] and other["seen"]["began"] < one["seen"]["ended"]
        shared = set(one["seen"]["uuids"]) & set(other["seen"]["uuids"])
        if beside and (shared or "alone" in (one["stage"], other["stage"])):
            found.append(f"{one['driver']} {one['stage']} and {other['driver']} {other['stage']} ran side by side")
    return found + [f"{row['stage']} of {row['driver']} {row['word']}" for row in rows
                    if row["word"] != ("unmet" if row["stage"] == "many" else "passed")]  # fmt: skip


def main() -> int:
    """Both drivers, and what came of it."""
    if len(sys.argv) == 3:
        return drive(Path(sys.argv[1]), sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="gpu-trial.") as folder:
        (Path(folder) / "stages").mkdir()
        (Path(folder) / "stages" / "see.py").write_text(PROGRAM.format(top=str(TOP)))
        command = [sys.executable, __file__, folder]
        drivers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in ("one", "two")]
        rows = [json.loads(line) for driver in drivers for line in driver.communicate()[0].splitlines()]
    for row in rows:
        print(json.dumps(row))
    found = faults(rows)
    print(f"{len(rows)} stages: " + ("; ".join(found) or "each had its own GPUs, and what was alone was alone"))
    return 1 if found or len(rows) != 16 else 0


if __name__ == "__main__":
    raise SystemExit(main())
